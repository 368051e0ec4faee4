//! Iteration in the order of the hashes.

use std::ptr::{NonNull, null_mut};

use relativist_rcu::Guard;

use super::array::Array;
use super::occupancy::{NextBucket, OccupancyCursor};
use super::{Hash, Link, Table};

/// The links of a table in the order of their hashes; see [`Table::iter`].
pub struct Iter<'t> {
    table: &'t Table,
    guard: &'t Guard,
    next: *mut Link,
    /// All smaller hashes have been done with.
    from: u64,
    /// Where the bucket under way ends; `None` for the end of all hashes.
    end: Option<u64>,
    /// Knows the way past empty buckets; `None` in a table that has few of them.
    occupancy: Option<OccupancyCursor<'t>>,
    pub(crate) prefetched: Prefetched,
}

/// What has been brought near by an iteration, or by several that do the work of one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Prefetched {
    /// Links of smaller hashes.
    until: u64,
    /// So many buckets, the last time.
    batch: usize,
}

impl Table {
    /// Iterates in the order of the hashes, while updates and resizes go on.
    ///
    /// A link that is in the table throughout is seen exactly once, however often the table is
    /// resized meanwhile; one that comes or goes meanwhile, or is [renamed](Table::rename), may be
    /// seen or not. Wait-free per step, but for the empty buckets on the way: a whole iteration
    /// costs time proportional to buckets and links, and to links alone where a table of few links
    /// for its buckets is iterated over again and again: the first iterations leave notes of where
    /// there are links, 1/64 of the size of the buckets, for the next ones.
    pub fn iter<'t>(&'t self, guard: &'t Guard) -> Iter<'t> {
        self.iter_from(0, guard)
    }

    /// Iterates over the links whose hashes ([`Hash::get`]) are at least `from`; otherwise as
    /// [`Table::iter`].
    ///
    /// The order of the hashes is the same for any size of the table. So an iteration may be broken
    /// off between two hashes and resumed at any later time by another one: together they see a
    /// link that is in the table throughout exactly once.
    pub fn iter_from<'t>(&'t self, from: u64, guard: &'t Guard) -> Iter<'t> {
        let array = self.inner().array(guard);
        let occupancy = array.is_sparse(self.len()).then(OccupancyCursor::default);
        if occupancy.is_some() {
            // SAFETY: the guard lives for `'t`.
            unsafe { array.prepare_occupancy() };
        }
        Iter::new(self, guard, from, occupancy, Prefetched::default())
    }

    /// The same for a part of the table, whatever there is to know of the whole: looks at each
    /// bucket.
    pub(crate) fn iter_part<'t>(&'t self, from: u64, prefetched: Prefetched, guard: &'t Guard) -> Iter<'t> {
        Iter::new(self, guard, from, None, prefetched)
    }

    /// Visits the links from `cursor` on, `n` of them and all others with the last one's hash (but
    /// at least one, if there is one), and returns the cursor to go on from; `None` when that was
    /// all. Begins with cursor 0.
    ///
    /// A link that is in the table from the first call of a scan to the last, and isn't
    /// [renamed](Table::rename), is visited exactly once. Between the calls no guard is needed: a
    /// cursor is a hash, of which all smaller ones have been done with.
    pub fn scan(&self, cursor: u64, n: usize, guard: &Guard, mut visit: impl FnMut(NonNull<Link>)) -> Option<u64> {
        let mut last = None;
        let mut links = self.iter_from(cursor, guard);
        let mut visited = 0;
        while let Some(link) = links.next() {
            // SAFETY: reached within the section, as in `find`.
            let hash = unsafe { link.as_ref() }.hash();
            // Links of equal hash have no order that would last until the next call.
            if visited >= n && last.is_some_and(|last| last != hash) {
                links.replace_if_stale();
                return Some(hash.get());
            }
            visited += 1;
            last = Some(hash);
            visit(link);
        }
        None
    }
}

impl<'t> Iter<'t> {
    fn new(
        table: &'t Table,
        guard: &'t Guard,
        from: u64,
        occupancy: Option<OccupancyCursor<'t>>,
        prefetched: Prefetched,
    ) -> Self {
        let mut iter = Self { table, guard, next: null_mut(), from, end: None, occupancy, prefetched };
        iter.enter_bucket();
        iter
    }

    /// Goes on at this hash, which is the end of a bucket; `None` for the end of all.
    pub(super) fn skip_to(&mut self, hash: Option<u64>) {
        self.next = null_mut();
        self.end = hash;
    }

    /// Enters the bucket that `from` falls into, in whatever array is the present one: its chain
    /// holds all links from there to its end.
    fn enter_bucket(&mut self) {
        let array = self.table.inner().array(self.guard);
        let mut from = Hash::from_mixed(self.from);
        if let Some(occupancy) = &mut self.occupancy {
            let bucket = from.bucket(array.scale());
            // SAFETY: the guard lives for `'t`.
            match unsafe { occupancy.step(array, bucket) } {
                NextBucket::At(next) if next == bucket => {}
                NextBucket::At(next) => from = Hash::start_of_bucket(next, array.scale()),
                NextBucket::End => return self.end = None,
            }
        }
        if self.occupancy.is_none() && from.get() >= self.prefetched.until {
            // Twice as many as the last time: most iterations that have come far go on, while those
            // of a scan may be short.
            let batch = (self.prefetched.batch * 2).clamp(2, Array::BATCH);
            // SAFETY: the guard lives for `'t`.
            let until = unsafe { array.prefetch_batch(from, batch) };
            self.prefetched = Prefetched { until, batch };
        }
        self.from = from.get();
        self.next = array.head(from).load().first();
        self.end = from.end_of_bucket(array.scale());
    }

    /// See [`OccupancyCursor::replace_if_stale`].
    fn replace_if_stale(&mut self) {
        if let Some(occupancy) = &mut self.occupancy {
            // SAFETY: the guard lives for `'t`.
            unsafe { occupancy.replace_if_stale(self.table.inner().array(self.guard)) };
        }
    }
}

impl Iterator for Iter<'_> {
    type Item = NonNull<Link>;

    fn next(&mut self) -> Option<NonNull<Link>> {
        loop {
            while let Some(link) = NonNull::new(self.next) {
                // SAFETY: reached within the section, as in `find`.
                let current = unsafe { link.as_ref() };
                let hash = current.hash().get();
                if self.end.is_some_and(|end| hash >= end) {
                    break;
                }
                self.next = current.next();
                // A bucket that has become coarser since begins with links that were seen.
                if hash >= self.from {
                    return Some(link);
                }
            }
            self.next = null_mut();
            // After the last bucket `end` stays `None`.
            let Some(end) = self.end else {
                self.replace_if_stale();
                return None;
            };
            self.from = end;
            self.enter_bucket();
        }
    }
}

impl std::iter::FusedIterator for Iter<'_> {}
