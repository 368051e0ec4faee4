//! Items: one allocation each, holding the table's link, a header, the key and the value.
//!
//! ```text
//! 0      16       24       28      32          36        37      38         40          40 + key length
//! | link | number | expiry | flags | value len | key len | marks | accessed | key bytes | value bytes | given unique |
//! ```
//!
//! The number says which items were stored before a flush, so it is always one that was drawn, and rises. It is the item's
//! unique, too, unless a client has given one: that stands behind the value then (8 bytes, [`Marks::GIVEN_UNIQUE`]).
//!
//! `accessed` is the second of the last access modulo 2^16: two bytes for a number that only debugging commands tell.
//!
//! The overhead of an item is [`ITEM_OVERHEAD`] = 40 bytes, plus what the allocator rounds up and its share of the bucket
//! array (8 bytes per bucket, 11 to 64 per item).
//!
//! An item is written while it is a [`Draft`], owned by one thread. Once in the table it is shared and never changes, but for
//! its expiry, marks and access time, which are atomic: readers copy values without a lock, so a new value is always a new
//! item.

use super::expiry::Expiry;
use super::memory::{self, Memory, OutOfMemory};
use super::{Hit, New, Value};
use relativist::raw::{Hash, Link};
use std::alloc::{Layout, alloc, dealloc};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{BitAnd, BitOr};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

/// The longest key, in bytes.
pub const MAX_KEY: usize = 250;

/// Bytes that an item occupies besides its key and value.
pub const ITEM_OVERHEAD: usize = size_of::<Item>();

/// The header. The bytes of key and value follow it in the same allocation: out of the reach of a `&Item`, so items are
/// handed around as [`ItemRef`].
#[repr(C)]
struct Item {
    /// First, so that a pointer to the link is a pointer to the item.
    link: Link,
    /// Drawn when it was linked; see the module's documentation.
    number: u64,
    expiry: AtomicU32,
    flags: u32,
    value_len: u32,
    key_len: u8,
    /// [`Marks`]: what clients have done with it, as the meta protocol tells and needs.
    marks: AtomicU8,
    /// When it was last fetched, for `mg l`, `me` and the dumps.
    accessed: AtomicU16,
}

/// Accesses are noted when the last one noted is that many seconds old, so that a hot item is not written all the time.
const ACCESS_RESOLUTION: u16 = 60;

/// Bytes of a unique behind the value.
const GIVEN_UNIQUE: usize = size_of::<u64>();

/// What has happened to an item.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Marks(u8);

impl Marks {
    /// Nothing.
    pub const NONE: Marks = Marks(0);
    /// It was fetched since it was stored.
    pub const FETCHED: Marks = Marks(1);
    /// It was declared out of date, but may be served until somebody has a new value (`md I`).
    pub const STALE: Marks = Marks(1 << 1);
    /// A client was told that it is the one to store a new value (the meta protocol's `W`).
    pub const WON: Marks = Marks(1 << 2);
    /// Its key was given in base64, and is told that way.
    pub const ENCODED_KEY: Marks = Marks(1 << 3);
    /// Its unique was given by a client, and stands behind the value.
    const GIVEN_UNIQUE: Marks = Marks(1 << 4);

    /// Whether any of `marks` is among these.
    pub fn has(self, marks: Marks) -> bool {
        self.0 & marks.0 != 0
    }
}

impl BitOr for Marks {
    type Output = Marks;

    fn bitor(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }
}

impl BitAnd for Marks {
    type Output = Marks;

    fn bitand(self, other: Marks) -> Marks {
        Marks(self.0 & other.0)
    }
}

/// An item that is linked, or was, and stays allocated for `'a`.
#[derive(Clone, Copy)]
pub(super) struct ItemRef<'a> {
    /// Good for the whole allocation.
    item: NonNull<Item>,
    lifetime: PhantomData<&'a Item>,
}

