//! Lookups in batches, with overlapping cache misses.

use std::ptr::{NonNull, null_mut};

use relativist_core::prefetch::prefetch;
use relativist_rcu::Guard;

use super::link::AnyLink;
use super::lookup::first_not_smaller;
use super::{Hash, Link, Table};

impl Table {
    /// The number of lookups that [`Table::prefetch`] overlaps. Larger batches gain nothing:
    /// current processors handle 10 to 20 cache misses at a time.
    pub const BATCH: usize = 32;
}

impl<L: AnyLink> Table<L> {
    /// Prefetches what lookups of these hashes will read, for at most [`Table::BATCH`] of them. Use
    /// it before calls of [`Table::find`], each of which would wait for the head and then for the
    /// link: this requests all heads at once, then all first links, then the second ones where
    /// needed. Faster in tables that are larger than the cache. Changes nothing.
    ///
    /// `prefetched` is called with the links at which the lookups will begin, in no particular
    /// order. Most of them are the links that will match. The object around a link may not be in
    /// the cache yet.
    pub fn prefetch(&self, hashes: &[Hash], prefetched: impl FnMut(NonNull<L>), guard: &Guard) {
        self.first_links(hashes, guard).into_iter().filter_map(NonNull::new).for_each(prefetched);
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
