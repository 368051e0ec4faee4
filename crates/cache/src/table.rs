//! The table of a shard: buckets of pointers to nodes, as in the maps' [bucket
//! table](relativist_bucket), but simpler: all updates run under the lock of the shard.
//!
//! **Lookups** take no lock. They load the word, and then the slots that have the tag. As in the
//! boxed slots of the maps' table, *the pointer is the truth*: an entry is in the table exactly
//! while a slot leads to it. The tag is set before the pointer, and cleared after it. So tags are
//! hints that are never missing. A lookup with an older word finds no pointer in the slot, or the
//! entry that is there now: if its key is the wanted one, it is in the table, and later lookups
//! find its tag, too. A replacement writes its slot in one step, and entries never change their
//! slots.
//!
//! **Resizing** happens in steps, so that no update waits for all entries of a large table. Each
//! update moves the entries of some buckets to the new array, in the order of hashes. A *mark* says
//! how far this has come: entries with hashes below it are in the new array, all others in the old
//! one. Buckets that were moved do not change in the old array any more. A lookup that still uses
//! one loaded the mark before it was raised, so what it finds was true during the lookup. Later
//! segments of moved buckets, and then the old array, are freed after a grace period.

use std::marker::PhantomData;
use std::ptr::NonNull;

use relativist_bucket::Hash;
use relativist_core::hint::cold_path;
use relativist_core::prefetch::prefetch;
use relativist_core::sync::{Acquire, AtomicPtr, Relaxed, Release};
use relativist_rcu::Guard;

use super::array::{Array, MAX_BITS, MIN_BITS, Owned};

/// The mean number of entries of a bucket above which the table grows.
const MAX_LOAD: usize = if cfg!(relativist_loom) { 1 } else { 5 };

/// How many units of a table one update moves. (A unit is a bucket of the array that has fewer.) A
/// table that grows is moved long before it would grow again.
const STEP: u64 = if cfg!(relativist_loom) { 1 } else { 16 };

/// The table of a shard: an [`Array`]. Updates need the lock of the shard.
pub(super) struct Table<N>(AtomicPtr<u8>, PhantomData<Owned<N>>);

// SAFETY: nodes are shared with, moved to and dropped on any thread.
unsafe impl<N: Send + Sync> Send for Table<N> {}
// SAFETY: as above.
unsafe impl<N: Send + Sync> Sync for Table<N> {}

impl<N> Table<N> {
    /// Creates an empty table. `None` if there is no memory.
    pub(super) fn new() -> Option<Self> {
        let array = Array::<N>::allocate(MIN_BITS)?;
        Some(Self(AtomicPtr::new(array.raw().as_ptr()), PhantomData))
    }

    fn bits_for(entries: usize) -> u32 {
        let is_enough = |&bits: &u32| entries <= Self::room(bits);
        (MIN_BITS..=MAX_BITS).find(is_enough).unwrap_or(MAX_BITS + 1)
    }

    fn room(bits: u32) -> usize {
        MAX_LOAD << bits
    }

    /// Returns the array for a lookup.
    #[inline(always)]
    pub(super) fn array<'g>(&'g self, _: &'g Guard) -> Array<'g, N> {
        // Acquire: pairs with the Release in `publish`: the array is seen as it was filled.
        // litmus: cache-array
        // SAFETY: freed a grace period after it was replaced.
        unsafe { Array::from_raw(self.0.load(Acquire)) }
    }

    /// Returns the array for an update.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard during `'l`.
    #[inline(always)]
    pub(super) unsafe fn locked<'l>(&self) -> Array<'l, N>
    where
        N: 'l,
    {
        // Relaxed: only the holder of the lock replaces it.
        // SAFETY: as above.
        unsafe { Array::from_raw(self.0.load(Relaxed)) }
    }

    /// Resizes the table if `len` entries need another size, or goes on with that. If there is no
    /// memory for another array, changes nothing. `hash` returns the hash of an entry, and
    /// `prefetch_hash` prefetches it. Moves a bounded number of buckets.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard.
    #[inline(always)]
    pub(super) unsafe fn fit(
        &self,
        len: usize,
        hash: impl Fn(NonNull<N>) -> Hash,
        prefetch_hash: impl Fn(NonNull<N>),
        guard: &Guard,
    ) {
        // SAFETY: guaranteed by the caller.
        let array: Array<'_, N> = unsafe { self.locked() };
        let room = Self::room(array.bits());
        let is_sparse = len < room / 8 && array.bits() > MIN_BITS;
        if array.is_filling() || len > room || is_sparse {
            cold_path();
            // A unit of a much smaller table would have too many buckets.
            let wanted = if is_sparse { (room / 8).max(len * 2) } else { room * 2 };
            // SAFETY: guaranteed by the caller.
            if array.is_filling() || unsafe { self.begin(array, wanted) } {
                // SAFETY: as above.
                unsafe { self.step(hash, prefetch_hash, guard) };
            }
        }
    }

