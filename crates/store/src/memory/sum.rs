//! Sums of the sizes of blocks, and what they say about the use of memory.

use crate::memory::allocator::ItemAllocator;
use crate::memory::block::{Block, HEADER};
use crate::usage::MemoryUse;

/// The sizes of some blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockSum {
    blocks: usize,
    capacity: usize,
    /// Bytes of headers and of all items, freed ones included.
    used: usize,
}

impl BlockSum {
    pub(crate) fn add(&mut self, block: Block) {
        self.blocks += 1;
        self.capacity += block.capacity();
        self.used += block.used();
    }

    /// Subtracts a block that was added, and whose size has not changed since.
    pub(crate) fn remove(&mut self, block: Block) {
        self.blocks -= 1;
        self.capacity -= block.capacity();
        self.used -= block.used();
    }
}

impl ItemAllocator {
    /// Sets all parts of `memory` that concern blocks. Takes constant time, and all locks of the
    /// allocator, one after the other: a block that another thread closes meanwhile may be missed,
    /// or added twice.
    pub(crate) fn measure_blocks(&self, memory: &mut MemoryUse) {
        let (open, linked) = (self.open(), self.linked());
        let pool = self.pool();
        let queued = pool.queued;
        let (capacity, used) = (open.capacity + queued.capacity, open.used + queued.used);
        memory.block_headers = (open.blocks + queued.blocks) * HEADER;
        memory.freed = used.saturating_sub(memory.block_headers + linked);
        memory.unused = capacity - used;
        memory.free = pool.free_bytes;
        memory.waiting = pool.waiting_bytes();
        memory.in_transit = pool.mapped().saturating_sub(capacity + memory.free + memory.waiting);
    }
}
