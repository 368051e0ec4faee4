//! Arrays of buckets.
//!
//! An array is one allocation: a header, a word for each bucket, and a group of slots for each
//! bucket. Words and groups have the same index, so a lookup finds both from the hash. A bucket
//! whose group is full continues in *later segments*, which are allocated one by one.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

use relativist_core::counter::Counter;
use relativist_core::memory;
use relativist_core::sync::{
    AcqRel, Acquire, AtomicBits, AtomicPtr, AtomicU32, AtomicUsize, Relaxed, Release, full_fence,
};

use crate::form::{Expected, Form, Geometry, window_of};
use crate::word::{Hash, Slots, Tag, Word, prefetch_lines};

/// What the arrays of a table have in common, until the table is cleared.
pub(crate) struct Family {
    /// The number of entries.
    pub(crate) count: Counter,
    /// The number of arrays that are not freed yet. The last one frees the family.
    arrays: AtomicUsize,
}

/// The header of an array.
#[repr(C, align(64))]
pub(crate) struct Header {
    /// By how much to shift a hash to get its bucket.
    shift: u32,
    /// By how much to shift a hash to get the bits that boxed slots have beside a pointer.
    window_shift: u32,
    /// The groups of slots.
    groups: NonNull<u8>,
    family: NonNull<Family>,
    /// The array to which the buckets move.
    next: AtomicPtr<Header>,
    progress: Progress,
}

/// How far the buckets have moved to the next array. In a cache line of its own, because all
/// threads that help write to it.
#[repr(align(64))]
struct Progress {
    /// The number of chunks that threads have claimed, in turn and again from the start.
    claimed: AtomicUsize,
    /// The number of buckets that have moved.
    moved: AtomicUsize,
    /// The number of turns between two attempts at chunks.
    pause: AtomicU32,
}

/// There is no memory for an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocError {
    buckets: Option<usize>,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.buckets {
            Some(buckets) => write!(f, "cannot allocate {buckets} buckets"),
            None => f.write_str("cannot allocate more buckets than there are addresses"),
        }
    }
}

impl std::error::Error for AllocError {}

/// The types of a table, to which a pointer leads. The function lets the pointer own neither.
type Types<E, F> = fn() -> (E, F);

/// A pointer to an array that is alive during `'a`.
pub(crate) struct Array<'a, E, F> {
    header: NonNull<Header>,
    _of: PhantomData<(&'a Header, Types<E, F>)>,
}

impl<E, F> Clone for Array<'_, E, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E, F> Copy for Array<'_, E, F> {}

impl<E, F> PartialEq for Array<'_, E, F> {
    fn eq(&self, other: &Self) -> bool {
        self.header == other.header
    }
}

/// Arrays of at least this size are mapped, in huge pages: a program that grows a table needs the
/// memory of the old array for other things, and an allocator may keep it. Smaller ones come from
/// the allocator, because the kernel takes long to map and unmap memory.
const MIN_MAPPED: usize = 8 << 20;

/// Returns memory of which the first `zeroed` bytes are zero.
fn allocate(layout: Layout, zeroed: usize) -> Option<NonNull<u8>> {
    if layout.size() >= MIN_MAPPED {
        return memory::allocate_zeroed(layout);
    }
    // SAFETY: the size is not zero.
    let memory = NonNull::new(unsafe { alloc(layout) })?;
    // SAFETY: fresh memory.
    unsafe { memory.write_bytes(0, zeroed) };
    Some(memory)
}

/// Frees memory.
///
/// # Safety
///
/// `memory` came from [`allocate`] with this layout, and no thread uses it any more.
unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if layout.size() >= MIN_MAPPED {
            memory::free(memory, layout);
        } else {
            dealloc(memory.as_ptr(), layout);
        }
    }
}

/// The array of a table.
pub(crate) struct Current(AtomicPtr<Header>);

impl Current {
    pub(crate) fn new<E, F: Form>(array: Array<'_, E, F>) -> Self {
        Self(AtomicPtr::new(array.header.as_ptr()))
    }