    /// Begins to fill another array, which has room for `entries`. Returns false if there is none.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard, and this is the array of the table.
    #[cold]
    unsafe fn begin(&self, source: Array<'_, N>, entries: usize) -> bool {
        let bits = Self::bits_for(entries);
        let Some(array) = (bits != source.bits()).then(|| Array::allocate(bits)).flatten() else { return false };
        // SAFETY: this thread alone has the new array. They are freed together, or the source
        // after it was emptied.
        let array = unsafe { array.filled_from(source) };
        // Release: pairs with the Acquire in `array`.
        // litmus: cache-array
        self.0.store(array.raw().as_ptr(), Release);
        true
    }

    /// Moves the entries of some buckets to the array that is being filled.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard, and the array is being filled.
    #[cold]
    unsafe fn step(&self, hash: impl Fn(NonNull<N>) -> Hash, prefetch_hash: impl Fn(NonNull<N>), guard: &Guard) {
        // SAFETY: guaranteed by the caller.
        let array: Array<'_, N> = unsafe { self.locked() };
        let (source, new, moved) = (array.source(), array.without_flag(), array.moved());
        let units = source.len().min(new.len()) as u64;
        // Relaxed: written under the lock only.
        let from = moved.load(Relaxed);
        let to = (from + STEP).min(units);
        let buckets = array.source_bucket(from)..array.source_bucket(to);
        let live = || source.nodes(buckets.clone());
        // In three rounds, so that no step of a round waits for memory.
        live().for_each(|node| prefetch(node.as_ptr()));
        live().for_each(prefetch_hash);
        // SAFETY: guaranteed by the caller.
        live().for_each(|node| unsafe { new.insert(hash(node), node) });
        // Release: pairs with the Acquire in `moved_or_source`.
        // litmus: cache-moved
        moved.store(to, Release);
        // In each step, so that the last one need not visit all buckets.
        // SAFETY: lookups that begin later do not use these buckets, which no other step moves.
        buckets.for_each(|bucket| unsafe { source.retire_later(bucket, guard) });
        if to == units {
            // SAFETY: guaranteed by the caller. Nothing is in the source alone, whose later
            // segments are retired.
            unsafe { self.publish(new, source, guard, |raw| Array::<N>::from_raw(raw.as_ptr().cast()).free_memory()) };
        }
    }

    /// Empties the table. Returns false if there is no memory for an empty array, and changes
    /// nothing then.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard.
    pub(super) unsafe fn clear(&self, guard: &Guard) -> bool {
        let Some(empty) = Array::allocate(MIN_BITS) else { return false };
        // SAFETY: guaranteed by the caller.
        unsafe { self.publish(empty, self.locked(), guard, |raw| Array::<N>::from_raw(raw.as_ptr().cast()).free()) };
        true
    }

    /// Replaces the array of the table by `new`, and passes `old` to `free` after a grace period.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard. The table has no other use for the old array, which
    /// `free` frees.
    unsafe fn publish(&self, new: Array<'_, N>, old: Array<'_, N>, guard: &Guard, free: unsafe fn(NonNull<()>)) {
        // Release: pairs with the Acquire in `array`.
        // litmus: cache-array
        self.0.store(new.raw().as_ptr(), Release);
        // SAFETY: later lookups do not find the old array. It has no references to types with a
        // lifetime that could end before: its nodes are not dropped.
        unsafe { guard.defer_raw(old.raw().cast(), old.bytes(), free) };
    }

    /// Passes all entries to `removed`. The table is not used again.
    pub(super) fn drain(&mut self, mut removed: impl FnMut(NonNull<N>)) {
        // SAFETY: this thread alone uses the table.
        let array: Array<'_, N> = unsafe { self.locked() };
        let mut next = Some(0);
        while let Some(from) = next {
            let bucket = array.bucket_at(from);
            bucket.nodes().for_each(&mut removed);
            next = bucket.next;
        }
    }
}

