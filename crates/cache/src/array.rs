//! The arrays of [`Table`](super::table::Table): buckets of pointers to nodes.
//!
//! A bucket has a [`Word`] with the tags of its slots, and a [`Group`] of slots. Words and groups
//! lie in one array, so a lookup computes both addresses from the hash. A bucket with more entries
//! continues in *later segments*.
//!
//! The pointer leads to the groups. The words lie before them, in descending order, and [`Filling`]
//! before the words. The low bits are the number of bits by which to shift a hash to get its
//! bucket, and whether the array is being filled. So a lookup learns all that it needs by one load.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

use relativist_bucket::{Hash, Slots, Tag, Word};
use relativist_core::memory;
use relativist_core::prefetch::{prefetch, prefetch_for_write};
use relativist_core::sync::{Acquire, AtomicBits, AtomicPtr, Relaxed, Release};
use relativist_rcu::Guard;

/// Bounds on the binary logarithm of the number of buckets. A shift needs at least one bit.
pub(super) const MIN_BITS: u32 = 1;
pub(super) const MAX_BITS: u32 = 40;

/// The slots of a segment. A cache line.
#[repr(C, align(64))]
struct Group<N> {
    slots: [AtomicPtr<N>; Word::SLOTS],
    later: AtomicPtr<Segment<N>>,
}

/// A later segment of a bucket.
struct Segment<N> {
    group: Group<N>,
    word: AtomicBits,
}

impl<N> Group<N> {
    fn new() -> Self {
        Self { slots: std::array::from_fn(|_| AtomicPtr::new(null_mut())), later: AtomicPtr::new(null_mut()) }
    }
}

/// The function makes a table invariant in the type of its nodes, as an atomic pointer is.
pub(super) type Owned<N> = (fn(N) -> N, *mut N);

/// An array of buckets that is alive during `'a`: the pointer in a table.
pub(super) struct Array<'a, N>(NonNull<u8>, PhantomData<(&'a (), Owned<N>)>);

/// Where the entries of an array come from while it is being filled.
struct Filling {
    /// The older array.
    source: *mut u8,
    /// The number of units that were moved. (A unit is a bucket of the smaller array.)
    moved: AtomicBits,
}

/// The alignment of arrays. The pointer to one has room for a shift and a flag.
const ALIGN: usize = 128;
const IS_FILLING: usize = ALIGN / 2;

impl<N> Clone for Array<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for Array<'_, N> {}

/// A segment of a bucket: the first one, or a later one.
struct Part<'a, N> {
    word: &'a AtomicBits,
    group: &'a Group<N>,
}

impl<N> Clone for Part<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for Part<'_, N> {}

impl<'a, N: 'a> Part<'a, N> {
    #[inline(always)]
    fn word(self) -> Word {
        // Acquire: pairs with the Release in `set_word`: the later segments are seen to which the
        // filter leads.
        // litmus: cache-filter
        Word::from_bits(self.word.load(Acquire))
    }

    fn set_word(self, word: Word) {
        // Release: pairs with the Acquire in `word`.
        // litmus: cache-filter
        self.word.store(word.bits(), Release);
    }

    /// Returns the entry of a slot.
    #[inline(always)]
    fn node(self, slot: usize) -> Option<NonNull<N>> {
        // Acquire: pairs with the Release in `set_node`: the node is seen as it was made. Whoever
        // finds it finds its tag later, and whoever finds none finds what was inserted before.
        // litmus: bucket-boxed-entry, bucket-boxed-tag, bucket-boxed-removed
        NonNull::new(self.group.slots[slot].load(Acquire))
    }

    fn set_node(self, slot: usize, node: *mut N) {
        // Release: pairs with the Acquire in `node`.
        // litmus: bucket-boxed-entry, bucket-boxed-tag, bucket-boxed-removed
        self.group.slots[slot].store(node, Release);
    }

    fn later(self) -> Option<Part<'a, N>> {
        // Acquire: pairs with the Release in `add_later`: the segment is seen as it was made.
        // litmus: cache-later
        let segment = NonNull::new(self.group.later.load(Acquire))?;
        // SAFETY: freed with the array, or a grace period after its bucket was moved, when no
        // update uses the bucket any more.
        let segment = unsafe { segment.as_ref() };
        Some(Part { word: &segment.word, group: &segment.group })
    }

    fn add_later(self) -> Part<'a, N> {
        let segment = NonNull::from(Box::leak(Box::new(Segment { group: Group::new(), word: AtomicBits::new(0) })));
        // Release: pairs with the Acquire in `later`.
        // litmus: cache-later
        self.group.later.store(segment.as_ptr(), Release);
        // SAFETY: freed with the array, or a grace period after its bucket was moved, when no
        // update uses the bucket any more.
        let segment = unsafe { segment.as_ref() };
        Part { word: &segment.word, group: &segment.group }
    }

    /// Returns this segment and the later ones.
    fn chain(self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |part| part.later())
    }

    fn live(self) -> impl Iterator<Item = NonNull<N>> {
        self.word().live().filter_map(move |slot| self.node(slot))
    }

    /// Finds the slot of a node in these slots.
    fn position(self, slots: Slots, node: NonNull<N>) -> Option<usize> {
        // Relaxed: the caller holds the lock under which slots are written.
        slots.into_iter().find(|&slot| self.group.slots[slot].load(Relaxed) == node.as_ptr())
    }
}