    /// # Safety
    ///
    /// The array stays alive during `'a`. It is one of `E` and `F`.
    #[inline(always)]
    pub(crate) unsafe fn load<'a, E, F>(&self) -> Array<'a, E, F> {
        // Acquire: pairs with the Release in `replace`: the array is seen as it was filled.
        // litmus: bucket-array
        let header = self.0.load(Acquire);
        // SAFETY: never null.
        Array { header: unsafe { NonNull::new_unchecked(header) }, _of: PhantomData }
    }

    /// Publishes `new` if `old` is still the array of the table.
    pub(crate) fn replace<E, F>(&self, old: Array<'_, E, F>, new: Array<'_, E, F>) -> bool {
        // AcqRel: Release pairs with the Acquire in `load`. The fence makes the exchange a full
        // barrier, because a lookup by this thread must not overtake a clear (B3). Relaxed: a
        // caller that fails loads again.
        // litmus: bucket-array, bucket-update-then-lookup
        let is_replaced = self.0.compare_exchange(old.header.as_ptr(), new.header.as_ptr(), AcqRel, Relaxed).is_ok();
        full_fence();
        is_replaced
    }
}

impl<'a, E, F: Form> Array<'a, E, F> {
    /// Bounds on the binary logarithm of the number of buckets. Shifts need at least one bit.
    pub(crate) const MIN_BITS: u32 = 1;
    pub(crate) const MAX_BITS: u32 = 40;
    /// The number of bits of the hash that a boxed slot has.
    const WINDOW_BITS: u32 = 16;

    /// Allocates the first array of a table.
    pub(crate) fn first(bits: u32) -> Result<Self, AllocError> {
        let family = Box::new(Family { count: Counter::new(), arrays: AtomicUsize::new(0) });
        let family = NonNull::from(Box::leak(family));
        let array = Self::allocate(bits, Self::window_shift_for(bits), family);
        // SAFETY: without an array this thread alone has the family.
        array.inspect_err(|_| drop(unsafe { Box::from_raw(family.as_ptr()) }))
    }

    /// Allocates the array that follows this one.
    pub(crate) fn successor(self, bits: u32) -> Result<Self, AllocError> {
        let window_shift =
            if self.moves_by_windows(bits) { self.header().window_shift } else { Self::window_shift_for(bits) };
        Self::allocate(bits, window_shift, self.header().family)
    }

    /// The window begins with the bits that choose the bucket in the next larger array.
    fn window_shift_for(bits: u32) -> u32 {
        u64::BITS - bits - Self::WINDOW_BITS
    }

    /// Returns whether the bits of the hash in boxed slots show the buckets of entries in an array
    /// of this size.
    fn windows_show(self, bits: u32) -> bool {
        let end = u64::BITS - self.header().window_shift;
        F::BOXED && (end - Self::WINDOW_BITS..=end).contains(&self.bits()) && bits <= end
    }

    /// Returns whether the entries of this array can move to one of this size without hashing their
    /// keys. Boxed slots then keep their window.
    pub(crate) fn moves_by_windows(self, bits: u32) -> bool {
        bits <= self.bits() || self.windows_show(bits)
    }

    fn allocate(bits: u32, window_shift: u32, family: NonNull<Family>) -> Result<Self, AllocError> {
        let failed = AllocError { buckets: 1usize.checked_shl(bits) };
        let (layout, groups) = Self::layout(bits).ok_or(failed)?;
        // An inline slot is written before its word shows it. A boxed one must hold no pointer
        // before: an update sets the tag first.
        let zeroed = if F::BOXED { layout.size() } else { groups };
        let memory = allocate(layout, zeroed).ok_or(failed)?;
        // SAFETY: in the fresh allocation.
        unsafe {
            memory.cast().write(Header {
                shift: u64::BITS - bits,
                window_shift,
                groups: memory.add(groups),
                family,
                next: AtomicPtr::new(null_mut()),
                progress: Progress {
                    claimed: AtomicUsize::new(0),
                    moved: AtomicUsize::new(0),
                    pause: AtomicU32::new(1),
                },
            });
        }
        let array = Self { header: memory.cast(), _of: PhantomData };
        // Relaxed: whoever frees an array was passed it by a release.
        // SAFETY: the family lives as long as one of its arrays, or the caller has just made it.
        unsafe { family.as_ref() }.arrays.fetch_add(1, Relaxed);
        #[cfg(relativist_loom)]
        for bucket in 0..array.len() {
            let (word, group) = array.parts(bucket);
            // SAFETY: in the fresh allocation. Loom's atomics are not valid when zeroed.
            unsafe {
                word.write(AtomicBits::new(0));
                make_group::<E, F>(group);
            }
        }
        Ok(array)
    }

