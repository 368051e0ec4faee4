//! Sums of the sizes of blocks.

use crate::memory::block::Block;

/// The sizes of some blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockSum {
    pub(crate) blocks: usize,
    pub(crate) capacity: usize,
    /// Bytes of headers and of all items, freed ones included.
    pub(crate) used: usize,
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
