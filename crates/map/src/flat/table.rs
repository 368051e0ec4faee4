//! The table: what it owns, lookups, and updates of single entries.

use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::iter::successors;
use std::mem::{ManuallyDrop, MaybeUninit, forget, needs_drop};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use relativist_rcu::{Guard, active_barrier, clock, defer_raw, read};

use super::array::{Array, AtomicArray};
use super::bucket::unlock;
use super::iter::PREFETCHED;
use super::relocate::Relocatable;
use super::segment::{Entry, EntryBits, Place, Segment};
use super::word::Tag;
use crate::counter::Counter;
use crate::policy::Policy;
use crate::raw::{self, AllocError};
use crate::reentrancy;
use crate::stats::Stats;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Relaxed, local};

/// The state of a map, which it shares with the resize worker.
pub(crate) struct Table<K, V, S> {
    /// The present array. It is replaced when all its buckets have moved to the next array, and
    /// freed after a grace period.
    pub(super) array: AtomicArray<K, V>,
    pub(super) hasher: S,
    pub(super) policy: Policy,
    pub(super) count: Counter,
    /// A thread drives grace periods after this number of removals and replacements.
    pub(super) drive_interval: AtomicUsize,
    /// Locked to begin a resize.
    pub(super) resizer: Mutex<()>,
    /// Set while the worker has a request to look at this table.
    pub(super) requested: AtomicBool,
    /// The latest grace period that had begun when the present array was published.
    pub(super) published: AtomicU64,
    pub(super) grows: AtomicU64,
    pub(super) shrinks: AtomicU64,
}

// SAFETY: the table shares references to entries, moves their bits, and drops them on any thread.
// This is sound for types that are `Send + Sync`. The hasher moves with the table.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Send> Send for Table<K, V, S> {}
// SAFETY: as above. The hasher is shared with the table.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Sync> Sync for Table<K, V, S> {}

local! {
    /// The number of removals and replacements by this thread, in all tables, since it last drove
    /// grace periods.
    static REMOVALS: Cell<usize> = Cell::new(0);
}

impl<K, V, S> Table<K, V, S> {
    pub(crate) fn new(buckets: usize, policy: Policy, hasher: S) -> Result<Self, AllocError> {
        let array = Array::allocate(super::resize::bits_for(buckets))?;
        let table = Self {
            array: AtomicArray::new(array),
            hasher,
            policy: policy.starting_with(array.len()),
            count: Counter::new(),
            drive_interval: AtomicUsize::new(1),
            resizer: Mutex::new(()),
            requested: AtomicBool::new(false),
            published: AtomicU64::new(0),
            grows: AtomicU64::new(0),
            shrinks: AtomicU64::new(0),
        };
        table.size_changed(array);
        // RCU chooses its barrier here, and not in the first operation on the map.
        active_barrier();
        Ok(table)
    }

    #[inline(always)]
    pub(super) fn array<'g>(&self, _guard: &'g Guard) -> Array<'g, K, V> {
        // SAFETY: an array is freed a grace period after it was replaced, and the guard was taken
        // before this loads it.
        unsafe { self.array.load() }
    }

    /// The size of a segment in memory.
    pub(crate) const BYTES_PER_SEGMENT: usize = size_of::<Segment<K, V>>();

    pub(crate) fn buckets(&self, guard: &Guard) -> usize {
        self.array(guard).len()
    }

    pub(crate) fn is_resizing(&self, guard: &Guard) -> bool {
        self.array(guard).next().is_some()
    }

    /// Returns statistics about the present array. During a resize, entries that have moved count
    /// in the buckets from which they came, or in the first of those that became one.
    pub(crate) fn stats(&self, guard: &Guard) -> Stats {
        let array = self.array(guard);
        let mut stats = Stats::default();
        array.count_entries(|entries| stats.count_chain(entries));
        // Relaxed, both: statistics.
        stats.grows = self.grows.load(Relaxed);
        stats.shrinks = self.shrinks.load(Relaxed);
        stats
    }

    pub(crate) fn len(&self) -> usize {
        self.count.sum()
    }

    /// Finds the entry with this hash for whose key `is_match` returns true. Wait-free.
    #[inline(always)]
    pub(crate) fn find<'g>(
        &'g self,
        hash: raw::Hash,
        mut is_match: impl FnMut(&K) -> bool,
        guard: &'g Guard,
    ) -> Option<&'g Entry<K, V>> {
        let tag = Tag::of(hash);
        let first = self.array(guard).bucket(hash);
        // If the bucket has moved, no slot is live, and the link may lead to each tag.
        if let Some(slot) = first.word().first_match(tag) {
            // SAFETY: the word was loaded under the guard, and shows the slot as live.
            let entry = unsafe { Place { segment: first, slot }.entry() };
            if is_match(&entry.key) {
                return Some(entry);
            }
        } else if !first.next().may_lead_to(tag) {
            return None;
        }
        // SAFETY: the slot was live in this section.
        self.find_place(hash, is_match, guard).map(|place| unsafe { place.entry() })
    }

    /// Finds the place of an entry like [`find`](Self::find), in all segments, and also if the
    /// bucket has moved. Not inlined, so that most lookups take few instructions: then the
    /// processor overlaps the cache misses of more lookups.
    #[inline(never)]
    pub(super) fn find_place<'g>(
        &'g self,
        hash: raw::Hash,
        is_match: impl FnMut(&K) -> bool,
        guard: &'g Guard,
    ) -> Option<Place<'g, K, V>> {
        let mut array = self.array(guard);
        loop {
            let first = array.bucket(hash);
            // The flag *moved* and the tags have to come from the same load. Otherwise the bucket
            // could move, and an update change it in the next array, in between.
            let word = first.word();
            if !word.is_moved() {
                // SAFETY: the word was loaded under the guard.
                return unsafe { first.find(word, Tag::of(hash), is_match) };
            }
            array = array.next().expect("a bucket moves to the next array");
        }
    }

    /// Prefetches the bucket of a hash.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: raw::Hash, guard: &Guard) {
        relativist_rcu::prefetch::prefetch(ptr::from_ref(self.array(guard).bucket(hash)));
    }
}