    /// Returns an error if there is no memory for an array of this size at present.
    pub(crate) fn check(bits: u32) -> Result<(), AllocError> {
        let failed = AllocError { buckets: 1usize.checked_shl(bits) };
        let (layout, _) = Self::layout(bits).ok_or(failed)?;
        let memory = allocate(layout, 0).ok_or(failed)?;
        // SAFETY: allocated above.
        unsafe { free(memory, layout) };
        Ok(())
    }

    fn layout(bits: u32) -> Option<(Layout, usize)> {
        let len = 1usize.checked_shl(bits).filter(|_| bits <= Self::MAX_BITS)?;
        let (layout, _) = Layout::new::<Header>().extend(Layout::array::<AtomicBits>(len).ok()?).ok()?;
        let groups = Geometry::<E, F>::SIZE.checked_mul(len)?;
        layout.extend(Layout::from_size_align(groups, Geometry::<E, F>::ALIGN).ok()?).ok()
    }

    /// Frees the array, and its family with the last array. Later segments and entries stay.
    ///
    /// # Safety
    ///
    /// No thread uses the array any more, and it is freed once.
    pub(crate) unsafe fn free(self) {
        let (layout, _) = Self::layout(self.bits()).expect("it was allocated with this layout");
        let family = self.header().family;
        #[cfg(relativist_loom)]
        for bucket in 0..self.len() {
            let (word, group) = self.parts(bucket);
            // SAFETY: valid, and not used again. Loom checks that all accesses happened before.
            unsafe {
                word.drop_in_place();
                drop_group::<E, F>(group);
            }
        }
        // SAFETY: guaranteed by the caller. The family is freed by the last array.
        unsafe {
            self.header.drop_in_place();
            free(self.header.cast(), layout);
            // AcqRel: the last one sees what the others did.
            // litmus: bucket-family
            if family.as_ref().arrays.fetch_sub(1, AcqRel) == 1 {
                drop(Box::from_raw(family.as_ptr()));
            }
        }
    }

    /// Converts the array to a pointer that can be passed to a deferred function.
    pub(crate) fn into_raw(self) -> NonNull<()> {
        self.header.cast()
    }

    /// # Safety
    ///
    /// `raw` came from [`Array::into_raw`] of an array of these types, which is alive during `'a`.
    pub(crate) unsafe fn from_raw(raw: NonNull<()>) -> Self {
        Self { header: raw.cast(), _of: PhantomData }
    }