impl<N> Drop for Table<N> {
    fn drop(&mut self) {
        // SAFETY: this thread alone uses the table.
        unsafe { self.locked().free() };
    }
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use std::cell::Cell;

    use relativist_rcu::read;

    use super::*;

    fn hash(number: u64) -> Hash {
        Hash::new(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Checks that lookups and walks find exactly these entries.
    fn check(table: &Table<u64>, nodes: &[u64]) {
        let guard = read();
        let array = table.array(&guard);
        for node in nodes {
            assert_eq!(array.find(hash(*node), |found| found == node), Some(NonNull::from(node)));
        }
        let (mut next, mut walked) = (Some(0), 0);
        while let Some(from) = next {
            let bucket = array.bucket_at(from);
            assert!(bucket.begins);
            walked += bucket.nodes().count();
            next = bucket.next;
        }
        assert_eq!(walked, nodes.len());
    }

    /// No update moves more than some buckets, and nothing is lost between the steps.
    #[test]
    fn tables_are_resized_in_steps() {
        let nodes: Vec<u64> = (0..20_000).collect();
        let table = Table::new().unwrap();
        let moved = Cell::new(0);
        let fit = |len: usize| {
            moved.set(0);
            let hash = |node: NonNull<u64>| {
                moved.set(moved.get() + 1);
                // SAFETY: all nodes live until the end of the test.
                hash(unsafe { *node.as_ref() })
            };
            // SAFETY: no other thread has the table.
            unsafe { table.fit(len, hash, |_| {}, &read()) };
            assert!(moved.get() <= 2 * MAX_LOAD * STEP as usize, "{} entries were moved at once", moved.get());
        };
        for (before, node) in nodes.iter().enumerate() {
            // SAFETY: as above. The key is new.
            unsafe { table.locked().insert(hash(*node), NonNull::from(node)) };
            fit(before + 1);
            if before % 400 == 0 {
                check(&table, &nodes[..=before]);
            }
        }
        for (after, node) in nodes.iter().enumerate().rev() {
            // SAFETY: as above.
            assert!(unsafe { table.locked().remove(hash(*node), NonNull::from(node)) });
            fit(after);
            if after % 400 == 0 {
                check(&table, &nodes[..after]);
            }
        }
        assert_eq!(table.array(&read()).bits(), MIN_BITS);
    }

    /// No update walks through many buckets, even if the table is much too large.
    #[test]
    fn empty_tables_shrink_in_steps() {
        let table = Table::<u64>::new().unwrap();
        let nodes: Vec<u64> = (0..20_000).collect();
        // SAFETY: no other thread has the table, and nodes live until the end of the test.
        let fit = |len| unsafe { table.fit(len, |node| hash(*node.as_ref()), |_| {}, &read()) };
        for (before, node) in nodes.iter().enumerate() {
            // SAFETY: as above. The key is new.
            unsafe { table.locked().insert(hash(*node), NonNull::from(node)) };
            fit(before + 1);
        }
        let buckets = table.array(&read()).len();
        for node in &nodes {
            // SAFETY: as above.
            assert!(unsafe { table.locked().remove(hash(*node), NonNull::from(node)) });
        }
        let is_large = |_: &u64| table.array(&read()).bits() > MIN_BITS;
        let steps = (1..).take_while(is_large).inspect(|_| fit(0)).last().unwrap();
        assert!(steps >= buckets as u64 / (8 * STEP), "{buckets} buckets in {steps} steps");
    }

    /// Both arrays are freed: sanitizers find it.
    #[test]
    fn tables_are_cleared_and_dropped_during_a_resize() {
        let nodes: Vec<u64> = (0..2_000).collect();
        // SAFETY: nodes in the table live until the end of the test.
        let hash_of = |node: NonNull<u64>| hash(unsafe { *node.as_ref() });
        for is_cleared in [true, false] {
            let table = Table::new().unwrap();
            for (before, node) in nodes.iter().enumerate() {
                // SAFETY: no other thread has the table, and the key is new.
                unsafe {
                    table.locked().insert(hash(*node), NonNull::from(node));
                    table.fit(before + 1, hash_of, |_| {}, &read());
                }
                if before > 1_000 && table.array(&read()).is_filling() {
                    break;
                }
            }
            assert!(table.array(&read()).is_filling());
            if is_cleared {
                // SAFETY: as above.
                assert!(unsafe { table.clear(&read()) });
                check(&table, &[]);
            }
        }
        relativist_rcu::barrier();
    }
}