impl<'a, N: 'a> Array<'a, N> {
    /// Creates an empty array of 2^`bits` buckets. `None` if there is no memory.
    pub(super) fn allocate(bits: u32) -> Option<Self> {
        let layout = Self::layout(bits)?;
        let memory = memory::allocate_zeroed(layout)?;
        // SAFETY: inside the allocation.
        let groups = unsafe { memory.add(Self::offset(bits)) };
        let array = Self(groups.map_addr(|address| address | (u64::BITS - bits) as usize), PhantomData);
        // SAFETY: in the fresh allocation.
        unsafe { array.filling().write(Filling { source: null_mut(), moved: AtomicBits::new(0) }) };
        #[cfg(relativist_loom)]
        for bucket in 0..array.len() {
            // SAFETY: in the fresh allocation. Loom's atomics are not valid when zeroed.
            unsafe {
                array.word(bucket).write(AtomicBits::new(0));
                array.group(bucket).write(Group::new());
            }
        }
        Some(array)
    }

    /// Returns the array of a pointer that [`Array::raw`] returned.
    ///
    /// # Safety
    ///
    /// The pointer came from [`Array::raw`], and the array is alive during `'a`.
    #[inline(always)]
    pub(super) unsafe fn from_raw(raw: *mut u8) -> Self {
        // SAFETY: groups are not at the address 0.
        Self(unsafe { NonNull::new_unchecked(raw) }, PhantomData)
    }

    pub(super) fn raw(self) -> NonNull<u8> {
        self.0
    }

    fn layout(bits: u32) -> Option<Layout> {
        let len = 1usize.checked_shl(bits).filter(|_| (MIN_BITS..=MAX_BITS).contains(&bits))?;
        let groups = Layout::array::<Group<N>>(len).ok()?;
        Layout::from_size_align(Self::offset(bits).checked_add(groups.size())?, ALIGN).ok()
    }

    /// Returns the size of the array, and of the one from which it is being filled.
    pub(super) fn bytes(self) -> usize {
        let source = if self.is_filling() { self.source().bytes() } else { 0 };
        source + Self::layout(self.bits()).map_or(0, |layout| layout.size())
    }

    /// Returns where the groups begin.
    #[inline(always)]
    fn offset(bits: u32) -> usize {
        (size_of::<Filling>() + (size_of::<AtomicBits>() << bits)).next_multiple_of(ALIGN)
    }

    /// Returns where the allocation begins.
    fn filling(self) -> NonNull<Filling> {
        // SAFETY: the groups are at this offset in the allocation.
        unsafe { self.groups().cast::<u8>().sub(Self::offset(self.bits())).cast() }
    }

    /// Frees the array, the later segments of its buckets, and the array from which it is being
    /// filled.
    ///
    /// # Safety
    ///
    /// No thread uses the array any more, and it is freed once.
    pub(super) unsafe fn free(self) {
        // SAFETY: guaranteed by the caller. Later segments of buckets that were moved are freed
        // after a grace period.
        unsafe {
            if self.is_filling() {
                // Relaxed: no other thread uses the array.
                let moved = self.moved().load(Relaxed);
                (self.source_bucket(moved)..self.source().len()).for_each(|bucket| self.source().free_later(bucket));
                self.source().free_memory();
            }
            (0..self.len()).for_each(|bucket| self.free_later(bucket));
            self.free_memory();
        }
    }

    /// Frees the later segments of a bucket.
    ///
    /// # Safety
    ///
    /// No thread uses them any more, and they are freed once.
    unsafe fn free_later(self, bucket: usize) {
        // Relaxed: no other thread uses them.
        let later = self.part(bucket).group.later.load(Relaxed);
        if let Some(segment) = NonNull::new(later) {
            // SAFETY: guaranteed by the caller.
            unsafe { free_segments::<N>(segment.cast()) };
        }
    }

    /// Frees the later segments of a bucket whose entries were moved, after a grace period.
    ///
    /// # Safety
    ///
    /// Readers that begin later do not use the bucket, and this is called once.
    pub(super) unsafe fn retire_later(self, bucket: usize, guard: &Guard) {
        // Relaxed: the caller holds the lock under which it is written.
        let later = self.part(bucket).group.later.load(Relaxed);
        if let Some(segment) = NonNull::new(later) {
            // SAFETY: guaranteed by the caller.
            unsafe { guard.defer_raw(segment.cast(), size_of::<Segment<N>>(), free_segments::<N>) };
        }
    }

    /// Frees the array, but not the later segments of its buckets.
    ///
    /// # Safety
    ///
    /// As for [`Array::free`].
    pub(super) unsafe fn free_memory(self) {
        let layout = Self::layout(self.bits()).expect("it was allocated with this layout");
        #[cfg(relativist_loom)]
        // SAFETY: valid, and not used again. Loom checks that all accesses happened before.
        unsafe {
            for bucket in 0..self.len() {
                self.word(bucket).drop_in_place();
                self.group(bucket).drop_in_place();
            }
            self.filling().drop_in_place();
        }
        // SAFETY: guaranteed by the caller.
        unsafe { memory::free(self.filling().cast(), layout) };
    }

    /// Returns this array as one that is being filled.
    ///
    /// # Safety
    ///
    /// This thread alone has the new array. The source stays alive as long as a lookup may find the
    /// new array as one that is being filled.
    pub(super) unsafe fn filled_from(self, source: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { self.filling().as_mut() }.source = source.0.as_ptr();
        Self(self.0.map_addr(|address| address | IS_FILLING), PhantomData)
    }

    /// Returns the number of units that were moved to an array that is being filled.
    pub(super) fn moved(self) -> &'a AtomicBits {
        debug_assert!(self.is_filling());
        // SAFETY: alive, as the array is.
        unsafe { &self.filling().as_ref().moved }
    }

    /// Returns the array from which this one is being filled.
    pub(super) fn source(self) -> Self {
        debug_assert!(self.is_filling());
        // SAFETY: it was written before the array was published as one that is being filled. The
        // source is alive as long as this array may be found as one.
        unsafe { Self::from_raw(self.filling().as_ref().source) }
    }

    #[inline(always)]
    fn groups(self) -> NonNull<Group<N>> {
        // SAFETY: groups are aligned, and not at the address 0.
        unsafe { NonNull::new_unchecked(self.0.as_ptr().map_addr(|address| address & !(ALIGN - 1))) }.cast()
    }

    /// Returns by how much to shift a hash to get its bucket.
    #[inline(always)]
    fn shift(self) -> u32 {
        self.0.addr().get() as u32 % u64::BITS
    }

    /// Returns whether some entries are still in an older array.
    #[inline(always)]
    pub(super) fn is_filling(self) -> bool {
        self.0.addr().get() & IS_FILLING != 0
    }

    pub(super) fn without_flag(self) -> Self {
        let shift = self.shift() as usize;
        Self(self.groups().cast().map_addr(|address| address | shift), PhantomData)
    }

    /// Returns the first bucket of the source with entries of this unit or later ones.
    pub(super) fn source_bucket(self, unit: u64) -> usize {
        unit as usize * (self.source().len() / self.len()).max(1)
    }

    /// Returns the shift of a hash that gives its unit.
    fn unit_shift(self) -> u32 {
        self.shift().max(self.source().shift())
    }

    /// Returns the array that has the entries of this hash.
    #[inline(always)]
    fn holder(self, hash: u64) -> Self {
        if self.is_filling() { self.moved_or_source(hash) } else { self }
    }

    #[cold]
    fn moved_or_source(self, hash: u64) -> Self {
        // Acquire: pairs with the Release in `Table::step`: the moved entries are seen.
        // litmus: cache-moved
        let moved = self.moved().load(Acquire);
        if hash >> self.unit_shift() < moved { self.without_flag() } else { self.source() }
    }

    pub(super) fn bits(self) -> u32 {
        u64::BITS - self.shift()
    }

    pub(super) fn len(self) -> usize {
        1 << self.bits()
    }

    #[inline(always)]
    fn word(self, bucket: usize) -> NonNull<AtomicBits> {
        // SAFETY: the bucket has a word, before the groups in the same allocation.
        unsafe { self.groups().cast::<AtomicBits>().sub(bucket + 1) }
    }

    #[inline(always)]
    fn group(self, bucket: usize) -> NonNull<Group<N>> {
        // SAFETY: the bucket has a group.
        unsafe { self.groups().add(bucket) }
    }

    #[inline(always)]
    fn part(self, bucket: usize) -> Part<'a, N> {
        debug_assert!(bucket < self.len());
        // SAFETY: the array is alive during `'a`, and has this bucket.
        unsafe { Part { word: self.word(bucket).as_ref(), group: self.group(bucket).as_ref() } }
    }

    #[inline(always)]
    fn bucket(self, hash: Hash) -> usize {
        (hash.get() >> self.shift()) as usize
    }

    #[inline(always)]
    fn first(self, hash: Hash) -> Part<'a, N> {
        let array = self.holder(hash.get());
        array.part(array.bucket(hash))
    }

    /// Finds the entry with this hash that `is_match` accepts. Wait-free.
    #[inline(always)]
    pub(super) fn find(self, hash: Hash, mut is_match: impl FnMut(&N) -> bool) -> Option<NonNull<N>> {
        let first = self.first(hash);
        // Most lookups need a slot. So its cache miss overlaps with that of the word.
        prefetch(first.group);
        let word = first.word();
        let found = first.find(word, hash.tag(), &mut is_match);
        if found.is_some() || !word.leads_on(hash.tag()) {
            return found;
        }
        first.find_later(hash.tag(), is_match)
    }

    /// Inserts an entry whose key is not in the array.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard. The node stays alive until a grace period after it
    /// was removed.
    #[inline(always)]
    pub(super) unsafe fn insert(self, hash: Hash, node: NonNull<N>) {
        let first = self.first(hash);
        let word = first.word();
        match word.free().next() {
            Some(slot) => {
                first.set_word(word.with_tag(slot, hash.tag()));
                first.set_node(slot, node.as_ptr());
            }
            None => first.insert_later(hash.tag(), node),
        }
    }

    /// Replaces an entry by another one with the same key.
    ///
    /// # Safety
    ///
    /// As for [`Array::insert`], and the old entry is in the array.
    pub(super) unsafe fn replace(self, hash: Hash, old: NonNull<N>, new: NonNull<N>) {
        let (part, slot) = self.first(hash).locate(hash.tag(), old).expect("it is in the table");
        part.set_node(slot, new.as_ptr());
    }

    /// Removes an entry. Returns false if it is not in the array.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard.
    #[inline(always)]
    pub(super) unsafe fn remove(self, hash: Hash, node: NonNull<N>) -> bool {
        let first = self.first(hash);
        let Some((part, slot)) = first.locate(hash.tag(), node) else { return false };
        part.set_node(slot, null_mut());
        part.set_word(part.word().without_tag(slot));
        if !std::ptr::eq(part.word, first.word) {
            first.tidy();
        }
        true
    }

    /// Returns whether an entry may have this hash.
    #[inline(always)]
    pub(super) fn may_have(self, hash: Hash) -> bool {
        let first = self.first(hash);
        prefetch_for_write(first.group);
        let word = first.word();
        !word.matches(hash.tag()).is_empty() || word.leads_on(hash.tag())
    }

    /// Prefetches the bucket of a hash, for an update.
    #[inline(always)]
    pub(super) fn prefetch(self, hash: Hash) {
        let first = self.first(hash);
        prefetch_for_write(first.word);
        prefetch_for_write(first.group);
    }

    /// Returns the entries of some buckets.
    pub(super) fn nodes(self, buckets: Range<usize>) -> impl Iterator<Item = NonNull<N>> {
        buckets.flat_map(move |bucket| self.part(bucket).chain()).flat_map(Part::live)
    }

    /// Returns the bucket at the hash `from`.
    pub(super) fn bucket_at(self, from: u64) -> Bucket<'a, N> {
        let array = self.holder(from);
        let number = from >> array.shift();
        Bucket {
            first: array.part(number as usize),
            begins: number << array.shift() == from,
            next: (number + 1 < array.len() as u64).then(|| (number + 1) << array.shift()),
        }
    }
}