impl<'a> ItemRef<'a> {
    /// The item that `link` is embedded in.
    ///
    /// # Safety
    /// `link` comes from [`Draft::into_link`], directly or by way of the table, and the item stays allocated for `'a`.
    pub(super) unsafe fn of_link(link: NonNull<Link>) -> ItemRef<'a> {
        // The link is the first field of a `repr(C)` struct, so the address is the item's.
        ItemRef { item: link.cast(), lifetime: PhantomData }
    }

    fn header(self) -> &'a Item {
        // SAFETY: the promise made to `of_link`. Nobody has a mutable reference: items are shared once they are linked.
        unsafe { self.item.as_ref() }
    }

    /// `length` of the bytes behind the header, from `start` on.
    ///
    /// # Safety
    /// The item has them.
    unsafe fn bytes(self, start: usize, length: usize) -> &'a [u8] {
        // SAFETY: within the allocation that `item` points to, by the caller's promise; initialised by `Draft::new`, and not
        // written again.
        unsafe { NonNull::slice_from_raw_parts(self.item.add(1).cast::<u8>().add(start), length).as_ref() }
    }

    pub(super) fn key(self) -> &'a [u8] {
        // SAFETY: the first bytes are the key.
        unsafe { self.bytes(0, self.header().key_len as usize) }
    }

    pub(super) fn value(self) -> &'a [u8] {
        let header = self.header();
        // SAFETY: the value follows the key.
        unsafe { self.bytes(header.key_len as usize, header.value_len as usize) }
    }

    /// The number drawn for it: larger than those of all items linked before.
    pub(super) fn number(self) -> u64 {
        self.header().number
    }

    fn marks(self) -> Marks {
        // Relaxed: the byte stands for itself, and bucket locks order those who decide by it.
        Marks(self.header().marks.load(Ordering::Relaxed))
    }

    /// Marks it.
    pub(super) fn mark(self, marks: Marks) {
        if self.marks() & marks != marks {
            // Relaxed: as in `marks`.
            self.header().marks.fetch_or(marks.0, Ordering::Relaxed);
        }
    }

    fn unique(self) -> u64 {
        if !self.marks().has(Marks::GIVEN_UNIQUE) {
            return self.number();
        }
        let header = self.header();
        // SAFETY: the mark is set on items that have these bytes behind the value, and only when they are made.
        let bytes = unsafe { self.bytes(header.key_len as usize + header.value_len as usize, GIVEN_UNIQUE) };
        u64::from_ne_bytes(bytes.try_into().expect("so many were taken"))
    }

    pub(super) fn expiry(self) -> Expiry {
        // Relaxed: the word stands for itself, and bucket locks order updates of the same item.
        Expiry::from_bits(self.header().expiry.load(Ordering::Relaxed))
    }

    pub(super) fn set_expiry(self, expiry: Expiry) {
        // Relaxed: as in `expiry`.
        self.header().expiry.store(expiry.to_bits(), Ordering::Relaxed);
    }

    /// Notes an access at `now`, if the one noted is old or was the store. Writes nothing otherwise.
    pub(super) fn note_access(self, now: u32) {
        if self.idle(now) >= ACCESS_RESOLUTION || !self.marks().has(Marks::FETCHED) {
            self.note_access_always(now);
            self.mark(Marks::FETCHED);
        }
    }

    /// Notes an access at `now`.
    pub(super) fn note_access_always(self, now: u32) {
        // Relaxed: the number stands for itself.
        self.header().accessed.store(now as u16, Ordering::Relaxed);
    }

    fn idle(self, now: u32) -> u16 {
        // Relaxed: as in `note_access_always`.
        (now as u16).wrapping_sub(self.header().accessed.load(Ordering::Relaxed))
    }

    /// What clients see of it at `now`.
    pub(super) fn hit(self, now: u32) -> Hit<'a> {
        Hit {
            key: self.key(),
            flags: self.header().flags,
            unique: self.unique(),
            value: self.value(),
            expiry: self.expiry(),
            idle: self.idle(now).into(),
            marks: self.marks(),
            size: self.size(),
            now,
        }
    }

    /// Bytes of the whole allocation.
    pub(super) fn size(self) -> usize {
        self.header().size()
    }
}

impl Item {
    fn size(&self) -> usize {
        // Relaxed: the mark was set when the item was made, if at all.
        let given = Marks(self.marks.load(Ordering::Relaxed)).has(Marks::GIVEN_UNIQUE);
        size_for(self.key_len as usize, self.value_len as usize, given)
    }
}

/// What goes into a new item: [`New`], with its value spelled out.
#[derive(Clone, Copy)]
pub(super) struct Recipe<'a> {
    hash: Hash,
    key: &'a [u8],
    flags: u32,
    expiry: Expiry,
    /// The value, in two pieces that are joined: either may be empty.
    value: [&'a [u8]; 2],
    unique: Option<u64>,
    marks: Marks,
    now: u32,
}

