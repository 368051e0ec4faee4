//! Lookups in batches, with overlapping cache misses.

use std::ptr::{NonNull, null_mut};

use relativist_core::prefetch::{prefetch, prefetch_for_write};
use relativist_rcu::Guard;

use super::array::Array;
use super::link::AnyLink;
use super::lookup::{first_not_smaller, walk};
use super::{Hash, Link, Table};

impl Table {
    /// The number of lookups that [`Table::find_many`] overlaps. Larger batches gain nothing:
    /// current processors handle 10 to 20 cache misses at a time.
    pub const BATCH: usize = 32;
}

impl<L: AnyLink> Table<L> {
    /// Finds, for each hash, the link for which `is_match` returns true, and passes it to `found`.
    ///
    /// Each lookup is wait-free and linearizable on its own, like [`Table::find`]. The lookups of a
    /// batch take place in no particular order. `find` waits for memory twice, for the head and
    /// then for the link. `find_many` requests the heads of a whole batch at once, then all first
    /// links, then the second ones where needed. This is faster in tables that are larger than the
    /// cache. It allocates nothing.
    ///
    /// Both functions get the index of the hash; `found` is called once for each hash, in order.
    pub fn find_many(
        &self,
        hashes: &[Hash],
        mut is_match: impl FnMut(usize, NonNull<L>) -> bool,
        mut found: impl FnMut(usize, Option<NonNull<L>>),
        guard: &Guard,
    ) {
        for (batch, hashes) in hashes.chunks(Table::<Link>::BATCH).enumerate() {
            let firsts = self.first_links(hashes, guard);
            for (n, (&first, &hash)) in firsts.iter().zip(hashes).enumerate() {
                let hash = L::part_of(hash);
                let index = batch * Table::<Link>::BATCH + n;
                // SAFETY: found by `first_links` under the guard.
                found(index, unsafe { walk(first, hash, |link| is_match(index, link)) });
            }
        }
    }

    /// Prefetches what lookups of these hashes will read, for at most [`Table::BATCH`] of them, as
    /// [`Table::find_many`] does. Use it before calls of [`Table::find`], if the keys have to be
    /// looked up in a certain order. Takes constant time and changes nothing.
    ///
    /// `prefetched` is called with the links at which the lookups will begin, in no particular
    /// order. Most of them are the links that will match. The object around a link may not be in
    /// the cache yet.
    pub fn prefetch(&self, hashes: &[Hash], prefetched: impl FnMut(NonNull<L>), guard: &Guard) {
        self.first_links(hashes, guard).into_iter().filter_map(NonNull::new).for_each(prefetched);
    }

    /// Prefetches the head that an update of this hash will write. Unlike the other prefetches, it
    /// never waits for memory.
    #[inline(always)]
    pub fn prefetch_head(&self, hash: Hash, guard: &Guard) {
        prefetch_for_write(self.inner().array(guard).head(hash));
    }

    /// Prefetches the first link of a bucket whose head has been prefetched before.
    #[inline(always)]
    pub fn prefetch_first_link(&self, hash: Hash, guard: &Guard) {
        prefetch(self.inner().array(guard).head(hash).load().first::<L>());
    }

    /// Prefetches what updates of these hashes will read and write, for at most [`Table::BATCH`] of
    /// them.
    pub fn prefetch_for_updates(&self, hashes: &[Hash], guard: &Guard) {
        // SAFETY: in a read section.
        unsafe { self.inner().array(guard).prefetch_for_updates::<L>(hashes) };
    }

    /// Returns the link at which the walk for each hash of a batch begins; null if the summary
    /// shows that no link matches.
    #[inline(always)]
    fn first_links(&self, hashes: &[Hash], guard: &Guard) -> [*mut L; Table::<Link>::BATCH] {
        let array = self.inner().array(guard);
        for &hash in hashes {
            prefetch(array.head(hash));
        }
        let mut firsts = [null_mut::<L>(); Table::<Link>::BATCH];
        for (first, &hash) in firsts.iter_mut().zip(hashes) {
            let hash = L::part_of(hash);
            let (head, scale) = array.head_and_scale(hash);
            let head = head.load();
            if head.may_contain(hash, scale) {
                *first = head.first();
                prefetch(*first);
            }
        }
        // One lookup in five finds another link before the one that matches.
        for (first, &hash) in firsts.iter_mut().zip(hashes) {
            let hash = L::part_of(hash);
            // SAFETY: null, or found under the guard.
            *first = unsafe { first_not_smaller(*first, hash) };
            prefetch(*first);
        }
        firsts
    }
}

impl Array<'_> {
    /// See [`Table::prefetch_for_updates`].
    ///
    /// # Safety
    ///
    /// The caller is in a read section, or no other thread uses the table.
    pub(super) unsafe fn prefetch_for_updates<L: AnyLink>(self, hashes: &[Hash]) {
        for &hash in hashes {
            prefetch_for_write(self.head(hash));
        }
        let mut firsts = [null_mut::<L>(); Table::<Link>::BATCH];
        for (first, &hash) in firsts.iter_mut().zip(hashes) {
            let (head, scale) = self.head_and_scale(hash);
            let head = head.load();
            if !head.is_after(hash, scale) {
                *first = head.first();
                prefetch(*first);
            }
        }
        for (first, &hash) in firsts.iter_mut().zip(hashes) {
            // SAFETY: null, or a first link, which the caller guarantees to be alive.
            prefetch(unsafe { first_not_smaller(*first, hash) });
        }
    }
}
