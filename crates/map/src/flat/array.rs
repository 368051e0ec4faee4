//! The array of first segments, and its place in a resize.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::sync::PoisonError;

use relativist_core::prefetch::prefetch;
use relativist_rcu::{defer_raw, reclaim_soon};

use super::resize::MAX_SHRINK;
use super::segment::{Link, Place, Segment};
use super::word::{Tag, Word};
use relativist_core::memory;
use relativist_core::sync::{AcqRel, Acquire, AtomicBits, AtomicPtr, AtomicUsize, Mutex, Relaxed, Release};
use relativist_table::{AllocError, Hash};

/// The footer of an array, which comes after its segments in memory.
///
/// Lookups need it only for buckets that have moved. All that other lookups need is the pointer to
/// the segments, whose lowest bits say by how much to shift a hash.
struct Footer<K, V> {
    /// The next array, to which the entries are being moved or have been; tagged like
    /// [`AtomicArray`]. Null before that.
    next: AtomicPtr<Segment<K, V>>,
    /// The number of chunks of buckets that threads have begun to move, or more when all are taken.
    claimed: AtomicUsize,
    /// The number of chunks that have moved.
    moved: AtomicBits,
    /// The later segments of buckets that have moved. They are freed with the array.
    chains: Mutex<Vec<ChainOfMoved<K, V>>>,
}

/// The link of a bucket that has moved.
struct ChainOfMoved<K, V>(Link<K, V>);

// SAFETY: only the thread that frees the array uses it, and drops no entries.
unsafe impl<K, V> Send for ChainOfMoved<K, V> {}

/// An array that is alive during `'a`.
pub(super) struct Array<'a, K, V> {
    segments: NonNull<Segment<K, V>>,
    /// The number of bits of a hash that do not choose the bucket: all but the highest.
    shift: u32,
    alive: PhantomData<&'a Footer<K, V>>,
}

impl<K, V> Clone for Array<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Array<'_, K, V> {}

/// An [`Array`] that can be replaced while other threads read it: a pointer to its segments, tagged
/// with the shift.
pub(super) struct AtomicArray<K, V>(AtomicPtr<Segment<K, V>>);

impl<K, V> AtomicArray<K, V> {
    pub(super) fn new(array: Array<'_, K, V>) -> Self {
        Self(AtomicPtr::new(array.tagged()))
    }

    /// Loads the array.
    ///
    /// # Safety
    ///
    /// The array stored stays alive during `'a`.
    #[inline(always)]
    pub(super) unsafe fn load<'a>(&self) -> Array<'a, K, V> {
        // Acquire: pairs with the Release in `publish`: the caller sees all buckets as they were
        // moved.
        // litmus: flat-array-published, flat-settled
        let tagged = self.0.load(Acquire);
        // SAFETY: never null.
        // The pointer came from `tagged`, and the caller guarantees that the array is alive.
        unsafe { Array::of_tagged(NonNull::new_unchecked(tagged)) }
    }

    pub(super) fn publish(&self, array: Array<'_, K, V>) {
        // Release: pairs with the Acquire in `load`.
        // litmus: flat-array-published, flat-settled
        self.0.store(array.tagged(), Release);
    }
}

impl<'a, K, V> Array<'a, K, V> {
    /// The maximum number of bits of a bucket number.
    const MAX_BITS: u32 = 40;

    /// The bits of a pointer that are zero in the address of a segment.
    const TAG: usize = align_of::<Segment<K, V>>() - 1;

    /// A thread claims 2^`CHUNK_BITS` buckets of the larger array at a time.
    const CHUNK_BITS: u32 = if cfg!(relativist_loom) { 1 } else { 6 };