impl<'a> Recipe<'a> {
    /// The recipe for `new` under `key`, in the place of an item with the value `present`. `text` is room for a number.
    pub(super) fn new(
        hash: Hash,
        key: &'a [u8],
        new: &New<'a>,
        present: &'a [u8],
        text: &'a mut String,
        now: u32,
    ) -> Recipe<'a> {
        let value = match new.value {
            Value::Whole(bytes) => [bytes, b""],
            Value::Kept => [present, b""],
            Value::Appended(bytes) => [present, bytes],
            Value::Prepended(bytes) => [bytes, present],
            Value::Number(number) => {
                *text = format!("{number:<width$}", width = present.len());
                [text.as_bytes(), b""]
            }
        };
        let &New { flags, expiry, unique, marks, .. } = new;
        Recipe { hash, key, flags, expiry, value, unique, marks, now }
    }

    /// Bytes that the item will occupy.
    fn size(&self) -> usize {
        size_for(self.key.len(), self.value_len(), self.unique.is_some())
    }

    fn value_len(&self) -> usize {
        self.value[0].len() + self.value[1].len()
    }
}

/// An item that is not in the table: owned here, freed on drop, its bytes reserved from a budget.
pub(super) struct Draft<'m> {
    item: NonNull<Item>,
    memory: &'m Memory,
}

impl<'m> Draft<'m> {
    /// Allocates and fills an item within the budget, of which `table` bytes are the table's.
    pub(super) fn new(recipe: &Recipe<'_>, memory: &'m Memory, table: usize) -> Result<Draft<'m>, OutOfMemory> {
        let size = recipe.size();
        memory.reserve(size, table)?;
        // SAFETY: the size is not zero, it includes the header.
        let Some(item) = NonNull::new(unsafe { alloc(layout(size)) }) else {
            memory.release(size);
            return Err(OutOfMemory { requested: size });
        };
        let item = item.cast::<Item>();
        // SAFETY: fresh memory of `layout(size)`, which holds a header and the bytes of this recipe.
        unsafe { write(item, recipe) };
        Ok(Draft { item, memory })
    }

    /// Gives the item its number and hands it over to be linked.
    pub(super) fn into_link(self, number: u64) -> NonNull<Link> {
        let mut item = ManuallyDrop::new(self).item;
        // SAFETY: the draft owned the item, so this is the only reference.
        unsafe { item.as_mut() }.number = number;
        item.cast()
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // SAFETY: the draft owns the item, and its memory is not used after this.
        let size = unsafe { free(self.item) };
        self.memory.release(size);
    }
}

/// Frees an item for good, and tells the budget.
///
/// # Safety
/// `link` is the link of an item that was counted as retired, and nobody refers to it any more.
pub(super) unsafe fn reclaim(link: NonNull<()>) {
    // SAFETY: the caller's promise.
    let size = unsafe { free(link.cast()) };
    memory::reclaimed(size);
}

/// Frees the item of a `link` whose budget ends with it: that of a table torn down.
///
/// # Safety
/// `link` is the link of an item to which nobody refers any more.
pub(super) unsafe fn free_unshared(link: NonNull<Link>) {
    // SAFETY: the caller's promise.
    unsafe { free(link.cast()) };
}

/// # Safety
/// `item` points to memory of `layout(recipe.size())` to which nobody else refers.
unsafe fn write(item: NonNull<Item>, recipe: &Recipe<'_>) {
    let given = recipe.unique.map(u64::to_ne_bytes);
    let given = given.as_ref().map_or(&b""[..], |bytes| bytes);
    let marks = if given.is_empty() { recipe.marks } else { recipe.marks | Marks::GIVEN_UNIQUE };
    let header = Item {
        link: Link::new(recipe.hash),
        number: 0,
        expiry: AtomicU32::new(recipe.expiry.to_bits()),
        flags: recipe.flags,
        value_len: u32::try_from(recipe.value_len()).expect("values are far below 4 GiB"),
        key_len: u8::try_from(recipe.key.len()).expect("keys are at most 250 bytes"),
        marks: AtomicU8::new(marks.0),
        accessed: AtomicU16::new(recipe.now as u16),
    };
    // SAFETY: the memory is large and aligned enough for the header (1), and for key, value and a given unique after it (2);
    // sources are slices elsewhere, so nothing overlaps.
    unsafe {
        item.write(header); // (1)
        let mut end = item.add(1).cast::<u8>();
        for piece in [recipe.key, recipe.value[0], recipe.value[1], given] {
            end.copy_from_nonoverlapping(NonNull::from(piece).cast(), piece.len()); // (2)
            end = end.add(piece.len());
        }
    }
}

