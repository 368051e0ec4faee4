//! Empties a table, one chain at a time.

use std::ptr::NonNull;

use relativist_rcu::Guard;

use super::hash::Scale;
use super::link::{AnyLink, links_from};
use super::{Entry, Hash, Table};

impl<L: AnyLink> Table<L> {
    /// Unlinks the links that are in the table, bucket by bucket, and passes them to `unlinked`. If
    /// several threads clear the table, each link is passed to one of them only. The links belong
    /// to the caller now; [`OccupiedEntry::replace`](super::OccupiedEntry::replace) says how to
    /// reclaim them.
    ///
    /// Takes time proportional to buckets and links. Blocks like [`Table::entry`], once for each
    /// bucket that has links. Lookups stop finding all links of a bucket at the same instant,
    /// unless the bucket is being resized. `unlinked` runs outside of locks. If it panics, the
    /// other links of the current bucket are leaked.
    pub fn clear(&self, guard: &Guard, mut unlinked: impl FnMut(NonNull<L>)) {
        let mut links = self.iter(guard);
        while let Some(link) = links.next() {
            // SAFETY: reached within the section.
            let hash = unsafe { link.as_ref() }.hash();
            let scale = self.clear_bucket(hash, guard, &mut unlinked);
            links.skip_to(hash.end_of_bucket(scale));
        }
    }

    /// Clears the bucket of this hash in the current array, and returns the scale of that array.
    fn clear_bucket(&self, hash: Hash, guard: &Guard, unlinked: &mut impl FnMut(NonNull<L>)) -> Scale {
        let Some((chain, scale)) = self.inner().lock_group(hash, guard).unlink_all() else {
            return self.clear_bucket_in_resize(hash, guard, unlinked);
        };
        // SAFETY: the chain was just unlinked, so it does not change, and the guard keeps its links
        // alive at least until they are passed to `unlinked`.
        let links = || unsafe { links_from(chain) }.map(|(link, _)| link);
        self.count_removed(links().count(), guard);
        links().for_each(unlinked);
        scale
    }

    /// Unlinks the links that a lookup would find now, one by one.
    #[cold]
    fn clear_bucket_in_resize(&self, hash: Hash, guard: &Guard, unlinked: &mut impl FnMut(NonNull<L>)) -> Scale {
        let (head, scale) = self.inner().array(guard).head_and_scale(hash);
        // SAFETY: found in the section of the guard.
        let links = unsafe { links_from(head.load().first()) };
        // The chain may continue into later buckets, or begin in an earlier one.
        let here = links.skip_while(|&(_, its)| its < hash).take_while(|(_, its)| its.shares_bucket(hash, scale));
        for (link, its) in here {
            if let Entry::Occupied(entry) = self.entry(its, |found| found == link, guard) {
                unlinked(entry.remove());
            }
        }
        scale
    }
}