/// A bucket, for a walk in the order of hashes.
pub(super) struct Bucket<'a, N> {
    first: Part<'a, N>,
    /// Whether it has no entries with lower hashes than the wanted one.
    pub(super) begins: bool,
    /// The first hash behind it.
    pub(super) next: Option<u64>,
}

impl<'a, N: 'a> Bucket<'a, N> {
    pub(super) fn nodes(&self) -> impl Iterator<Item = NonNull<N>> + use<'a, N> {
        self.first.chain().flat_map(Part::live)
    }
}

impl<'a, N> Part<'a, N> {
    /// Inserts an entry into later segments.
    #[cold]
    fn insert_later(self, tag: Tag, node: NonNull<N>) {
        let mut last = self;
        let with_room = self.chain().skip(1).find(|&part| {
            last = part;
            !part.word().free().is_empty()
        });
        let part = with_room.unwrap_or_else(|| last.add_later());
        // The filter leads to the segment before it shows the entry.
        self.set_word(self.word().with_filter_of(tag));
        let slot = part.word().free().next().expect("the segment has room");
        part.set_word(part.word().with_tag(slot, tag));
        part.set_node(slot, node.as_ptr());
    }

    /// Finds the segment and the slot of a node.
    #[inline(always)]
    fn locate(self, tag: Tag, node: NonNull<N>) -> Option<(Part<'a, N>, usize)> {
        let word = self.word();
        match self.position(word.matches(tag), node) {
            Some(slot) => Some((self, slot)),
            None if word.leads_on(tag) => self.locate_later(tag, node),
            None => None,
        }
    }

