//! Emptying a table, a chain at a time.

use std::ptr::NonNull;

use relativist_rcu::Guard;

use super::array::Array;
use super::hash::Scale;
use super::link::links_from;
use super::{Entry, Hash, Link, Table};

impl Table {
    /// Unlinks the links that are in the table when it gets to them, in the order of their hashes, and hands them to `unlinked`,
    /// each to one caller only if several clear the table. They belong to it now; as to reclaiming them see
    /// [`OccupiedEntry::replace`](super::OccupiedEntry::replace).
    ///
    /// Takes time proportional to buckets and links. Blocks as [`Table::entry`] does, once for each bucket that has links: these vanish
    /// at once for lookups, unless the bucket is being resized. `unlinked` runs outside of locks. A link that is being
    /// [renamed](Table::rename) meanwhile may stay.
    pub fn clear(&self, guard: &Guard, mut unlinked: impl FnMut(NonNull<Link>)) {
        let mut from = Some(0);
        let mut near = 0;
        while let Some(first) = from {
            let array = self.core().array(guard);
            let hash = Hash::from_mixed(first);
            if first >= near {
                // SAFETY: in the section of the guard.
                near = unsafe { array.bring_batch_near(hash, Array::BATCH) };
            }
            let is_empty = array.head(hash).load().first().is_null();
            let scale = if is_empty { array.scale() } else { self.clear_bucket(hash, guard, &mut unlinked) };
            from = hash.end_of_bucket(scale);
        }
    }

    /// Of the bucket that this hash falls into: in an array of this scale, which may be another one than a moment ago.
    fn clear_bucket(&self, hash: Hash, guard: &Guard, unlinked: &mut impl FnMut(NonNull<Link>)) -> Scale {
        let Some((chain, scale)) = self.core().lock_group(hash, guard).unlink_all() else {
            return self.clear_bucket_in_transition(hash, guard, unlinked);
        };
        // SAFETY: unlinked a moment ago, so it doesn't change, and alive for the guard at least until it is handed out.
        let count = unsafe { links_from(chain) }.map(|(link, _)| unlinked(link)).count();
        self.count_removed(count, guard);
        scale
    }

    /// One by one, by way of whatever array is the present one.
    #[cold]
    fn clear_bucket_in_transition(&self, hash: Hash, guard: &Guard, unlinked: &mut impl FnMut(NonNull<Link>)) -> Scale {
        loop {
            let (head, scale) = self.core().array(guard).head_and_scale(hash);
            let first = head.load().first();
            // SAFETY: found in the section of the guard.
            let mut links = unsafe { links_from(first) };
            // The chain may run on, or begin earlier.
            let here = links.find(|(_, its)| *its >= hash).filter(|(_, its)| its.shares_bucket(hash, scale));
            let Some((link, its)) = here else { return scale };
            if let Entry::Occupied(entry) = self.entry(its, |found| found == link, guard) {
                unlinked(entry.remove());
            }
        }
    }
}
