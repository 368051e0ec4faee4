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
//! **Resizing** fills another array under the lock, and publishes it. The old one does not change
//! any more. A lookup that still uses it began before the new one was published, so what it finds
//! was true during the lookup. Arrays are freed after a grace period, with their later segments.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

use relativist_bucket::{Hash, Slots, Tag, Word};
use relativist_core::memory;
use relativist_core::prefetch::{prefetch, prefetch_for_write};
use relativist_core::sync::{Acquire, AtomicBits, AtomicPtr, Relaxed, Release};
use relativist_rcu::Guard;

/// The mean number of entries of a bucket above which the table grows.
const MAX_LOAD: usize = if cfg!(relativist_loom) { 1 } else { 5 };

/// Bounds on the binary logarithm of the number of buckets. A shift needs at least one bit.
const MIN_BITS: u32 = 1;
const MAX_BITS: u32 = 40;

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
/// The pointer leads to the groups. The words lie before them, in descending order. The low bits
/// are the number of bits by which to shift a hash to get its bucket. So a lookup learns all that
/// it needs by one load.
pub(super) struct Table<N>(AtomicPtr<u8>, PhantomData<Owned<N>>);

/// The function makes the table invariant in the type of its nodes, as an atomic pointer is.
type Owned<N> = (fn(N) -> N, *mut N);

// SAFETY: nodes are shared with, moved to and dropped on any thread.
unsafe impl<N: Send + Sync> Send for Table<N> {}
// SAFETY: as above.
unsafe impl<N: Send + Sync> Sync for Table<N> {}

