//! Removals of single entries, of whole buckets, and of all entries.

use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::mem::{MaybeUninit, needs_drop};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use relativist_rcu::{Guard, clock, defer_raw, read};

use super::iter::PREFETCHED;
use super::relocate::Relocatable;
use super::segment::{Entry, EntryBits, Place, Segment};
use super::table::Table;
use super::word::{Slots, Tag};
use relativist_core::reentrancy;
use relativist_core::sync::{Relaxed, local};
use relativist_table as raw;

local! {
    /// The number of removals and replacements by this thread, in all tables, since it last drove
    /// grace periods.
    static REMOVALS: Cell<usize> = Cell::new(0);
}

/// The number of entries that [`Table::clear`] removes before it counts and retires them.
const CLEARED_BATCH: usize = 256;

/// Entries that are removed, and not yet counted and retired.
struct Removed<'g, K, V> {
    count: usize,
    /// Those that need to be dropped.
    to_drop: Vec<Place<'g, K, V>>,
}

impl<K, V> Default for Removed<'_, K, V> {
    fn default() -> Self {
        Self { count: 0, to_drop: Vec::new() }
    }
}

impl<'g, K, V> Removed<'g, K, V> {
    #[inline(always)]
    fn add(&mut self, segment: &'g Segment<K, V>, slots: Slots) {
        self.count += slots.len();
        if needs_drop::<Entry<K, V>>() {
            self.to_drop.extend(slots.map(|slot| Place { segment, slot }));
        }
    }
}

/// The outcome of [`Table::remove_from_first`].
enum Removal<'g, K, V> {
    Done(Place<'g, K, V>),
    /// The key is not in the table.
    Absent,
    /// The removal has to take the lock.
    NotSimple,
}