    #[inline(always)]
    fn header(self) -> &'a Header {
        // SAFETY: alive during `'a`.
        unsafe { self.header.as_ref() }
    }

    pub(crate) fn family(self) -> &'a Family {
        // SAFETY: the family lives as long as its arrays.
        unsafe { self.header().family.as_ref() }
    }

    /// Returns whether earlier arrays of the table are not freed yet.
    pub(crate) fn has_ancestors(self) -> bool {
        // Relaxed: a heuristic.
        self.family().arrays.load(Relaxed) > 1
    }

    pub(crate) fn bits(self) -> u32 {
        u64::BITS - self.header().shift
    }

    pub(crate) fn len(self) -> usize {
        1 << self.bits()
    }

    /// Returns the size of the array in memory.
    pub(crate) fn bytes(self) -> usize {
        Self::layout(self.bits()).map_or(0, |(layout, _)| layout.size())
    }

    #[inline(always)]
    fn parts(self, bucket: usize) -> (NonNull<AtomicBits>, NonNull<u8>) {
        debug_assert!(bucket < self.len());
        // SAFETY: words follow the header in the same allocation, and the bucket has one. So it has
        // a group. (The pointer is not derived from `&Header`, whose provenance is the header.)
        unsafe { (self.header.add(1).cast().add(bucket), self.header().groups.add(bucket * Geometry::<E, F>::SIZE)) }
    }

    /// Returns the number of the bucket of a hash.
    #[inline(always)]
    pub(crate) fn bucket_of(self, hash: Hash) -> usize {
        (hash.get() >> self.header().shift) as usize
    }

    /// Returns the lowest hash of a bucket.
    pub(crate) fn first_hash(self, bucket: usize) -> Hash {
        Hash::lowest(bucket, self.header().shift)
    }

    /// Returns the highest hash of a bucket.
    pub(crate) fn last_hash(self, bucket: usize) -> Hash {
        Hash::highest(bucket, self.header().shift)
    }

    #[inline(always)]
    pub(crate) fn bucket(self, hash: Hash) -> Segment<'a, E, F> {
        self.bucket_at(self.bucket_of(hash))
    }

    #[inline(always)]
    pub(crate) fn bucket_at(self, bucket: usize) -> Segment<'a, E, F> {
        let (word, group) = self.parts(bucket);
        // SAFETY: alive during `'a`. Words are atomic.
        Segment { word: unsafe { word.as_ref() }, group, _of: PhantomData }
    }

    /// Prefetches the word of a hash's bucket.
    #[inline(always)]
    pub(crate) fn prefetch_word(self, hash: Hash) {
        relativist_core::prefetch::prefetch(self.parts(self.bucket_of(hash)).0.as_ptr());
    }

    /// Prefetches entries that a walk over the buckets will soon get to, if they have memory of
    /// their own.
    #[inline(always)]
    pub(crate) fn prefetch_entries_after(self, bucket: usize) {
        /// A number of buckets.
        const DISTANCE: usize = 4;
        if !F::BOXED || bucket + DISTANCE >= self.len() {
            return;
        }
        let first = self.bucket_at(bucket + DISTANCE);
        for slot in first.word().live() {
            // SAFETY: the word was loaded in a read section, or no other thread uses the table.
            if let Some(entry) = unsafe { F::get::<E>(first.slot(slot), Expected::Any) } {
                relativist_core::prefetch::prefetch(entry.as_ptr());
            }
        }
    }

    /// Returns what boxed slots of this array have beside the pointer to an entry with this hash.
    #[inline(always)]
    pub(crate) fn window(self, hash: Hash) -> u16 {
        window_of(hash, self.header().window_shift)
    }

    #[inline(always)]
    pub(crate) fn expected(self, hash: Hash) -> Expected {
        Expected::Window(self.window(hash))
    }

    /// Returns the last bits of the bucket in `next` of an entry, which is in this array, and its
    /// window there.
    pub(crate) fn part_by_window(self, window: u16, next: Self) -> usize {
        let end = u64::BITS - self.header().window_shift;
        (window >> (end - next.bits())) as usize & ((1 << (next.bits() - self.bits())) - 1)
    }

    #[inline(always)]
    pub(crate) fn next(self) -> Option<Self> {
        // Acquire: pairs with the Release in `set_next`.
        // litmus: bucket-next
        let header = NonNull::new(self.header().next.load(Acquire))?;
        Some(Self { header, _of: PhantomData })
    }

    /// Links the array to which the buckets will move. Returns false if there is one.
    pub(crate) fn set_next(self, next: Self) -> bool {
        // AcqRel: Release pairs with the Acquire in `next`: the array is seen as it was made.
        // Relaxed: the caller does not use the other array.
        // litmus: bucket-next
        self.header().next.compare_exchange(null_mut(), next.header.as_ptr(), AcqRel, Relaxed).is_ok()
    }

    /// Returns the number of turns between two attempts at chunks, one in the beginning.
    pub(crate) fn pause(self) -> u32 {
        // Relaxed: a heuristic.
        self.header().progress.pause.load(Relaxed)
    }

    pub(crate) fn set_pause(self, turns: u32) {
        // Relaxed: as above. Stored only if it has changed, because all threads that help load it.
        if self.pause() != turns {
            self.header().progress.pause.store(turns, Relaxed);
        }
    }

    /// Claims a number for a thread that is about to move buckets.
    pub(crate) fn claim(self) -> usize {
        // Relaxed: buckets are moved under their locks.
        self.header().progress.claimed.fetch_add(1, Relaxed)
    }

    /// Returns whether each chunk of buckets was claimed.
    pub(crate) fn is_claimed(self, chunks: usize) -> bool {
        // Relaxed: a heuristic.
        self.header().progress.claimed.load(Relaxed) >= chunks
    }

    /// Counts buckets that this thread has moved. Returns whether all have moved now.
    pub(crate) fn count_moved(self, moved: usize) -> bool {
        // AcqRel: whoever counts the last ones sees what the others have moved, and publishes it.
        // litmus: bucket-array
        moved > 0 && self.header().progress.moved.fetch_add(moved, AcqRel) + moved == self.len()
    }
}

