//! Large values, which connections send and receive without a copy (see
//! [`crate::memory::block_ref`]).

use crate::item::item_ref::ItemRef;
use crate::item::layout::Layout;
use crate::memory::allocator::ItemAllocator;
use crate::memory::block_ref::{BlockRef, PinnedBlocks};
use std::cell::Cell;
use std::fmt::{self, Debug, Formatter};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A pinned value, which outlives the command that found it. Neither its bytes nor its address
/// change, even if the item is replaced or removed. Its memory counts as the cache's until this is
/// dropped, on any thread.
pub struct ValueRef {
    value: NonNull<[u8]>,
    _block_ref: BlockRef,
}

// SAFETY: the bytes are not written while they are pinned, so all threads may read them; a pin may
// end on any thread.
unsafe impl Send for ValueRef {}
// SAFETY: as above.
unsafe impl Sync for ValueRef {}

impl ValueRef {
    /// See [`Hit::pin`](crate::Hit::pin).
    #[cold]
    pub(crate) fn pin(item: ItemRef<'_>, pinned: &Arc<PinnedBlocks>) -> Option<ValueRef> {
        let value = NonNull::from(item.value());
        // SAFETY: the item stays allocated while this borrows it.
        unsafe { BlockRef::pin(item.block(), pinned) }.map(|_block_ref| ValueRef { value, _block_ref })
    }
}

impl Deref for ValueRef {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the value of an item that was linked, so it is initialised and does not change;
        // the pin keeps its memory.
        unsafe { self.value.as_ref() }
    }
}

impl Debug for ValueRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "ValueRef({} bytes)", self.len())
    }
}

/// A value that is being received into memory of the cache.
/// [`Value::Reserved`](crate::Value::Reserved) stores it; otherwise the memory is returned on drop.
/// The memory always counts as the cache's, and the sum of all reserved memory is bounded.
pub struct ReservedValue {
    /// A block that the allocator has released. Once the item is stored, the allocator has the
    /// block, too.
    block_ref: BlockRef,
    layout: Layout,
    received: usize,
    is_stored: Cell<bool>,
}

impl ReservedValue {
    pub(crate) fn new(block_ref: BlockRef, layout: Layout) -> ReservedValue {
        ReservedValue { block_ref, layout, received: 0, is_stored: Cell::new(false) }
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: the block has room for an item of this layout.
        unsafe { self.block_ref.block().first().add(self.layout.value_start()) }
    }

    /// The bytes received so far.
    pub fn value(&self) -> &[u8] {
        // SAFETY: within the block, and written. While the allocator has released the block, it is
        // ours; later it is an item's value, which does not change, and the pin keeps it.
        unsafe { NonNull::slice_from_raw_parts(self.start(), self.received).as_ref() }
    }

    /// The memory for the missing bytes. Bytes written there count when they are
    /// [noted](Self::note_received).
    pub fn rest(&mut self) -> &mut [u8] {
        let length = self.missing();
        // SAFETY: within the block. The item is not stored before the value is complete, so until
        // then the block is ours. From then on the slice is empty. All memory of a block is
        // initialised: by the system, or by earlier contents.
        unsafe { NonNull::slice_from_raw_parts(self.start().add(self.received), length).as_mut() }
    }

    /// Notes that the first `count` bytes of the [rest](Self::rest) were received.
    ///
    /// # Panics
    /// If the rest has fewer bytes.
    pub fn note_received(&mut self, count: usize) {
        assert!(count <= self.missing(), "more was received than there is room for");
        self.received += count;
    }

    /// Appends as many of `bytes` as belong to the value, and returns their number.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let rest = self.rest();
        let count = rest.len().min(bytes.len());
        rest[..count].copy_from_slice(&bytes[..count]);
        self.note_received(count);
        count
    }

    /// The number of missing bytes.
    pub fn missing(&self) -> usize {
        self.layout.value_len - self.received
    }

    /// Whether no bytes are missing.
    pub fn is_complete(&self) -> bool {
        self.missing() == 0
    }

    /// Attaches the block to the allocator, with one pending item, if the item has the reserved
    /// shape. Returns the item's address. Succeeds at most once.
    pub(crate) fn attach(&self, layout: Layout, allocator: &ItemAllocator) -> Option<NonNull<u8>> {
        let fits = layout == self.layout && self.is_complete() && self.block_ref.is_of(allocator.pinned());
        if !fits || self.is_stored.replace(true) {
            return None;
        }
        // SAFETY: the allocator has released the block, and there is one pin, ours.
        unsafe { allocator.attach(self.block_ref.block(), self.layout.footprint()) }
    }
}

impl Debug for ReservedValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "ReservedValue({} of {} bytes)", self.received, self.layout.value_len)
    }
}
