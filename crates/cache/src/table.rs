//! The table of a shard: buckets of pointers to nodes, as in the maps' [bucket
//! table](relativist_bucket), but simpler: all updates run under the lock of the shard.
//!
//! A bucket has a [`Word`] with the tags of its slots, and a [`Group`] of slots. Words and groups
//! lie in one array, so a lookup computes both addresses from the hash. A bucket with more entries
//! continues in *later segments*.
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
//! one loaded the mark before it was raised, so what it finds was true during the lookup. Arrays
//! are freed after a grace period, with their later segments.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

use relativist_bucket::{Hash, Slots, Tag, Word};
use relativist_core::hint::cold_path;
use relativist_core::memory;
use relativist_core::prefetch::{prefetch, prefetch_for_write};
use relativist_core::sync::{Acquire, AtomicBits, AtomicPtr, Relaxed, Release};
use relativist_rcu::Guard;

/// The mean number of entries of a bucket above which the table grows.
const MAX_LOAD: usize = if cfg!(relativist_loom) { 1 } else { 5 };

/// Bounds on the binary logarithm of the number of buckets. A shift needs at least one bit.
const MIN_BITS: u32 = 1;
const MAX_BITS: u32 = 40;

/// How many parts of a table one update moves. (A part is a bucket of the array that has fewer.) A
/// table that grows is moved long before it would grow again.
const STEP: u64 = if cfg!(relativist_loom) { 1 } else { 16 };

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

/// The table of a shard. Updates need the lock of the shard.
///
/// The pointer leads to the groups. The words lie before them, in descending order, and [`Filling`]
/// before the words. The low bits are the number of bits by which to shift a hash to get its
/// bucket, and whether the array is being filled. So a lookup learns all that it needs by one load.
pub(super) struct Table<N>(AtomicPtr<u8>, PhantomData<Owned<N>>);

/// The function makes the table invariant in the type of its nodes, as an atomic pointer is.
type Owned<N> = (fn(N) -> N, *mut N);

// SAFETY: nodes are shared with, moved to and dropped on any thread.
unsafe impl<N: Send + Sync> Send for Table<N> {}
// SAFETY: as above.
unsafe impl<N: Send + Sync> Sync for Table<N> {}

/// An array of buckets that is alive during `'a`: the pointer in a [`Table`].
pub(super) struct Array<'a, N>(NonNull<u8>, PhantomData<(&'a (), Owned<N>)>);