/// A segment of a bucket: a word, and a group of slots. The first segment of a bucket is in the
/// array.
pub(crate) struct Segment<'a, E, F> {
    word: &'a AtomicBits,
    group: NonNull<u8>,
    _of: PhantomData<(&'a (), Types<E, F>)>,
}

impl<E, F> Clone for Segment<'_, E, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E, F> Copy for Segment<'_, E, F> {}

impl<E, F> PartialEq for Segment<'_, E, F> {
    fn eq(&self, other: &Self) -> bool {
        self.group == other.group
    }
}

/// Creates an empty group.
///
/// # Safety
///
/// Memory of the size of a group, which no other thread uses.
unsafe fn make_group<E, F: Form>(group: NonNull<u8>) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        group.cast::<AtomicPtr<()>>().write(AtomicPtr::new(null_mut()));
        let slots = group.add(Geometry::<E, F>::SLOTS).cast::<F::Slot<E>>();
        (0..Word::SLOTS).for_each(|slot| slots.add(slot).write(F::empty_slot::<E>()));
    }
}

/// Drops what a group consists of, but no entries.
///
/// # Safety
///
/// [`make_group`] has made the group, and no thread uses it any more.
unsafe fn drop_group<E, F: Form>(group: NonNull<u8>) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        group.cast::<AtomicPtr<()>>().drop_in_place();
        let slots = group.add(Geometry::<E, F>::SLOTS).cast::<F::Slot<E>>();
        (0..Word::SLOTS).for_each(|slot| slots.add(slot).drop_in_place());
    }
}

impl<'a, E, F: Form> Segment<'a, E, F> {
    /// The layout of a later segment, and the offset of its group: a word and a group.
    const LATER: (Layout, usize) = {
        let group = Geometry::<E, F>::SLOTS + Word::SLOTS * size_of::<F::Slot<E>>();
        let align = if align_of::<F::Slot<E>>() > align_of::<AtomicPtr<()>>() {
            align_of::<F::Slot<E>>()
        } else {
            align_of::<AtomicPtr<()>>()
        };
        let offset = size_of::<AtomicBits>().next_multiple_of(align);
        match Layout::from_size_align(offset + group, align) {
            Ok(layout) => (layout, offset),
            Err(_) => panic!("a segment is far smaller than the address space"),
        }
    };