impl<K, V, S> Table<K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Removes a key, and returns its entry. Wait-free if the key is absent.
    #[inline]
    pub(crate) fn remove<'g>(
        self: &'g Arc<Self>,
        hash: raw::Hash,
        is_match: impl Fn(&K) -> bool,
        guard: &'g Guard,
    ) -> Option<&'g Entry<K, V>> {
        let removed = match self.remove_from_first(hash, &is_match, guard) {
            Removal::Done(place) => place,
            Removal::Absent => return None,
            Removal::NotSimple => self.remove_locked(hash, is_match, guard)?,
        };
        self.count_removed(1, guard);
        // SAFETY: this thread has just removed it, under the guard.
        Some(unsafe { self.retire(removed, guard) })
    }

    /// Removes a key, if that is simple: it is in the first segment of its bucket, and no other
    /// thread holds the lock.
    #[inline(always)]
    fn remove_from_first<'g>(
        &'g self,
        hash: raw::Hash,
        is_match: impl Fn(&K) -> bool,
        guard: &'g Guard,
    ) -> Removal<'g, K, V> {
        let tag = Tag::of(hash);
        let first = self.array(guard).bucket(hash);
        let word = first.word();
        if let Some(slot) = word.first_match(tag) {
            let place = Place { segment: first, slot };
            // SAFETY: the word was loaded under the guard, and shows the slot as live.
            if is_match(&unsafe { place.entry() }.key) {
                reentrancy::assert_outside(self);
                if first.try_remove(word, slot, guard) {
                    return Removal::Done(place);
                }
            }
        } else if !first.next().may_lead_to(tag) {
            return Removal::Absent;
        }
        Removal::NotSimple
    }

    #[inline(never)]
    fn remove_locked<'g>(
        &'g self,
        hash: raw::Hash,
        is_match: impl Fn(&K) -> bool,
        guard: &'g Guard,
    ) -> Option<Place<'g, K, V>> {
        // This lookup ends removals of absent keys.
        self.find_place(hash, &is_match, guard)?;
        self.help_to_move(guard);
        let mut bucket = self.lock(hash, guard);
        let place = bucket.find(Tag::of(hash), is_match)?;
        bucket.remove(place);
        Some(place)
    }

    /// Removes the entry `old`. Returns false if it is no longer in the table, or no longer at its
    /// address.
    pub(crate) fn remove_exactly(self: &Arc<Self>, hash: raw::Hash, old: &Entry<K, V>, guard: &Guard) -> bool {
        self.help_to_move(guard);
        let mut bucket = self.lock(hash, guard);
        let Some(place) = bucket.find(Tag::of(hash), |key| ptr::eq(key, &old.key)) else { return false };
        bucket.remove(place);
        drop(bucket);
        self.count_removed(1, guard);
        // SAFETY: this thread has just removed it, under the guard.
        unsafe { self.retire(place, guard) };
        true
    }

    /// Removes all entries, one bucket at a time.
    pub(crate) fn clear(self: &Arc<Self>, guard: &Guard) {
        reentrancy::assert_outside(&**self);
        let mut removed = Removed::default();
        let mut cursor = Some(0);
        while let Some(hash) = cursor {
            let last = self.clear_bucket(raw::Hash::from_mixed(hash), &mut removed, guard);
            cursor = last.checked_add(1);
            if removed.count >= CLEARED_BATCH || cursor.is_none() {
                // The table shrinks after the last bucket: until then, a resize would have to move
                // what this is about to remove.
                self.count.add(-(removed.count as isize), || guard.thread_index());
                removed.count = 0;
                for place in removed.to_drop.drain(..) {
                    // SAFETY: this thread has just removed it, under the guard.
                    unsafe { self.retire(place, guard) };
                }
            }
        }
        self.drive_grace_periods(guard);
        self.shrink_if_needed(guard);
    }

    /// Removes the entries of the bucket of a hash. Returns the last hash of the bucket.
    #[inline(always)]
    fn clear_bucket<'g>(&'g self, hash: raw::Hash, removed: &mut Removed<'g, K, V>, guard: &'g Guard) -> u64 {
        let array = self.array(guard);
        let bucket = array.bucket_of(hash);
        array.prefetch_later(bucket + PREFETCHED);
        let first = array.bucket_at(bucket);
        let word = first.word();
        let slots = word.live();
        // Without later segments, one exchange removes all entries. A bucket without entries needs
        // none.
        let is_simple = !word.is_locked_or_moved() && first.later().is_none();
        if is_simple && (slots.is_empty() || first.try_remove_all(word, guard)) {
            removed.add(first, slots);
            return array.hashes_of(bucket).1;
        }
        let (mut bucket, last) = self.lock_with_range(hash, guard);
        bucket.remove_all(|segment, slots| removed.add(segment, slots));
        last
    }

    /// Drops an entry after a grace period, and returns it.
    ///
    /// # Safety
    ///
    /// The caller has removed it from the table, under the guard.
    #[inline(always)]
    pub(super) unsafe fn retire<'g>(&self, place: Place<'g, K, V>, guard: &'g Guard) -> &'g Entry<K, V> {
        self.drive_grace_periods(guard);
        if needs_drop::<Entry<K, V>>() {
            // SAFETY: guaranteed by the caller. The slot is used again when readers have left,
            // maybe before the deferred function runs. So that function gets a copy of the entry.
            unsafe { drop_later(place.bits()) };
        }
        // SAFETY: the slot was live in this section.
        unsafe { place.entry() }
    }

    /// Drives grace periods now and then. Vacated slots are free again after two grace periods, and
    /// removals that defer nothing would not make these begin or end.
    #[inline(always)]
    fn drive_grace_periods(&self, _: &Guard) {
        let is_due = REMOVALS.with(|removals| {
            removals.set(removals.get() + 1);
            // Relaxed: a heuristic.
            let is_due = removals.get() >= self.drive_interval.load(Relaxed);
            if is_due {
                removals.set(0);
            }
            is_due
        });
        if is_due {
            clock::drive();
        }
    }
}

impl<K, V, S> Table<K, V, S> {
    /// Moves the entries of the bucket of this hash to `entries`, and returns the first hash of the
    /// next bucket.
    pub(super) fn take_bucket(&mut self, hash: u64, entries: &mut Vec<Entry<K, V>>) -> Option<u64> {
        let guard = read();
        let (mut bucket, last) = self.lock_with_range(raw::Hash::from_mixed(hash), &guard);
        bucket.remove_all(|segment, slots| {
            // SAFETY: the entry is removed, so no other code drops it. No references to it are
            // left, because this thread has exclusive access to the table.
            entries.extend(slots.map(|slot| unsafe { Place { segment, slot }.bits().assume_init_read() }));
        });
        self.count.add(-(entries.len() as isize), || guard.thread_index());
        last.checked_add(1)
    }
}

/// Drops an entry after a grace period.
///
/// # Safety
///
/// The entry with these bits is not in the table any more, no other code drops it, and it may be
/// dropped on any thread at any later time.
unsafe fn drop_later<K, V>(bits: &EntryBits<K, V>) {
    let mut copy = Box::<EntryBits<K, V>>::new(MaybeUninit::uninit());
    // SAFETY: guaranteed by the caller: the copy is the only one that is dropped.
    unsafe {
        (&raw mut *copy).copy_from_nonoverlapping(bits, 1);
        let entry = NonNull::from(Box::leak(copy)).cast();
        defer_raw(entry, size_of::<Entry<K, V>>(), |entry| drop(Box::from_raw(entry.cast::<Entry<K, V>>().as_ptr())));
    }
}
