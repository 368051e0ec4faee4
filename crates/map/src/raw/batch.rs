//! Lookups in batches, whose cache misses overlap.

use std::ptr::{NonNull, null_mut};

use relativist_rcu::Guard;

use super::lookup::first_not_smaller;
use super::{Hash, Link, Table};
use relativist_rcu::prefetch::prefetch;

impl Table {
    /// How many lookups [`Table::find_many`] has under way at a time: more than that brings nothing
    /// on processors of today, which follow up to 10 to 20 cache misses at once.
    pub const BATCH: usize = 32;

    /// Finds, for each hash, the link for which `is_match` says yes, and hands it to `found`.
    ///
    /// Each is a lookup as by [`Table::find`], and as good as that: wait-free, and linearizable on
    /// its own, all of them in no particular order. But where `find` waits for memory twice, for
    /// the head and then for the link, here the heads of a whole batch are on their way at once,
    /// then the first links, then the second ones where needed. That pays in tables that are larger
    /// than the cache. Allocates nothing.
    ///
    /// Both functions are told the index of the hash; `found` is called once for each, in their
    /// order.
    pub fn find_many(
        &self,
        hashes: &[Hash],
        mut is_match: impl FnMut(usize, NonNull<Link>) -> bool,
        mut found: impl FnMut(usize, Option<NonNull<Link>>),
        guard: &Guard,
    ) {
        for (batch, hashes) in hashes.chunks(Self::BATCH).enumerate() {
            let firsts = self.first_links(hashes, guard);
            for (n, (&first, &hash)) in firsts.iter().zip(hashes).enumerate() {
                let index = batch * Self::BATCH + n;
                // SAFETY: found so under the guard.
                found(index, unsafe { self.find_from(first, hash, |link| is_match(index, link), guard) });
            }
        }
    }

    /// Brings near what lookups of these hashes will look at, [`Table::BATCH`] of them at most, as
    /// [`Table::find_many`] does. For who needs lookups in a certain order: that of calls of
    /// [`Table::find`] that follow. Takes constant time and changes nothing.
    ///
    /// `near` is shown where lookups will begin, in no certain order: mostly the link that is
    /// wanted. What it is part of may not be near yet.
    pub fn prefetch(&self, hashes: &[Hash], prefetched: impl FnMut(NonNull<Link>), guard: &Guard) {
        self.first_links(hashes, guard).into_iter().filter_map(NonNull::new).for_each(prefetched);
    }

    /// Where the walk for each hash of a batch begins; null where the summary says that it would be
    /// in vain.
    #[inline(always)]
    fn first_links(&self, hashes: &[Hash], guard: &Guard) -> [*mut Link; Self::BATCH] {
        let array = self.inner().array(guard);
        for &hash in hashes {
            prefetch(array.head(hash));
        }
        let mut firsts = [null_mut(); Self::BATCH];
        for (first, &hash) in firsts.iter_mut().zip(hashes) {
            let (head, scale) = array.head_and_scale(hash);
            let head = head.load();
            if head.may_contain(hash, scale) {
                *first = head.first();
                prefetch(*first);
            }
        }
        // One lookup in five finds another link before its own.
        for (first, &hash) in firsts.iter_mut().zip(hashes) {
            // SAFETY: null, or found under the guard.
            *first = unsafe { first_not_smaller(*first, hash) };
            prefetch(*first);
        }
        firsts
    }
}
