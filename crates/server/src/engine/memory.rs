//! The memory budget: what items and the table may occupy together.
//!
//! An item's bytes are *held* from its allocation on. While it is in the table they count as *linked*. Removed from there it
//! may still be read, so its bytes are *retired*, and leave the budget only when it is freed a grace period later. The
//! bound is strict: bytes are reserved before memory is allocated.
//!
//! Retired bytes are counted for the whole process, because what frees them is: the function given to
//! [`relativist_rcu::defer_raw`] learns the item's address and nothing else.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of items removed and not yet freed, of every engine of the process.
static RETIRED: CachePadded<AtomicUsize> = CachePadded::new(AtomicUsize::new(0));

/// No room: the budget is used up, or the allocator has nothing left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutOfMemory;

/// The budget of one engine. All counts here are Relaxed: they are plain sums, each change is one read-modify-write and so
/// never lost, and no other memory is reached through them.
#[derive(Debug)]
pub(super) struct Memory {
    limit: usize,
    linked: CachePadded<AtomicUsize>,
}

impl Memory {
    pub(super) fn new(limit: usize) -> Memory {
        Memory { limit, linked: CachePadded::new(AtomicUsize::new(0)) }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes of items in the table, or just about to be.
    pub(super) fn linked(&self) -> usize {
        self.linked.load(Ordering::Relaxed)
    }

    /// Takes `bytes` out of the budget, of which the table itself occupies `table` bytes.
    pub(super) fn reserve(&self, bytes: usize, table: usize) -> Result<(), OutOfMemory> {
        let linked = self.linked.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if linked + table + retired() <= self.limit {
            return Ok(());
        }
        self.release(bytes);
        Err(OutOfMemory)
    }

    /// Whether `bytes` would fit if everything retired were freed.
    pub(super) fn would_fit(&self, bytes: usize, table: usize) -> bool {
        self.linked() + bytes + table <= self.limit
    }

    /// Gives back what was reserved for an item that never got into the table.
    pub(super) fn release(&self, bytes: usize) {
        self.linked.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// An item of `bytes` left the table.
    pub(super) fn retire(&self, bytes: usize) {
        RETIRED.fetch_add(bytes, Ordering::Relaxed);
        self.linked.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A retired item of `bytes` was freed.
pub(super) fn reclaimed(bytes: usize) {
    RETIRED.fetch_sub(bytes, Ordering::Relaxed);
}

fn retired() -> usize {
    RETIRED.load(Ordering::Relaxed)
}
