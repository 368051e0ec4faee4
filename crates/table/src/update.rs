//! Updates: an entry holds the lock of its bucket, and inserts, replaces or removes a link.

use std::marker::PhantomData;
use std::ptr::NonNull;

use relativist_rcu::Guard;

use super::group::{Change, LockedGroup, Place, prepare};
use super::link::AnyLink;
use super::{Hash, Link, Table};

/// A place in the table, under the lock of its bucket: either a link that matched, or the place for
/// a new one.
///
/// The lock is released by the method that makes a change, or when the entry is dropped. The lock
/// does not affect lookups. Updates of the same bucket wait, and so does the resizer: an entry that
/// is leaked blocks them for ever. Updates of the table by the same thread panic, whatever their
/// bucket.
pub enum Entry<'t, L: AnyLink = Link> {
    /// A link matched.
    Occupied(OccupiedEntry<'t, L>),
    /// None did.
    Vacant(VacantEntry<'t, L>),
}

/// A link that matched; see [`Entry`].
pub struct OccupiedEntry<'t, L: AnyLink = Link> {
    at: Position<'t, L>,
    found: NonNull<L>,
}

/// The place for a new link with the given hash; see [`Entry`].
pub struct VacantEntry<'t, L: AnyLink = Link> {
    at: Position<'t, L>,
}

struct Position<'t, L: AnyLink> {
    table: &'t Table<L>,
    guard: &'t Guard,
    group: LockedGroup<'t, L>,
    place: Place<L>,
    hash: Hash,
    /// Makes the entry `!Send`, because the thread that took a lock must release it.
    _not_send: PhantomData<*mut ()>,
}

impl<L: AnyLink> Table<L> {
    /// Locks the bucket of the hash and finds the link for which `is_match` returns true.
    ///
    /// Blocks while another update of the same bucket is in progress, or while the resizer changes
    /// it (a few chains at a time; it does not wait for readers meanwhile). Costs a walk over the
    /// bucket's chain up to the place.
    ///
    /// `is_match` runs under the lock, and so does all that the thread does while the entry lives.
    /// It may look up links in this table, and update other tables.
    ///
    /// # Panics
    ///
    /// Panics if this thread already has an entry of this table, or calls this from an `is_match`
    /// of this table: it would wait for itself if it hit the same bucket. Panics if this thread has
    /// entries of 8 other tables. A panic, including one in `is_match`, leaves the table unchanged
    /// and no lock held.
    #[inline(always)]
    pub fn entry<'t>(&'t self, hash: Hash, is_match: impl FnMut(NonNull<L>) -> bool, guard: &'t Guard) -> Entry<'t, L> {
        let hash = L::part_of(hash);
        let group = self.inner().lock_group(hash, guard);
        let place = group.search(hash, is_match);
        let at = Position { table: self, guard, group, place, hash, _not_send: PhantomData };
        match place.found {
            Some(found) => Entry::Occupied(OccupiedEntry { at, found }),
            None => Entry::Vacant(VacantEntry { at }),
        }
    }
}

impl<L: AnyLink> Table<L> {
    /// Unlinks the link for which `is_match` returns true, and returns it; it now belongs to the
    /// caller. [`OccupiedEntry::replace`] says how to reclaim it.
    ///
    /// Wait-free, like [`Table::find`], if there is none; otherwise it blocks like
    /// [`Table::entry`]. `is_match` runs outside of locks.
    #[inline]
    pub fn remove(
        &self,
        hash: Hash,
        mut is_match: impl FnMut(NonNull<L>) -> bool,
        guard: &Guard,
    ) -> Option<NonNull<L>> {
        loop {
            // Looks up without the lock first. This loads what the thread will read when it holds
            // the lock; under the lock, these cache misses would block other updates.
            let found = self.find(hash, &mut is_match, guard)?;
            if let Entry::Occupied(entry) = self.entry(hash, |link| link == found, guard) {
                return Some(entry.remove());
            }
            // Removed or replaced since.
        }
    }
}

impl<L: AnyLink> OccupiedEntry<'_, L> {
    /// Returns the link that matched. It stays linked while the entry lives, and valid while the
    /// guard does.
    pub fn get(&self) -> NonNull<L> {
        self.found
    }

    /// Puts `new` in its place, in one step as lookups see it, and returns the old link, which now
    /// belongs to the caller.
    ///
    /// Lookups may still use the old link until a grace period has passed: reclaim it by
    /// [`relativist_rcu::defer_raw`] or after [`relativist_rcu::wait_for_readers`].
    ///
    /// # Safety
    ///
    /// The same as for [`VacantEntry::insert`].
    ///
    /// # Panics
    ///
    /// Panics if the hash of `new` is not the hash of the entry, or if it is a
    /// [`CompactLink`](super::CompactLink) that is too far from another link of the table.
    #[inline]
    pub unsafe fn replace(self, new: NonNull<L>) -> NonNull<L> {
        let Position { group, place, hash, .. } = self.at;
        prepare(new, hash, place.after);
        group.splice(place, new.as_ptr(), Change::Replace, hash);
        self.found
    }

    /// Unlinks the link and returns it; it now belongs to the caller. [`OccupiedEntry::replace`]
    /// says how to reclaim it.
    #[inline(always)]
    pub fn remove(self) -> NonNull<L> {
        let Position { table, guard, group, place, hash, .. } = self.at;
        group.splice(place, place.after, Change::Remove, hash);
        table.count_removed(1, guard);
        self.found
    }
}

impl<L: AnyLink> VacantEntry<'_, L> {
    /// Inserts `new`. It belongs to the table until it is replaced, removed, or disposed of with
    /// the table.
    ///
    /// # Safety
    ///
    /// `new` is in no table, and none has given it back within the last grace period. It stays
    /// valid and in place while it is linked and, after it was replaced or removed, until a grace
    /// period has passed. The function that was passed to [`Table::new`] can dispose of it, on any
    /// thread.
    ///
    /// # Panics
    ///
    /// Panics if the hash of `new` is not the hash of the entry, or if it is a
    /// [`CompactLink`](super::CompactLink) that is too far from another link of the table.
    #[inline]
    pub unsafe fn insert(self, new: NonNull<L>) {
        let Position { table, guard, group, place, hash, .. } = self.at;
        prepare(new, hash, place.after);
        group.splice(place, new.as_ptr(), Change::Insert, hash);
        table.count_inserted(guard);
    }
}
