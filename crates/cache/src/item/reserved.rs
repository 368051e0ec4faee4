//! Reserved memory for large values, which are received to where they will lie.

use crate::item::layout::Layout;
use crate::memory::allocator::ItemAllocator;
use crate::memory::block_ref::{BlockRef, LARGE_VALUE};
use std::cell::Cell;
use std::fmt::{self, Debug, Formatter};
use std::ptr::NonNull;

/// What must be known of an item before its value is received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ItemShape {
    /// Bytes of its key.
    pub key_len: usize,
    /// Bytes of its value.
    pub value_len: usize,
    /// Whether it has client flags other than 0.
    pub has_flags: bool,
    /// Whether the client gives its CAS value.
    pub has_cas: bool,
}

impl ItemShape {
    /// Whether its value is large enough to be received in place.
    pub fn is_large(&self) -> bool {
        self.value_len >= LARGE_VALUE
    }
}

/// A value that is being received: memory of the cache, and how much of it was received.
/// [`Value::Reserved`](crate::Value::Reserved) stores it; otherwise the memory is given back on
/// drop. The memory counts as the cache's all the time, and the sum of all these is bounded.
pub struct ReservedValue {
    /// Of a block that the allocator has released; once the item is stored, the allocator has it,
    /// too.
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

    /// What was received.
    pub fn value(&self) -> &[u8] {
        // SAFETY: within the block, and written. While the allocator has released the block, it is
        // ours; later it is an item's value, which does not change, and the pin keeps it.
        unsafe { NonNull::slice_from_raw_parts(self.start(), self.received).as_ref() }
    }

    /// Room for the rest. What is put there counts when it is [noted](Self::note_received).
    pub fn rest(&mut self) -> &mut [u8] {
        let length = self.missing();
        // SAFETY: within the block, which is ours as long as the value is not complete, because the
        // item is not stored before; afterwards this is empty. All memory of a block is
        // initialised: by the system, or by what was there before.
        unsafe { NonNull::slice_from_raw_parts(self.start().add(self.received), length).as_mut() }
    }

    /// The first `count` bytes of the [rest](Self::rest) were received.
    ///
    /// # Panics
    /// If they are more.
    pub fn note_received(&mut self, count: usize) {
        assert!(count <= self.missing(), "more was received than there is room for");
        self.received += count;
    }

    /// Takes as many of `bytes` as belong to the value, and returns how many that are.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let rest = self.rest();
        let count = rest.len().min(bytes.len());
        rest[..count].copy_from_slice(&bytes[..count]);
        self.note_received(count);
        count
    }

    /// Bytes that are not there yet.
    pub fn missing(&self) -> usize {
        self.layout.value_len() - self.received
    }

    /// Whether all of it is there.
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
        write!(f, "ReservedValue({} of {} bytes)", self.received, self.layout.value_len())
    }
}
