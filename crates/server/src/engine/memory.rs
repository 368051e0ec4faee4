//! The memory budget: what items and the table may occupy together.
//!
//! An item's bytes are *held* from its allocation on. While it is in the table they count as *linked*. Removed from there it
//! may still be read, so its bytes are *retired*, and leave the budget only when it is freed a grace period later.
//!
//! For items the bound is strict: their bytes are reserved before memory is allocated. The bucket array is not reserved: it
//! counts with its size after the last completed resize. So while a table grows near the limit its new array may exceed it,
//! and the old one is there until a grace period after; from then on items are refused that do not fit beside the new one.
//! What is not counted at all: connections and their buffers, and the allocator's rounding.
//!
//! Retired bytes are counted for the whole process, because what frees them is: the function given to
//! [`relativist_rcu::defer_raw`] learns the item's address and nothing else.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of items removed and not yet freed, of every engine of the process.
static RETIRED: CachePadded<AtomicUsize> = CachePadded::new(AtomicUsize::new(0));

/// No room: the budget is used up, or the allocator has nothing left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutOfMemory {
    /// Bytes that were asked for.
    pub requested: usize,
}

/// The budget of one engine. Its counts are plain sums: each change is one read-modify-write, so none is lost, and no other
/// memory is reached through them. Order matters in one place only: see [`Memory::retire`].
#[derive(Debug)]
pub(super) struct Memory {
    limit: AtomicUsize,
    linked: CachePadded<AtomicUsize>,
}

impl Memory {
    pub(super) fn new(limit: usize) -> Memory {
        Memory { limit: AtomicUsize::new(limit), linked: CachePadded::new(AtomicUsize::new(0)) }
    }

    pub(super) fn limit(&self) -> usize {
        // Relaxed: stands for itself.
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. What is there beyond a lower one stays until it goes by itself.
    pub(super) fn set_limit(&self, limit: usize) {
        // Relaxed: stands for itself; a reservation made meanwhile may go by either.
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Bytes of items in the table, or just about to be.
    pub(super) fn linked(&self) -> usize {
        // Relaxed: a plain sum, read by itself.
        self.linked.load(Ordering::Relaxed)
    }

    /// Takes `bytes` out of the budget, of which the table itself occupies `table` bytes.
    pub(super) fn reserve(&self, bytes: usize, table: usize) -> Result<(), OutOfMemory> {
        // Acquire: pairs with the Release in `retire`, so that bytes found gone from here are found among the retired.
        let linked = self.linked.fetch_add(bytes, Ordering::Acquire) + bytes;
        if linked + table + retired() <= self.limit() {
            return Ok(());
        }
        self.release(bytes);
        Err(OutOfMemory { requested: bytes })
    }

    /// Whether `bytes` would fit if everything retired were freed.
    pub(super) fn would_fit(&self, bytes: usize, table: usize) -> bool {
        self.linked() + bytes + table <= self.limit()
    }

    /// Gives back what was reserved for an item that never got into the table.
    pub(super) fn release(&self, bytes: usize) {
        // Relaxed: the bytes are nowhere else; nothing is to be seen before or after.
        self.linked.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// An item of `bytes` left the table. For a moment it counts twice, but never not at all.
    pub(super) fn retire(&self, bytes: usize) {
        // Relaxed: ordered by the Release that follows.
        RETIRED.fetch_add(bytes, Ordering::Relaxed);
        // Release: pairs with the Acquire in `reserve`.
        self.linked.fetch_sub(bytes, Ordering::Release);
    }
}

/// A retired item of `bytes` was freed.
pub(super) fn reclaimed(bytes: usize) {
    // Relaxed: whoever sees it a little late refuses or waits, which is harmless.
    RETIRED.fetch_sub(bytes, Ordering::Relaxed);
}

fn retired() -> usize {
    // Relaxed: what it must not miss was ordered before by the Acquire in `reserve`.
    RETIRED.load(Ordering::Relaxed)
}