impl<K: Hash, V, S: BuildHasher> Table<K, V, S> {
    #[inline(always)]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> raw::Hash {
        raw::Hash::new(self.hasher.hash_one(key))
    }
}

/// An entry that is about to be put into the table. Unless it is forgotten, it drops the entry.
///
/// As soon as a word shows the slot with the bits as live, they are shared with other threads.
/// After that the entry must not even be moved as an `Entry`: a `Box` in it would claim that no
/// other thread uses the memory to which it points.
struct Unplaced<K, V>(EntryBits<K, V>);

impl<K, V> Unplaced<K, V> {
    #[inline(always)]
    fn new(entry: Entry<K, V>) -> Self {
        Self(MaybeUninit::new(entry))
    }

    #[inline(always)]
    fn get(&self) -> &Entry<K, V> {
        // SAFETY: initialised in `new`.
        unsafe { self.0.assume_init_ref() }
    }

    /// Returns the entry. No live slot has its bits.
    fn into_entry(self) -> Entry<K, V> {
        let this = ManuallyDrop::new(self);
        // SAFETY: initialised in `new`, and read once, because `this` is not dropped.
        unsafe { this.0.assume_init_read() }
    }
}

impl<K, V> Drop for Unplaced<K, V> {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`. A thread that has put the bits into a live slot forgets
        // this value, so it drops no entry of the table.
        unsafe { self.0.assume_init_drop() };
    }
}

/// The result of [`Table::put_new`]: the entry that is now in the table. Or the one that was in it,
/// and the new one.
pub(super) type PutNew<'g, K, V, New = Entry<K, V>> = Result<&'g Entry<K, V>, (&'g Entry<K, V>, New)>;

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
    fn add(&mut self, place: Place<'g, K, V>) {
        self.count += 1;
        if needs_drop::<Entry<K, V>>() {
            self.to_drop.push(place);
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
    /// Inserts an entry, and returns the one with the same key that it replaces. Returns the new
    /// entry as the error if there is no memory for another segment.
    #[inline(always)]
    pub(crate) fn put<'g>(
        self: &'g Arc<Self>,
        hash: raw::Hash,
        entry: Entry<K, V>,
        guard: &'g Guard,
    ) -> Result<Option<&'g Entry<K, V>>, Entry<K, V>> {
        let entry = Unplaced::new(entry);
        if self.insert_in_first(hash, &entry.0, guard).is_none() {
            return self.put_slowly(hash, entry, guard);
        }
        forget(entry);
        self.count_inserted(guard);
        Ok(None)
    }

    /// Inserts an entry, if that is simple: the first segment of its bucket has a free slot, no
    /// entry of the bucket has its tag, and no other thread holds the lock. No code of the caller
    /// runs under the lock.
    #[inline(always)]
    fn insert_in_first<'g>(
        &'g self,
        hash: raw::Hash,
        entry: &EntryBits<K, V>,
        guard: &'g Guard,
    ) -> Option<Place<'g, K, V>> {
        reentrancy::assert_outside(self);
        let tag = Tag::of(hash);
        let first = self.array(guard).bucket(hash);
        let word = first.word();
        if word.is_locked_or_moved() || word.first_match(tag).is_some() {
            return None;
        }
        let (with_free, slot) = word.with_free_slot()?;
        if !first.try_lock(word) {
            return None;
        }
        if first.next().may_lead_to(tag) {
            unlock(first, word);
            return None;
        }
        let place = Place { segment: first, slot };
        // SAFETY: under the lock, and the slot is free.
        unsafe { place.write(entry) };
        unlock(first, with_free.with_tag(slot, tag));
        Some(place)
    }

    /// Replaces the entry of the same key, if that is simple: it is in the first segment of its
    /// bucket, which has a free slot, and no other thread holds the lock. Returns the old entry.
    #[inline(always)]
    fn replace_in_first<'g>(
        &'g self,
        hash: raw::Hash,
        entry: &Unplaced<K, V>,
        guard: &'g Guard,
    ) -> Option<Place<'g, K, V>> {
        let tag = Tag::of(hash);
        let first = self.array(guard).bucket(hash);
        let word = first.word();
        if word.is_locked_or_moved() {
            return None;
        }
        let old = Place { segment: first, slot: word.first_match(tag)? };
        let (with_free, slot) = word.with_free_slot()?;
        let mut bucket = self.lock_unchanged(first, word, guard)?;
        // SAFETY: live under the lock.
        if unsafe { old.entry() }.key != entry.get().key {
            return None;
        }
        // SAFETY: under the lock, and the slot is free.
        unsafe { Place { segment: first, slot }.write(&entry.0) };
        bucket.word = with_free.with_tag(slot, tag).with_vacated(old.slot, clock::begun(guard));
        Some(old)
    }

    #[inline(never)]
    fn put_slowly<'g>(
        self: &'g Arc<Self>,
        hash: raw::Hash,
        entry: Unplaced<K, V>,
        guard: &'g Guard,
    ) -> Result<Option<&'g Entry<K, V>>, Entry<K, V>> {
        if let Some(old) = self.replace_in_first(hash, &entry, guard) {
            forget(entry);
            // SAFETY: this thread has just replaced it, under the guard.
            return Ok(Some(unsafe { self.retire(old, guard) }));
        }
        let tag = Tag::of(hash);
        self.help_to_move(guard);
        // Declared after `entry`: if `Eq` panics, the bucket is unlocked before the entry is
        // dropped, whose destructor may use the table.
        let mut bucket = self.lock(hash, guard);
        if let Some(old) = bucket.find(tag, |key| *key == entry.get().key) {
            if bucket.replace(old, tag, &entry.0).is_none() {
                return Err(entry.into_entry());
            }
            drop(bucket);
            forget(entry);
            // SAFETY: this thread has just replaced it, under the guard.
            return Ok(Some(unsafe { self.retire(old, guard) }));
        }
        if bucket.insert(tag, &entry.0).is_none() {
            return Err(entry.into_entry());
        }
        drop(bucket);
        forget(entry);
        self.count_inserted(guard);
        Ok(None)
    }

    /// Inserts an entry if its key is not in the table. Otherwise returns the entry in the table,
    /// and the new one.
    #[inline]
    pub(crate) fn put_new<'g>(
        self: &'g Arc<Self>,
        hash: raw::Hash,
        entry: Entry<K, V>,
        guard: &'g Guard,
    ) -> PutNew<'g, K, V> {
        let entry = Unplaced::new(entry);
        if let Some(place) = self.insert_in_first(hash, &entry.0, guard) {
            forget(entry);
            self.count_inserted(guard);
            // SAFETY: this thread has made the slot live, in this section.
            return Ok(unsafe { place.entry() });
        }
        let tag = Tag::of(hash);
        self.help_to_move(guard);
        let mut bucket = self.lock(hash, guard); // declared after `entry`, as in `put`
        if let Some(current) = bucket.find(tag, |key| *key == entry.get().key) {
            // SAFETY: live under the lock. So its slot is not used again in this section.
            return Err((unsafe { current.entry() }, entry.into_entry()));
        }
        let Some(place) = bucket.insert(tag, &entry.0) else { Segment::<K, V>::abort() };
        drop(bucket);
        forget(entry);
        self.count_inserted(guard);
        // SAFETY: this thread has made the slot live, in this section.
        Ok(unsafe { place.entry() })
    }

    /// Replaces the entry `old`. Returns the new entry as the error if `old` is no longer in the
    /// table, or no longer at its address.
    pub(crate) fn replace<'g>(
        self: &'g Arc<Self>,
        hash: raw::Hash,
        old: &'g Entry<K, V>,
        entry: Entry<K, V>,
        guard: &'g Guard,
    ) -> Result<&'g Entry<K, V>, Entry<K, V>> {
        let entry = Unplaced::new(entry);
        let tag = Tag::of(hash);
        self.help_to_move(guard);
        let mut bucket = self.lock(hash, guard);
        let Some(old) = bucket.find(tag, |key| ptr::eq(key, &old.key)) else { return Err(entry.into_entry()) };
        let Some(place) = bucket.replace(old, tag, &entry.0) else { Segment::<K, V>::abort() };
        drop(bucket);
        forget(entry);
        // SAFETY: this thread has replaced the old entry, and made the new one live, in this
        // section.
        unsafe {
            self.retire(old, guard);
            Ok(place.entry())
        }
    }

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
                self.count.add(-(removed.count as isize), guard);
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
            slots.for_each(|slot| removed.add(Place { segment: first, slot }));
            return array.hashes_of(bucket).1;
        }
        let (mut bucket, last) = self.lock_with_range(hash, guard);
        bucket.remove_all(|place| removed.add(place));
        last
    }

    /// Drops an entry after a grace period, and returns it.
    ///
    /// # Safety
    ///
    /// The caller has removed it from the table, under the guard.
    #[inline(always)]
    unsafe fn retire<'g>(&self, place: Place<'g, K, V>, guard: &'g Guard) -> &'g Entry<K, V> {
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
        // SAFETY: the entry is removed, so no other code drops it. No references to it are left,
        // because this thread has exclusive access to the table.
        bucket.remove_all(|place| entries.push(unsafe { place.bits().assume_init_read() }));
        self.count.add(-(entries.len() as isize), &guard);
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

impl<K, V, S> Drop for Table<K, V, S> {
    fn drop(&mut self) {
        // SAFETY: no thread uses the table any more: lookups and updates borrow the map, and the
        // worker holds an `Arc` of the table while it uses it.
        unsafe { free_all(self.array.load()) };
    }
}

/// Drops all entries of an array and of the arrays that follow it, and frees the arrays.
///
/// If the destructor of an entry panics, the other entries are dropped before the panic continues.
/// A second panic meanwhile aborts, as in the destructors of std's collections.
///
/// # Safety
///
/// No thread uses the arrays any more.
unsafe fn free_all<K, V>(array: Array<'_, K, V>) {
    let arrays = successors(Some(array), Array::next).filter(|_| needs_drop::<Entry<K, V>>());
    let buckets = arrays.flat_map(|array| (0..array.len()).map(move |bucket| array.bucket_at(bucket)));
    let in_place = buckets.filter(|first| !first.word().is_moved());
    // SAFETY: guaranteed by the caller.
    let segments = in_place.flat_map(|first| successors(Some(first), |segment| unsafe { segment.next().segment() }));
    let places = segments.flat_map(|segment| segment.word().live().map(move |slot| Place { segment, slot }));
    Contents { places, array }.drop_entries();
}

/// The entries and arrays that are left when a table is dropped. Its destructor frees the arrays,
/// even if the destructor of an entry panics.
struct Contents<'a, K, V, P: Iterator<Item = Place<'a, K, V>>> {
    /// The entries of buckets that have not moved. (Those that have moved contain copies.)
    places: P,
    array: Array<'a, K, V>,
}

impl<'a, K, V, P: Iterator<Item = Place<'a, K, V>>> Contents<'a, K, V, P> {
    fn drop_entries(&mut self) {
        for place in &mut self.places {
            // SAFETY: guaranteed by the caller of `free_all`; each place is returned once.
            unsafe { place.drop_in_place() };
        }
    }
}

impl<'a, K, V, P: Iterator<Item = Place<'a, K, V>>> Drop for Contents<'a, K, V, P> {
    fn drop(&mut self) {
        // If a destructor has panicked, some entries are left.
        self.drop_entries();
        let mut array = Some(self.array);
        while let Some(this) = array {
            array = this.next();
            // SAFETY: guaranteed by the caller of `free_all`. Each chain is freed once: `free`
            // frees those of buckets that have moved.
            unsafe {
                this.chains_in_place().for_each(|chain| Segment::free_chain(chain));
                this.free();
            }
        }
    }
}