    /// Allocates 2^`bits` empty buckets. A bucket is found by shifting hashes, which needs at least
    /// one bit.
    pub(super) fn allocate(bits: u32) -> Result<Self, AllocError> {
        let failed = AllocError::new(bits, size_of::<Segment<K, V>>());
        let (layout, footer) = Self::layout(bits).ok_or(failed)?;
        let memory = memory::allocate_zeroed(layout).ok_or(failed)?;
        let array = Self { segments: memory.cast(), shift: u64::BITS - bits, alive: PhantomData };
        debug_assert_eq!(footer, array.len() * size_of::<Segment<K, V>>());
        // SAFETY: fresh memory of sufficient size and alignment. Segments of zeros are empty.
        unsafe {
            #[cfg(relativist_loom)]
            (0..array.len()).for_each(|bucket| array.segments.add(bucket).write(Segment::empty()));
            memory.byte_add(footer).cast::<Footer<K, V>>().write(Footer {
                next: AtomicPtr::new(null_mut()),
                claimed: AtomicUsize::new(0),
                moved: AtomicBits::new(0),
                chains: Mutex::new(Vec::new()),
            });
        }
        Ok(array)
    }

    /// Returns the layout of the memory, and the offset of the footer.
    fn layout(bits: u32) -> Option<(Layout, usize)> {
        if bits > Self::MAX_BITS {
            return None;
        }
        // The size of a segment is a multiple of a cache line, so no padding precedes the footer.
        let segments = Layout::array::<Segment<K, V>>(1 << bits).ok()?;
        segments.extend(Layout::new::<Footer<K, V>>()).ok()
    }

    /// Returns the pointer to the segments, tagged with the shift.
    fn tagged(self) -> *mut Segment<K, V> {
        self.segments.as_ptr().map_addr(|address| address | self.shift as usize)
    }

    /// # Safety
    ///
    /// The pointer came from [`tagged`](Self::tagged), and the array is alive during `'a`.
    #[inline(always)]
    unsafe fn of_tagged(tagged: NonNull<Segment<K, V>>) -> Self {
        let shift = tagged.addr().get() & Self::TAG;
        // SAFETY: `shift` was added to the address of the segments.
        let segments = unsafe { tagged.byte_sub(shift) };
        Self { segments, shift: shift as u32, alive: PhantomData }
    }

