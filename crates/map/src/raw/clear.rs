//! Emptying a table, a chain at a time.

use std::ptr::NonNull;

use relativist_rcu::Guard;

use super::hash::Scale;
use super::link::links_from;
use super::{Entry, Hash, Link, Table};

impl Table {
    /// Unlinks the links that are in the table when it gets to them, bucket by bucket, and hands
    /// them to `unlinked`, each to one caller only if several clear the table. They belong to it
    /// now; as to reclaiming them see [`OccupiedEntry::replace`](super::OccupiedEntry::replace).
    ///
    /// Takes time proportional to buckets and links, or, as [`Table::iter`] does, to links alone.
    /// Blocks as [`Table::entry`] does, once for each bucket that has links: these vanish at once
    /// for lookups, unless the bucket is being resized. `unlinked` runs outside of locks. A link
    /// that is being [renamed](Table::rename) meanwhile may stay. If `unlinked` panics, the other
    /// links of the bucket under way are leaked.
    pub fn clear(&self, guard: &Guard, mut unlinked: impl FnMut(NonNull<Link>)) {
        let mut links = self.iter(guard);
        while let Some(link) = links.next() {
            // SAFETY: reached within the section.
            let hash = unsafe { link.as_ref() }.hash();
            let scale = self.clear_bucket(hash, guard, &mut unlinked);
            links.skip_to(hash.end_of_bucket(scale));
        }
    }

    /// Of the bucket that this hash falls into: in an array of this scale, which may be another one
    /// than a moment ago.
    fn clear_bucket(&self, hash: Hash, guard: &Guard, unlinked: &mut impl FnMut(NonNull<Link>)) -> Scale {
        let Some((chain, scale)) = self.inner().lock_group(hash, guard).unlink_all() else {
            return self.clear_bucket_in_resize(hash, guard, unlinked);
        };
        // SAFETY: unlinked a moment ago, so it doesn't change, and alive for the guard at least
        // until it is handed out.
        let links = || unsafe { links_from(chain) }.map(|(link, _)| link);
        self.count_removed(links().count(), guard);
        links().for_each(unlinked);
        scale
    }

    /// One by one: those that a lookup would find now.
    #[cold]
    fn clear_bucket_in_resize(&self, hash: Hash, guard: &Guard, unlinked: &mut impl FnMut(NonNull<Link>)) -> Scale {
        let (head, scale) = self.inner().array(guard).head_and_scale(hash);
        // SAFETY: found in the section of the guard.
        let links = unsafe { links_from(head.load().first()) };
        // The chain may run on, or begin earlier.
        let here = links.skip_while(|&(_, its)| its < hash).take_while(|(_, its)| its.shares_bucket(hash, scale));
        for (link, its) in here {
            if let Entry::Occupied(entry) = self.entry(its, |found| found == link, guard) {
                unlinked(entry.remove());
            }
        }
        scale
    }
}
