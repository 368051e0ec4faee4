//! Items: one allocation each, holding the table's link, a header, the key and the value.
//!
//! ```text
//! 0      16       24        28      32          36        40          40 + key length
//! | link | unique | expiry | flags | value len | key len | key bytes | value bytes |
//! ```
//!
//! The overhead of an item is [`ITEM_OVERHEAD`] = 40 bytes, plus what the allocator rounds up and its share of the bucket
//! array (8 bytes per bucket, 11 to 64 per item).
//!
//! An item is written while it is a [`Draft`], owned by one thread. Once in the table it is shared and never changes, but for
//! its expiry, which is atomic: readers copy values without a lock, so a new value is always a new item.

use super::Hit;
use super::expiry::Expiry;
use super::memory::{self, Memory, OutOfMemory};
use relativist::raw::{Hash, Link};
use std::alloc::{Layout, alloc, dealloc};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

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
    unique: u64,
    expiry: AtomicU32,
    flags: u32,
    value_len: u32,
    key_len: u32,
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

    pub(super) fn unique(self) -> u64 {
        self.header().unique
    }

    pub(super) fn expiry(self) -> Expiry {
        // Relaxed: the word stands for itself, and bucket locks order updates of the same item.
        Expiry::from_bits(self.header().expiry.load(Ordering::Relaxed))
    }

    pub(super) fn set_expiry(self, expiry: Expiry) {
        // Relaxed: as in `expiry`.
        self.header().expiry.store(expiry.to_bits(), Ordering::Relaxed);
    }

    /// What clients see of it.
    pub(super) fn hit(self) -> Hit<'a> {
        let header = self.header();
        Hit { flags: header.flags, unique: header.unique, value: self.value() }
    }

    /// The recipe of an item that takes this one's place with another value.
    pub(super) fn successor(self, value: [&'a [u8]; 2]) -> Recipe<'a> {
        let header = self.header();
        Recipe { hash: header.link.hash(), key: self.key(), flags: header.flags, expiry: self.expiry(), value }
    }

    /// Bytes of the whole allocation.
    pub(super) fn size(self) -> usize {
        self.header().size()
    }
}

impl Item {
    fn size(&self) -> usize {
        size_for(self.key_len as usize, self.value_len as usize)
    }
}

/// What goes into a new item.
#[derive(Clone, Copy)]
pub(super) struct Recipe<'a> {
    pub(super) hash: Hash,
    pub(super) key: &'a [u8],
    pub(super) flags: u32,
    pub(super) expiry: Expiry,
    /// The value, in two pieces that are joined: either may be empty.
    pub(super) value: [&'a [u8]; 2],
}

impl Recipe<'_> {
    /// Bytes that the item will occupy.
    pub(super) fn size(&self) -> usize {
        size_for(self.key.len(), self.value_len())
    }

    pub(super) fn value_len(&self) -> usize {
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
    pub(super) fn into_link(self, unique: u64) -> NonNull<Link> {
        let mut item = ManuallyDrop::new(self).item;
        // SAFETY: the draft owned the item, so this is the only reference.
        unsafe { item.as_mut() }.unique = unique;
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
    let header = Item {
        link: Link::new(recipe.hash),
        unique: 0,
        expiry: AtomicU32::new(recipe.expiry.to_bits()),
        flags: recipe.flags,
        value_len: u32::try_from(recipe.value_len()).expect("values are far below 4 GiB"),
        key_len: u32::try_from(recipe.key.len()).expect("keys are at most 250 bytes"),
    };
    // SAFETY: the memory is large and aligned enough for the header (1), and for key and value after it (2); sources are
    // slices elsewhere, so nothing overlaps.
    unsafe {
        item.write(header); // (1)
        let mut end = item.add(1).cast::<u8>();
        for piece in [recipe.key, recipe.value[0], recipe.value[1]] {
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

fn size_for(key: usize, value: usize) -> usize {
    ITEM_OVERHEAD + key + value
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, align_of::<Item>()).expect("items are far smaller than the address space")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe<'a>(key: &'a [u8], value: [&'a [u8]; 2]) -> Recipe<'a> {
        Recipe { hash: Hash::new(1), key, flags: 7, expiry: Expiry::NEVER, value }
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
        assert_eq!((item.hit().flags, item.unique(), item.size()), (7, 42, 40 + 250 + 6));
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