/// # Safety
/// `item` was allocated by [`Draft::new`] and nobody refers to it any more.
unsafe fn free(item: NonNull<Item>) -> usize {
    // SAFETY: still allocated, by the caller's promise.
    let size = unsafe { item.as_ref() }.size();
    // SAFETY: allocated with this layout, as lengths never change. The header needs no drop: it is plain data.
    unsafe { dealloc(item.as_ptr().cast(), layout(size)) };
    size
}

fn size_for(key: usize, value: usize, has_given_unique: bool) -> usize {
    ITEM_OVERHEAD + key + value + if has_given_unique { GIVEN_UNIQUE } else { 0 }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, align_of::<Item>()).expect("items are far smaller than the address space")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe<'a>(key: &'a [u8], value: [&'a [u8]; 2]) -> Recipe<'a> {
        let (unique, marks) = (None, Marks::ENCODED_KEY);
        Recipe { hash: Hash::new(1), key, flags: 7, expiry: Expiry::NEVER, value, unique, marks, now: 100 }
    }

    #[test]
    fn the_header_is_forty_bytes() {
        assert_eq!(ITEM_OVERHEAD, 40);
    }

    #[test]
    fn an_item_reads_back_as_written() {
        let memory = Memory::new(1 << 20);
        let draft = Draft::new(&recipe(&[b'k'; MAX_KEY], [b"one", b"two"]), &memory, 0).unwrap();
        let link = draft.into_link(42);
        // SAFETY: linked nowhere, freed below.
        let item = unsafe { ItemRef::of_link(link) };
        assert_eq!((item.key(), item.value()), (&[b'k'; MAX_KEY][..], &b"onetwo"[..]));
        assert_eq!((item.hit(100).flags, item.unique(), item.size()), (7, 42, 40 + 250 + 6));
        assert!(item.hit(100).marks.has(Marks::ENCODED_KEY));
        // SAFETY: `item` is not used after this.
        unsafe { free_unshared(link) };
    }

    #[test]
    fn a_given_unique_is_told_and_the_number_kept() {
        let memory = Memory::new(1 << 20);
        let recipe = Recipe { unique: Some(u64::MAX - 1), ..recipe(b"key", [b"value", b""]) };
        let link = Draft::new(&recipe, &memory, 0).unwrap().into_link(42);
        // SAFETY: linked nowhere, freed below.
        let item = unsafe { ItemRef::of_link(link) };
        assert_eq!((item.unique(), item.number(), item.value()), (u64::MAX - 1, 42, &b"value"[..]));
        assert_eq!(item.size(), memory.linked());
        // SAFETY: `item` is not used after this.
        unsafe { free_unshared(link) };
    }

    #[test]
    fn accesses_are_noted_by_the_minute() {
        let memory = Memory::new(1 << 20);
        let link = Draft::new(&recipe(b"key", [b"", b""]), &memory, 0).unwrap().into_link(1);
        // SAFETY: linked nowhere, freed below.
        let item = unsafe { ItemRef::of_link(link) };
        assert!(!item.hit(105).marks.has(Marks::FETCHED));
        item.note_access(110);
        assert!(item.hit(115).marks.has(Marks::FETCHED));
        assert_eq!(item.hit(115).idle, 5, "the first access counts");
        item.note_access(169);
        assert_eq!(item.hit(169).idle, 59);
        item.note_access(170);
        assert_eq!(item.hit(171).idle, 1);
        // SAFETY: `item` is not used after this.
        unsafe { free_unshared(link) };
    }

    #[test]
    fn a_dropped_draft_gives_its_bytes_back() {
        let memory = Memory::new(100);
        let draft = Draft::new(&recipe(b"k", [b"", b""]), &memory, 50).unwrap();
        assert_eq!(memory.linked(), 41);
        let refused = Draft::new(&recipe(b"k", [b"", b""]), &memory, 50).err();
        assert_eq!(refused, Some(OutOfMemory { requested: 41 }));
        drop(draft);
        assert_eq!(memory.linked(), 0);
        assert!(Draft::new(&recipe(b"k", [b"123456789", b"0"]), &memory, 50).is_err(), "51 + 50 > 100");
    }
}