/// Where the entries of an array come from while it is being filled.
struct Filling {
    /// The older array.
    source: *mut u8,
    /// The number of parts that were moved.
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
        // SAFETY: it is freed with the array.
        let segment = unsafe { segment.as_ref() };
        Some(Part { word: &segment.word, group: &segment.group })
    }

    fn add_later(self) -> Part<'a, N> {
        let segment = NonNull::from(Box::leak(Box::new(Segment { group: Group::new(), word: AtomicBits::new(0) })));
        // Release: pairs with the Acquire in `later`.
        // litmus: cache-later
        self.group.later.store(segment.as_ptr(), Release);
        // SAFETY: it is freed with the array.
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
    fn allocate(bits: u32) -> Option<Self> {
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

    fn layout(bits: u32) -> Option<Layout> {
        let len = 1usize.checked_shl(bits).filter(|_| (MIN_BITS..=MAX_BITS).contains(&bits))?;
        let groups = Layout::array::<Group<N>>(len).ok()?;
        Layout::from_size_align(Self::offset(bits).checked_add(groups.size())?, ALIGN).ok()
    }

    fn bytes(self) -> usize {
        Self::layout(self.bits()).map_or(0, |layout| layout.size())
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
    unsafe fn free(self) {
        if self.is_filling() {
            // SAFETY: guaranteed by the caller.
            unsafe { self.source().free() };
        }
        for bucket in 0..self.len() {
            // Relaxed: no other thread uses the array.
            let mut later = self.part(bucket).group.later.load(Relaxed);
            while let Some(segment) = NonNull::new(later) {
                // SAFETY: it was a box, and no other thread uses it.
                let segment = unsafe { Box::from_raw(segment.as_ptr()) };
                // Relaxed: as above.
                later = segment.group.later.load(Relaxed);
            }
            #[cfg(relativist_loom)]
            // SAFETY: valid, and not used again. Loom checks that all accesses happened before.
            unsafe {
                self.word(bucket).drop_in_place();
                self.group(bucket).drop_in_place();
            }
        }
        let layout = Self::layout(self.bits()).expect("it was allocated with this layout");
        #[cfg(relativist_loom)]
        // SAFETY: as above.
        unsafe {
            self.filling().drop_in_place();
        }
        // SAFETY: guaranteed by the caller.
        unsafe { memory::free(self.filling().cast(), layout) };
    }

    /// Returns the array from which this one is being filled.
    fn source(self) -> Self {
        debug_assert!(self.is_filling());
        // SAFETY: it was written before the array was published as one that is being filled. The
        // source is alive as long as this array may be found as one.
        Self(unsafe { NonNull::new_unchecked(self.filling().as_ref().source) }, PhantomData)
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
    fn is_filling(self) -> bool {
        self.0.addr().get() & IS_FILLING != 0
    }

    fn with_flag(self) -> Self {
        Self(self.0.map_addr(|address| address | IS_FILLING), PhantomData)
    }

    fn without_flag(self) -> Self {
        let shift = self.shift() as usize;
        Self(self.groups().cast().map_addr(|address| address | shift), PhantomData)
    }

    /// Returns the shift of a hash that gives its part.
    fn part_shift(self) -> u32 {
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
        // SAFETY: alive, as the array is.
        let moved = unsafe { self.filling().as_ref() }.moved.load(Acquire);
        if hash >> self.part_shift() < moved { self.without_flag() } else { self.source() }
    }

    fn bits(self) -> u32 {
        u64::BITS - self.shift()
    }

    fn len(self) -> usize {
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
        for slot in word.matches(hash.tag()) {
            let Some(node) = first.node(slot) else { continue };
            // SAFETY: it is in the table, or was when the read section of the array had begun.
            if is_match(unsafe { node.as_ref() }) {
                return Some(node);
            }
        }
        if !word.leads_on(hash.tag()) {
            return None;
        }
        // SAFETY: as above.
        first.find_later(hash.tag(), |node| is_match(unsafe { node.as_ref() }))
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

impl<N> Part<'_, N> {
    /// Continues a lookup in later segments. Not inlined, so that most lookups take few
    /// instructions.
    #[inline(never)]
    fn find_later(self, tag: Tag, mut is_match: impl FnMut(NonNull<N>) -> bool) -> Option<NonNull<N>> {
        for part in self.chain().skip(1) {
            for slot in part.word().matches(tag) {
                let Some(node) = part.node(slot) else { continue };
                if is_match(node) {
                    return Some(node);
                }
            }
        }
        None
    }
}

impl<N> Table<N> {
    /// Creates an empty table. `None` if there is no memory.
    pub(super) fn new() -> Option<Self> {
        let array = Array::<N>::allocate(MIN_BITS)?;
        Some(Self(AtomicPtr::new(array.0.as_ptr()), PhantomData))
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
        let raw = self.0.load(Acquire);
        // SAFETY: never null, and freed a grace period after it was replaced.
        unsafe { Array(NonNull::new_unchecked(raw), PhantomData) }
    }

    /// Returns the array for an update.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard during `'l`.
    #[inline(always)]
    unsafe fn locked<'l>(&self) -> Array<'l, N>
    where
        N: 'l,
    {
        // Relaxed: only the holder of the lock replaces it.
        let raw = self.0.load(Relaxed);
        // SAFETY: never null, and only the holder of the lock replaces it.
        unsafe { Array(NonNull::new_unchecked(raw), PhantomData) }
    }

    /// Finds the first of the entries that have the tag of this hash that `is_match` accepts.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard.
    #[inline(always)]
    pub(super) unsafe fn find_locked(
        &self,
        hash: Hash,
        mut is_match: impl FnMut(NonNull<N>) -> bool,
    ) -> Option<NonNull<N>> {
        // SAFETY: guaranteed by the caller.
        let first = unsafe { self.locked() }.first(hash);
        let word = first.word();
        for slot in word.matches(hash.tag()) {
            let Some(node) = first.node(slot) else { continue };
            if is_match(node) {
                return Some(node);
            }
        }
        if !word.leads_on(hash.tag()) {
            return None;
        }
        first.find_later(hash.tag(), is_match)
    }

    /// Inserts an entry whose key is not in the table.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard. The node stays alive until a grace period after it
    /// was removed.
    #[inline(always)]
    pub(super) unsafe fn insert(&self, hash: Hash, node: NonNull<N>) {
        // SAFETY: guaranteed by the caller.
        insert_into(unsafe { self.locked() }, hash, node);
    }

    /// Replaces an entry by another one with the same key.
    ///
    /// # Safety
    ///
    /// As for [`Table::insert`], and the old entry is in the table.
    pub(super) unsafe fn replace(&self, hash: Hash, old: NonNull<N>, new: NonNull<N>) {
        // SAFETY: guaranteed by the caller.
        let (part, slot) = unsafe { self.locate(hash, old) }.expect("it is in the table");
        part.set_node(slot, new.as_ptr());
    }

    /// Removes an entry. Returns false if it is not in the table.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard.
    #[inline(always)]
    pub(super) unsafe fn remove(&self, hash: Hash, node: NonNull<N>) -> bool {
        // SAFETY: guaranteed by the caller.
        let Some((part, slot)) = (unsafe { self.locate(hash, node) }) else { return false };
        part.set_node(slot, null_mut());
        part.set_word(part.word().without_tag(slot));
        // SAFETY: guaranteed by the caller.
        let first = unsafe { self.locked() }.first(hash);
        if !std::ptr::eq(part.word, first.word) {
            tidy(first);
        }
        true
    }

    /// # Safety
    ///
    /// The caller holds the lock of the shard.
    #[inline(always)]
    unsafe fn locate<'l>(&self, hash: Hash, node: NonNull<N>) -> Option<(Part<'l, N>, usize)>
    where
        N: 'l,
    {
        // SAFETY: guaranteed by the caller.
        let first = unsafe { self.locked() }.first(hash);
        let in_part = |part: Part<'l, N>| Some((part, part.position(part.word().matches(hash.tag()), node)?));
        let found = in_part(first);
        if found.is_some() || !first.word().leads_on(hash.tag()) {
            return found;
        }
        locate_later(first, hash.tag(), node)
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
            let wanted = if is_sparse { len * 2 } else { room * 2 };
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
        let Some(array) = (bits != source.bits()).then(|| Array::<N>::allocate(bits)).flatten() else { return false };
        // SAFETY: this thread alone has the array.
        unsafe { array.filling().as_mut() }.source = source.0.as_ptr();
        // Release: pairs with the Acquire in `array`.
        // litmus: cache-array
        self.0.store(array.with_flag().0.as_ptr(), Release);
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
        let (source, new, shift) = (array.source(), array.without_flag(), array.part_shift());
        // SAFETY: alive, as the array is.
        let moved = unsafe { &array.filling().as_ref().moved };
        let parts = 1 << (u64::BITS - shift);
        // Relaxed: written under the lock only.
        let from = moved.load(Relaxed);
        let to = (from + STEP).min(parts);
        let end = source.len() as u64;
        let first_bucket = |part| if part == parts { end } else { (part << shift) >> source.shift() };
        let live = || {
            (first_bucket(from)..first_bucket(to))
                .flat_map(|bucket| source.part(bucket as usize).chain())
                .flat_map(Part::live)
        };
        // In three rounds, so that no step of a round waits for memory.
        live().for_each(|node| prefetch(node.as_ptr()));
        live().for_each(prefetch_hash);
        live().for_each(|node| insert_into(new, hash(node), node));
        // Release: pairs with the Acquire in `moved_or_source`.
        // litmus: cache-moved
        moved.store(to, Release);
        if to == parts {
            // SAFETY: guaranteed by the caller. Nothing is in the source alone.
            unsafe { self.publish(new, source, guard) };
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
        unsafe { self.publish(empty, self.locked(), guard) };
        true
    }

    /// Makes an array that of the table, and frees an old one after a grace period.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard. The table has no other use for the old array.
    unsafe fn publish(&self, new: Array<'_, N>, old: Array<'_, N>, guard: &Guard) {
        // Release: pairs with the Acquire in `array`.
        // litmus: cache-array
        self.0.store(new.0.as_ptr(), Release);
        let bytes = old.bytes() + if old.is_filling() { old.source().bytes() } else { 0 };
        // SAFETY: later lookups do not find the old array. It has no references to types with a
        // lifetime that could end before: its nodes are not dropped.
        unsafe { guard.defer_raw(old.0.cast(), bytes, |raw| Array::<N>(raw.cast(), PhantomData).free()) };
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

/// Inserts an entry whose key is not in the array. The caller holds the lock of the shard, or alone
/// has the array.
#[inline(always)]
fn insert_into<N>(array: Array<'_, N>, hash: Hash, node: NonNull<N>) {
    let first = array.first(hash);
    let word = first.word();
    match word.free().next() {
        Some(slot) => {
            first.set_word(word.with_tag(slot, hash.tag()));
            first.set_node(slot, node.as_ptr());
        }
        None => insert_later(first, hash.tag(), node),
    }
}

#[cold]
fn insert_later<N>(first: Part<'_, N>, tag: Tag, node: NonNull<N>) {
    let mut last = first;
    let with_room = first.chain().skip(1).find(|&part| {
        last = part;
        !part.word().free().is_empty()
    });
    let part = with_room.unwrap_or_else(|| last.add_later());
    // The filter leads to the segment before it shows the entry.
    first.set_word(first.word().with_filter_of(tag));
    let slot = part.word().free().next().expect("the segment has room");
    part.set_word(part.word().with_tag(slot, tag));
    part.set_node(slot, node.as_ptr());
}

#[cold]
fn locate_later<N>(first: Part<'_, N>, tag: Tag, node: NonNull<N>) -> Option<(Part<'_, N>, usize)> {
    first.chain().skip(1).find_map(|part| Some((part, part.position(part.word().matches(tag), node)?)))
}

/// Clears the bits of the filter that stand for no entry.
#[cold]
fn tidy<N>(first: Part<'_, N>) {
    let exact = first.chain().skip(1).fold(first.word().without_filter(), |exact, part| {
        let word = part.word();
        word.live().fold(exact, |exact, slot| exact.with_filter_of(word.tag(slot)))
    });
    first.set_word(exact);
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
            unsafe { table.insert(hash(*node), NonNull::from(node)) };
            fit(before + 1);
            if before % 400 == 0 {
                check(&table, &nodes[..=before]);
            }
        }
        for (after, node) in nodes.iter().enumerate().rev() {
            // SAFETY: as above.
            assert!(unsafe { table.remove(hash(*node), NonNull::from(node)) });
            fit(after);
            if after % 400 == 0 {
                check(&table, &nodes[..after]);
            }
        }
        assert_eq!(table.array(&read()).bits(), MIN_BITS);
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
                    table.insert(hash(*node), NonNull::from(node));
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