    fn footer(&self) -> &'a Footer<K, V> {
        // SAFETY: it follows the segments, and is alive during `'a`.
        unsafe { self.segments.add(self.len()).cast().as_ref() }
    }

    #[inline(always)]
    pub(super) fn bits(&self) -> u32 {
        u64::BITS - self.shift
    }

    pub(super) fn len(&self) -> usize {
        1 << self.bits()
    }

    #[inline(always)]
    pub(super) fn bucket_of(&self, hash: Hash) -> usize {
        hash.get().wrapping_shr(self.shift) as usize
    }

    /// Returns the first and the last hash of a bucket.
    pub(super) fn hashes_of(&self, bucket: usize) -> (u64, u64) {
        let first = (bucket as u64) << self.shift;
        (first, first | ((1 << self.shift) - 1))
    }

    /// Returns the number of buckets whose hashes are all up to `last`.
    pub(super) fn buckets_to(&self, last: u64) -> usize {
        last.checked_add(1).map_or(self.len(), |end| self.bucket_of(Hash::from_mixed(end)))
    }

    /// Returns the first segment of the bucket of this hash.
    #[inline(always)]
    pub(super) fn bucket(&self, hash: Hash) -> &'a Segment<K, V> {
        // SAFETY: the highest bits of a hash are less than the number of buckets.
        unsafe { self.segments.add(self.bucket_of(hash)).as_ref() }
    }

    /// Returns the first segment of a bucket.
    pub(super) fn bucket_at(&self, bucket: usize) -> &'a Segment<K, V> {
        assert!(bucket < self.len());
        // SAFETY: within the array.
        unsafe { self.segments.add(bucket).as_ref() }
    }

    /// Returns the first segments of `count` buckets.
    pub(super) fn buckets(&self, start: usize, count: usize) -> &'a [Segment<K, V>] {
        assert!(start < self.len() && count <= self.len() - start);
        // SAFETY: within the array.
        unsafe { slice::from_raw_parts(self.segments.add(start).as_ptr(), count) }
    }

    /// Prefetches the second segment of a bucket, if the array has the bucket and the bucket the
    /// segment.
    #[inline(always)]
    pub(super) fn prefetch_later(&self, bucket: usize) {
        if bucket < self.len() {
            prefetch(self.bucket_at(bucket).next().as_ptr());
        }
    }

    /// Returns the array to which the entries are being moved, or have been.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<Self> {
        // Acquire: pairs with the Release in `begin_move`: the caller sees the empty segments.
        // litmus: flat-next-array
        let next = self.footer().next.load(Acquire);
        // SAFETY: the next array is freed after this one, because it is replaced later.
        NonNull::new(next).map(|tagged| unsafe { Self::of_tagged(tagged) })
    }

    /// Begins a resize: from now on, threads move entries to `next`. The caller holds the resizer's
    /// mutex.
    pub(super) fn begin_move(&self, next: Self) {
        // Release: pairs with the Acquire in `next`.
        // litmus: flat-next-array
        self.footer().next.store(next.tagged(), Release);
    }

    /// Claims buckets to move: a range of buckets of the smaller one of the two arrays. Returns
    /// `None` if all have been claimed.
    pub(super) fn claim(&self, next: &Self) -> Option<std::ops::Range<usize>> {
        let (chunk, chunks) = self.chunks(next);
        // Relaxed, both: a claim publishes nothing; the locks of the buckets order what the movers
        // read and write. The load keeps the counter from overflowing.
        if self.footer().claimed.load(Relaxed) >= chunks {
            return None;
        }
        let claimed = self.footer().claimed.fetch_add(1, Relaxed);
        (claimed < chunks).then(|| claimed * chunk..(claimed + 1) * chunk)
    }

    /// Called after all buckets of a claim have moved. Returns whether all buckets of the array
    /// have moved now.
    pub(super) fn complete_claim(&self, next: &Self) -> bool {
        // AcqRel: the thread that moves the last buckets sees what the others have moved, and
        // publishes it together with the next array.
        // litmus: flat-array-published
        self.footer().moved.fetch_add(1, AcqRel) + 1 == self.chunks(next).1 as u64
    }

    /// Returns the number of buckets of the smaller array in a chunk, and the number of chunks.
    fn chunks(&self, next: &Self) -> (usize, usize) {
        let (smaller, larger) = (self.bits().min(next.bits()), self.bits().max(next.bits()));
        let chunk = Self::CHUNK_BITS.saturating_sub(larger - smaller).min(smaller);
        (1 << chunk, 1 << (smaller - chunk))
    }

    /// Calls a function with the number of entries of each bucket. The numbers are exact if no
    /// thread updates the table, even if threads resize it meanwhile. Entries that have moved to a
    /// smaller array count in the first of the buckets that became one.
    pub(super) fn count_entries(&self, mut count: impl FnMut(usize)) {
        let mut counts = [0; 1 << MAX_SHRINK];
        let counts = &mut counts[..self.len().min(1 << MAX_SHRINK)];
        for start in (0..self.len()).step_by(counts.len()) {
            for (entries, bucket) in counts.iter_mut().zip(start..) {
                *entries = self.entries_of(bucket);
            }
            self.count_merged(start, counts);
            counts.iter().for_each(|&entries| count(entries));
        }
    }

    /// Corrects the numbers of entries of the buckets from `start` on, if some have become one.
    fn count_merged(&self, start: usize, counts: &mut [usize]) {
        let Some(next) = self.next().filter(|next| next.bits() < self.bits()) else { return };
        let group = 1 << (self.bits() - next.bits());
        for (counts, first) in counts.chunks_mut(group).zip((start..).step_by(group)) {
            // `merge` sets the flags in the order of the buckets, after it has copied all entries.
            // So without the first flag, all entries were counted in place.
            if self.bucket_at(first).word().is_moved() {
                counts.fill(0);
                counts[0] = next.entries_of(first / group);
            }
        }
    }

    /// Counts the entries of a bucket. If the bucket was split, counts those of its parts in the
    /// larger array.
    fn entries_of(&self, bucket: usize) -> usize {
        let first = self.bucket_at(bucket);
        let word = first.word();
        if let Some(next) = self.next().filter(|next| word.is_moved() && next.bits() > self.bits()) {
            let added_bits = next.bits() - self.bits();
            return (bucket << added_bits..(bucket + 1) << added_bits).map(|part| next.entries_of(part)).sum();
        }
        let mut entries = 0;
        for_each_live(first, word, |_, _| entries += 1);
        entries
    }

    /// Returns the links to the later segments of buckets that have not moved.
    pub(super) fn chains_in_place(self) -> impl Iterator<Item = Link<K, V>> + use<'a, K, V> {
        let buckets = (0..self.len()).map(move |bucket| self.bucket_at(bucket));
        buckets.filter(|first| !first.word().is_moved()).filter_map(Segment::later)
    }

    /// Keeps the later segments of buckets that have moved until the array is freed.
    pub(super) fn keep_chains(&self, chains: Vec<Link<K, V>>) {
        if !chains.is_empty() {
            let mut kept = self.footer().chains.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(chains.into_iter().map(ChainOfMoved));
        }
    }

    /// Frees the array and all its segments after a grace period. Drops no entries.
    ///
    /// # Safety
    ///
    /// All buckets have moved, and no later reader can find the array.
    pub(super) unsafe fn retire(self) {
        // The size is not stated, so that no thread waits for readers because of it. An array is
        // followed by a larger one, or by a smaller one after a grace period, so the arrays that
        // wait to be freed are bounded. (A deferred function that blocks delays those behind it in
        // the queue.)
        // SAFETY: guaranteed by the caller.
        unsafe {
            let tagged = NonNull::new_unchecked(self.tagged());
            defer_raw(tagged.cast(), 0, |tagged| Array::<K, V>::of_tagged(tagged.cast()).free());
        }
        // Otherwise the next growth might begin while the memory of this array is still in use.
        reclaim_soon();
    }

    /// Frees the array, and the later segments of buckets that have moved. Later segments of other
    /// buckets stay allocated. Drops no entries.
    ///
    /// # Safety
    ///
    /// No thread uses the array any more.
    pub(super) unsafe fn free(self) {
        let (layout, footer) = Self::layout(self.bits()).expect("the array was allocated with this layout");
        // SAFETY: guaranteed by the caller; each chain is in the list once.
        unsafe {
            let footer = self.segments.byte_add(footer).cast::<Footer<K, V>>().read();
            let chains = footer.chains.into_inner().unwrap_or_else(PoisonError::into_inner);
            #[cfg(relativist_loom)]
            (0..self.len()).for_each(|bucket| self.segments.add(bucket).drop_in_place());
            // Before the chains, which take longer and less memory.
            memory::free(self.segments.cast(), layout);
            chains.into_iter().for_each(|chain| Segment::free_chain(chain.0));
        }
    }
}

/// Calls a function for the place of each live entry in a bucket. `word` is the word of its first
/// segment. The caller holds the lock, or is the only thread that can find the bucket, or is in a
/// read section. In the last case, if another thread updates the bucket meanwhile, the function may
/// see an entry twice, or miss one.
pub(super) fn for_each_live<K, V>(first: &Segment<K, V>, word: Word, mut f: impl FnMut(Place<'_, K, V>, Tag)) {
    let mut segment = Some((first, word));
    while let Some((here, word)) = segment {
        for slot in word.live() {
            f(Place { segment: here, slot }, word.tag(slot));
        }
        // SAFETY: the caller holds the lock, or is the only thread that can find the bucket, or is
        // in a read section.
        segment = unsafe { here.next().segment() }.map(|next| (next, next.word()));
    }
}