/// An array of buckets that is alive during `'a`.
pub(super) struct Array<'a, N> {
    groups: NonNull<Group<N>>,
    /// By how much to shift a hash to get its bucket.
    shift: u32,
    _of: PhantomData<(&'a (), Owned<N>)>,
}

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
        let groups = unsafe { memory.add(Self::offset(bits)) }.cast();
        let array = Self { groups, shift: u64::BITS - bits, _of: PhantomData };
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
        Layout::from_size_align(Self::offset(bits).checked_add(groups.size())?, 64).ok()
    }

    /// Returns where the groups begin.
    #[inline(always)]
    fn offset(bits: u32) -> usize {
        (size_of::<AtomicBits>() << bits).next_multiple_of(64)
    }

    /// Frees the array, and the later segments of its buckets.
    ///
    /// # Safety
    ///
    /// No thread uses the array any more, and it is freed once.
    unsafe fn free(self) {
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
        // SAFETY: guaranteed by the caller. The groups are at this offset.
        unsafe { memory::free(self.groups.cast::<u8>().sub(Self::offset(self.bits())), layout) };
    }

    fn into_raw(self) -> NonNull<u8> {
        self.groups.cast().map_addr(|address| address | self.shift as usize)
    }

    /// # Safety
    ///
    /// `raw` came from [`Array::into_raw`] of an array of these types, which is alive during `'a`.
    #[inline(always)]
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        const SHIFT: usize = 63;
        let shift = (raw.addr().get() & SHIFT) as u32;
        // SAFETY: groups are aligned to 64 bytes, and not at the address 0.
        let groups = unsafe { NonNull::new_unchecked(raw.as_ptr().map_addr(|address| address & !SHIFT)) };
        Self { groups: groups.cast(), shift, _of: PhantomData }
    }

    fn bits(self) -> u32 {
        u64::BITS - self.shift
    }

    fn len(self) -> usize {
        1 << self.bits()
    }

    #[inline(always)]
    fn word(self, bucket: usize) -> NonNull<AtomicBits> {
        // SAFETY: the bucket has a word, before the groups in the same allocation.
        unsafe { self.groups.cast::<AtomicBits>().sub(bucket + 1) }
    }

    #[inline(always)]
    fn group(self, bucket: usize) -> NonNull<Group<N>> {
        // SAFETY: the bucket has a group.
        unsafe { self.groups.add(bucket) }
    }

    #[inline(always)]
    fn part(self, bucket: usize) -> Part<'a, N> {
        debug_assert!(bucket < self.len());
        // SAFETY: the array is alive during `'a`, and has this bucket.
        unsafe { Part { word: self.word(bucket).as_ref(), group: self.group(bucket).as_ref() } }
    }

    #[inline(always)]
    fn bucket(self, hash: Hash) -> usize {
        (hash.get() >> self.shift) as usize
    }

    #[inline(always)]
    fn first(self, hash: Hash) -> Part<'a, N> {
        self.part(self.bucket(hash))
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
        let bucket = self.bucket(hash);
        prefetch_for_write(self.word(bucket).as_ptr());
        prefetch_for_write(self.group(bucket).as_ptr());
    }

    /// Returns whether a bucket begins at this hash.
    pub(super) fn begins_at(self, hash: u64) -> bool {
        hash & !(u64::MAX << self.shift) == 0
    }

    /// Returns the entries of the bucket at the hash `from`, and the first hash behind the bucket.
    pub(super) fn bucket_at(self, from: u64) -> (impl Iterator<Item = NonNull<N>>, Option<u64>) {
        let bucket = (from >> self.shift) as usize;
        let next = (bucket + 1 < self.len()).then(|| (bucket as u64 + 1) << self.shift);
        (self.part(bucket).chain().flat_map(Part::live), next)
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
        Some(Self(AtomicPtr::new(array.into_raw().as_ptr()), PhantomData))
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
        unsafe { Array::from_raw(NonNull::new_unchecked(raw)) }
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
        unsafe { Array::from_raw(NonNull::new_unchecked(raw)) }
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

    /// Returns the entries that a table of `len` entries should have room for, if that differs from
    /// its present size.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard.
    #[inline(always)]
    pub(super) unsafe fn wanted_size(&self, len: usize) -> Option<usize> {
        // SAFETY: guaranteed by the caller.
        let room = Self::room(unsafe { self.locked() }.bits());
        if len > room {
            return Some(room * 2);
        }
        (len < room / 8 && room > Self::room(MIN_BITS)).then_some(len * 2)
    }

    /// Moves all entries to an array with room for `entries`. If there is no memory for it, changes
    /// nothing. `hash` returns the hash of an entry, and `prefetch_hash` prefetches it.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the shard.
    #[cold]
    pub(super) unsafe fn resize(
        &self,
        entries: usize,
        hash: impl Fn(NonNull<N>) -> Hash,
        prefetch_hash: impl Fn(NonNull<N>),
        guard: &Guard,
    ) {
        let bits = Self::bits_for(entries);
        // SAFETY: guaranteed by the caller.
        let old: Array<'_, N> = unsafe { self.locked() };
        if old.bits() == bits {
            return;
        }
        let Some(new) = Array::allocate(bits) else { return };
        for bucket in 0..old.len() {
            // In two steps, so that no step waits for memory.
            if bucket + 4 < old.len() {
                old.part(bucket + 4).live().for_each(|node| prefetch(node.as_ptr()));
                old.part(bucket + 2).live().for_each(&prefetch_hash);
            }
            for node in old.part(bucket).chain().flat_map(Part::live) {
                insert_into(new, hash(node), node);
            }
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.publish(new, guard) };
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
        unsafe { self.publish(empty, guard) };
        true
    }

    /// # Safety
    ///
    /// The caller holds the lock of the shard.
    unsafe fn publish(&self, new: Array<'_, N>, guard: &Guard) {
        // SAFETY: guaranteed by the caller.
        let old: Array<'_, N> = unsafe { self.locked() };
        // Release: pairs with the Acquire in `array`.
        // litmus: cache-array
        self.0.store(new.into_raw().as_ptr(), Release);
        let bytes = Array::<N>::layout(old.bits()).map_or(0, |layout| layout.size());
        // SAFETY: later lookups do not find the old array. It has no references to types with a
        // lifetime that could end before: its nodes are not dropped.
        unsafe { guard.defer_raw(old.into_raw().cast(), bytes, |raw| Array::<N>::from_raw(raw.cast()).free()) };
    }

    /// Removes all entries, and passes them to `removed`.
    pub(super) fn drain(&mut self, mut removed: impl FnMut(NonNull<N>)) {
        // SAFETY: this thread alone uses the table.
        let array: Array<'_, N> = unsafe { self.locked() };
        for bucket in 0..array.len() {
            let first = array.part(bucket);
            first.chain().flat_map(Part::live).for_each(&mut removed);
            first.chain().for_each(|part| part.set_word(Word::EMPTY));
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
