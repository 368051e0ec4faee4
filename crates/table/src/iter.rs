//! Iterates in the order of the hashes.

use std::ptr::{NonNull, null_mut};

use relativist_rcu::Guard;

use super::array::Array;
use super::link::AnyLink;
use super::{Hash, Link, Table};

/// An iterator over the links of a table, in the order of their hashes; see [`Table::iter`].
pub struct Iter<'t, L: AnyLink = Link> {
    table: &'t Table<L>,
    guard: &'t Guard,
    next: *mut L,
    /// All smaller hashes have been visited.
    from: u64,
    /// The hash at which the current bucket ends; `None` for the last bucket.
    end: Option<u64>,
    /// How far memory was prefetched.
    prefetched: Prefetched,
}

/// What an iteration has prefetched.
#[derive(Clone, Copy, Default)]
struct Prefetched {
    /// Links with smaller hashes are prefetched.
    until: u64,
    /// The number of buckets in the last batch.
    batch: usize,
}

impl<L: AnyLink> Table<L> {
    /// Iterates in the order of the hashes. Updates and resizes may run at the same time.
    ///
    /// A link that is in the table throughout is seen exactly once, however often the table is
    /// resized. One that is inserted or removed during the iteration may be seen or not.
    ///
    /// Each step is wait-free, except for the empty buckets that it passes: a whole iteration takes
    /// time proportional to buckets and links.
    pub fn iter<'t>(&'t self, guard: &'t Guard) -> Iter<'t, L> {
        self.iter_from(0, guard)
    }

    /// Iterates over the links whose hashes ([`Hash::get`]) are at least `from`; otherwise like
    /// [`Table::iter`].
    ///
    /// The order of the hashes does not depend on the size of the table. So an iteration may stop
    /// between two hashes, and another one may continue at any later time: together they see a link
    /// that is in the table throughout exactly once.
    pub fn iter_from<'t>(&'t self, from: u64, guard: &'t Guard) -> Iter<'t, L> {
        let mut iter =
            Iter { table: self, guard, next: null_mut(), from, end: None, prefetched: Prefetched::default() };
        iter.enter_bucket();
        iter
    }

    /// Visits `n` links from `cursor` on, or fewer at the end, and all others with the same hash as
    /// the last. If `n` is 0, visits one link. Returns the cursor for the next call, or `None`
    /// after the last link. The first call takes cursor 0.
    ///
    /// A link that is in the table from the first call of a scan to the last is visited exactly
    /// once. No guard is needed between the calls: a cursor is a hash, and links with smaller
    /// hashes have been visited.
    pub fn scan(&self, cursor: u64, n: usize, guard: &Guard, mut visit: impl FnMut(NonNull<L>)) -> Option<u64> {
        let mut last = None;
        for (visited, link) in self.iter_from(cursor, guard).enumerate() {
            // SAFETY: reached within the section, as in `find`.
            let hash = unsafe { link.as_ref() }.hash();
            // Links with equal hashes have no order that would be the same in the next call.
            if visited >= n && last.is_some_and(|last| last != hash) {
                return Some(hash.get());
            }
            last = Some(hash);
            visit(link);
        }
        None
    }
}

impl<L: AnyLink> Iter<'_, L> {
    /// Continues at this hash, which is the end of a bucket; `None` for the end of the last bucket.
    pub(super) fn skip_to(&mut self, hash: Option<u64>) {
        self.next = null_mut();
        self.end = hash;
    }

    /// Enters the bucket of `from` in the current array: its chain has all links from there to the
    /// end of the bucket.
    fn enter_bucket(&mut self) {
        let array = self.table.inner().array(self.guard);
        let from = Hash::from_mixed(self.from);
        if self.from >= self.prefetched.until {
            // Prefetches twice as many as the last time: a long iteration probably continues, while
            // one call of a scan may be short.
            let batch = (self.prefetched.batch * 2).clamp(2, Array::BATCH);
            // SAFETY: the guard lives for `'t`.
            let until = unsafe { array.prefetch_batch::<L>(from, batch) };
            self.prefetched = Prefetched { until, batch };
        }
        self.next = array.head(from).load().first();
        self.end = from.end_of_bucket(array.scale());
    }
}

impl<L: AnyLink> Iterator for Iter<'_, L> {
    type Item = NonNull<L>;

    fn next(&mut self) -> Option<NonNull<L>> {
        loop {
            while let Some(link) = NonNull::new(self.next) {
                // SAFETY: reached within the section, as in `find`.
                let current = unsafe { link.as_ref() };
                let hash = current.hash().get();
                if self.end.is_some_and(|end| hash >= end) {
                    break;
                }
                self.next = current.next();
                // If the table has shrunk, the chain of the bucket may begin with links that were
                // visited.
                if hash >= self.from {
                    return Some(link);
                }
            }
            self.next = null_mut();
            // After the last bucket `end` stays `None`.
            self.from = self.end?;
            self.enter_bucket();
        }
    }
}

impl<L: AnyLink> std::iter::FusedIterator for Iter<'_, L> {}
