//! The table: what it owns, and lookups.

use std::hash::{BuildHasher, Hash};
use std::iter::successors;
use std::mem::needs_drop;
use std::ptr;

use relativist_rcu::{Guard, active_barrier};

use super::array::{Array, AtomicArray};
use super::segment::{Entry, Place, Segment};
use super::word::Tag;
use relativist_core::counter::Counter;
use relativist_core::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Relaxed};
use relativist_table::Policy;
use relativist_table::Stats;
use relativist_table::{self as raw, AllocError};

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
        relativist_core::prefetch::prefetch(ptr::from_ref(self.array(guard).bucket(hash)));
    }
}

impl<K: Hash, V, S: BuildHasher> Table<K, V, S> {
    #[inline(always)]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> raw::Hash {
        raw::Hash::new(self.hasher.hash_one(key))
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