    /// Allocates an empty later segment. Aborts if there is no memory.
    pub(crate) fn allocate() -> Self {
        let (layout, offset) = Self::LATER;
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { if F::BOXED { alloc_zeroed(layout) } else { alloc(layout) } });
        let memory = memory.unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: fresh memory of sufficient size.
        unsafe {
            memory.cast::<AtomicBits>().write(AtomicBits::new(0));
            make_group::<E, F>(memory.add(offset));
        }
        // SAFETY: as above.
        unsafe { Self::later_at(memory.cast()) }
    }

    /// # Safety
    ///
    /// [`Segment::address`] of a later segment that is alive during `'a`.
    unsafe fn later_at(address: NonNull<()>) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            Self { word: address.cast().as_ref(), group: address.cast::<u8>().add(Self::LATER.1), _of: PhantomData }
        }
    }

    /// Returns the address by which a later segment is linked.
    fn address(self) -> NonNull<()> {
        // SAFETY: the offset was added in `later_at`.
        unsafe { self.group.sub(Self::LATER.1).cast() }
    }

    /// Frees later segments that are linked to each other. Entries in them are not dropped.
    ///
    /// # Safety
    ///
    /// Each of them came from [`Segment::allocate`], and no thread uses it any more.
    pub(crate) unsafe fn free_chain(first: Option<Self>) {
        let mut next = first;
        while let Some(segment) = next {
            next = segment.later();
            // SAFETY: guaranteed by the caller.
            unsafe { segment.free() };
        }
    }

    /// Frees a later segment.
    ///
    /// # Safety
    ///
    /// As for [`Segment::free_chain`].
    pub(crate) unsafe fn free(self) {
        let memory = self.address();
        // SAFETY: guaranteed by the caller.
        unsafe {
            memory.cast::<AtomicBits>().drop_in_place();
            drop_group::<E, F>(self.group);
            dealloc(memory.cast().as_ptr(), Self::LATER.0);
        }
    }

    pub(crate) const BYTES: usize = Self::LATER.0.size();

    /// Converts a later segment to a pointer that can be passed to a deferred function.
    pub(crate) fn into_raw(self) -> NonNull<()> {
        self.address()
    }

    /// # Safety
    ///
    /// `raw` came from [`Segment::into_raw`] of a segment of these types, which is alive during
    /// `'a`.
    pub(crate) unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::later_at(raw) }
    }

    /// Prefetches the word and the slots, which are about to be written.
    #[inline(always)]
    pub(crate) fn prefetch_for_write(self) {
        use relativist_core::prefetch::prefetch_for_write;
        prefetch_for_write(self.word);
        prefetch_for_write(self.group.as_ptr());
        if Geometry::<E, F>::SIZE > 64 {
            prefetch_for_write(self.group.as_ptr().wrapping_add(64));
        }
    }

    /// Prefetches the slots.
    #[inline(always)]
    pub(crate) fn prefetch(self) {
        prefetch_lines(self.group.as_ptr(), Geometry::<E, F>::SIZE);
    }

    /// Returns an address by which the bucket of a first segment is known to sleeping threads.
    pub(crate) fn key(self) -> usize {
        std::ptr::from_ref(self.word).addr()
    }

    #[inline(always)]
    pub(crate) fn word(self) -> Word {
        // Acquire: pairs with the Release of `set_word` and the exchanges. Live inline slots are
        // seen as they were written. If the bucket has moved, the next array is seen with its
        // entries. What a lookup does not find any more, a later one does not find either.
        // litmus: bucket-inline-entry, bucket-later-entry, bucket-moved-later, bucket-boxed-tag
        // litmus: bucket-boxed-tag-cleared, bucket-filter, bucket-filter-cleared, bucket-moved
        // litmus: bucket-next, bucket-removed, bucket-removed-after, bucket-stamp, bucket-vacated
        Word::from_bits(self.word.load(Acquire))
    }

    /// Sets the word. The caller holds the lock, or no other thread can find the segment.
    #[inline(always)]
    pub(crate) fn set_word(self, word: Word) {
        // Release: pairs with the Acquire in `word`. Whoever sees a word sees those set before it.
        // litmus: bucket-later-entry, bucket-filter, bucket-moved-later, bucket-moved, bucket-next
        // litmus: bucket-wake
        self.word.store(word.bits(), Release);
    }

    /// Sets the word of a first segment, and so unlocks the bucket.
    #[inline(always)]
    pub(crate) fn exchange_word(self, word: Word) {
        // AcqRel: Release pairs with the Acquire in `word` and `try_exchange`. An exchange, because
        // a lookup by this thread must not overtake the store (B3), nor the look at sleeping
        // threads, which follows.
        // litmus: bucket-inline-entry, bucket-locked, bucket-boxed-tag-cleared
        // litmus: bucket-filter-cleared, bucket-removed, bucket-update-then-lookup
        self.word.swap(word.bits(), AcqRel);
    }

    /// Replaces the word of a first segment, if it still is `word`.
    #[inline(always)]
    pub(crate) fn try_exchange(self, word: Word, new: Word) -> bool {
        // AcqRel: Acquire pairs with the Release of `exchange_word`. Release: whoever sees an entry
        // removed sees what this thread has seen before. An exchange, because a lock and a removal
        // exclude each other, and the word keeps publishing the entries of other slots. Relaxed: a
        // caller that fails loads again.
        // litmus: bucket-locked, bucket-removed, bucket-removed-once, bucket-removed-after
        // litmus: bucket-stamp, bucket-update-then-lookup
        self.word.compare_exchange(word.bits(), new.bits(), AcqRel, Relaxed).is_ok()
    }

    #[inline(always)]
    fn link(&self) -> &'a AtomicPtr<()> {
        // SAFETY: a group begins with the link.
        unsafe { self.group.cast().as_ref() }
    }

    /// Returns the next segment. Call it for a first segment only if its filter has a bit.
    #[inline(always)]
    pub(crate) fn later(self) -> Option<Self> {
        // Acquire: pairs with the Release in `set_later`: the segment is seen as it was made.
        // litmus: bucket-later
        let address = NonNull::new(self.link().load(Acquire))?;
        // SAFETY: a segment is freed a grace period after it was unlinked.
        Some(unsafe { Self::later_at(address) })
    }

    /// Links a segment, or none. The caller holds the lock, or no other thread can find the bucket.
    pub(crate) fn set_later(self, later: Option<Self>) {
        // Release: pairs with the Acquire in `later`.
        // litmus: bucket-later
        self.link().store(later.map_or(null_mut(), |segment| segment.address().as_ptr()), Release);
    }

    #[inline(always)]
    pub(crate) fn slot(&self, slot: usize) -> *const F::Slot<E> {
        debug_assert!(slot < Word::SLOTS);
        // SAFETY: in the group.
        unsafe { self.group.add(Geometry::<E, F>::SLOTS).cast::<F::Slot<E>>().add(slot).as_ptr() }
    }

    /// Returns the first entry among these slots that `is_match` accepts.
    ///
    /// # Safety
    ///
    /// A word that was loaded in a read section that lasts for `'a`, or under the lock, shows the
    /// slots as live.
    #[inline(always)]
    pub(crate) unsafe fn find(
        self,
        slots: Slots,
        expected: Expected,
        mut is_match: impl FnMut(&E) -> bool,
    ) -> Option<(usize, NonNull<E>)> {
        for slot in slots {
            // SAFETY: guaranteed by the caller.
            let Some(entry) = (unsafe { F::get::<E>(self.slot(slot), expected) }) else { continue };
            // SAFETY: as above.
            if is_match(unsafe { entry.as_ref() }) {
                return Some((slot, entry));
            }
        }
        None
    }

    /// Returns the segments of the bucket of a first segment, with the words that they have when
    /// the iterator gets to them. `word` is that of the first one.
    pub(crate) fn chain(self, word: Word) -> Chain<'a, E, F> {
        Chain { next: Some((self, word)), has_later: word.has_later() && !word.is_moved() }
    }
}

/// See [`Segment::chain`].
pub(crate) struct Chain<'a, E, F> {
    next: Option<(Segment<'a, E, F>, Word)>,
    has_later: bool,
}

impl<'a, E, F: Form> Iterator for Chain<'a, E, F> {
    type Item = (Segment<'a, E, F>, Word);

    fn next(&mut self) -> Option<Self::Item> {
        let (segment, word) = self.next?;
        self.next = if self.has_later { segment.later().map(|later| (later, later.word())) } else { None };
        Some((segment, word))
    }
}

/// The tag and the rest of what identifies a hash in an array.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) tag: Tag,
    pub(crate) expected: Expected,
}