    #[cold]
    fn locate_later(self, tag: Tag, node: NonNull<N>) -> Option<(Part<'a, N>, usize)> {
        self.chain().skip(1).find_map(|part| Some((part, part.position(part.word().matches(tag), node)?)))
    }

    /// Clears the bits of the filter that stand for no entry.
    #[cold]
    fn tidy(self) {
        let exact = self.chain().skip(1).fold(self.word().without_filter(), |exact, part| {
            let word = part.word();
            word.live().fold(exact, |exact, slot| exact.with_filter_of(word.tag(slot)))
        });
        self.set_word(exact);
    }

    /// Continues a lookup in later segments. Not inlined, so that most lookups take few
    /// instructions.
    #[inline(never)]
    fn find_later(self, tag: Tag, mut is_match: impl FnMut(&N) -> bool) -> Option<NonNull<N>> {
        self.chain().skip(1).find_map(|part| part.find(part.word(), tag, &mut is_match))
    }

    /// Finds the entry with this tag in these slots that `is_match` accepts.
    #[inline(always)]
    fn find(self, word: Word, tag: Tag, is_match: &mut impl FnMut(&N) -> bool) -> Option<NonNull<N>> {
        let mut nodes = word.matches(tag).filter_map(|slot| self.node(slot));
        // SAFETY: it is in the table, or was when the read section of the array had begun.
        nodes.find(|node| is_match(unsafe { node.as_ref() }))
    }
}

/// Frees a segment, and those after it.
///
/// # Safety
///
/// They were boxes, no thread uses them any more, and they are freed once.
unsafe fn free_segments<N>(first: NonNull<()>) {
    let mut next = first.as_ptr().cast();
    while let Some(segment) = NonNull::new(next) {
        // SAFETY: guaranteed by the caller.
        let segment: Box<Segment<N>> = unsafe { Box::from_raw(segment.as_ptr()) };
        // Relaxed: no other thread uses it.
        next = segment.group.later.load(Relaxed);
    }
}
