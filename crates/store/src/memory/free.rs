//! Free blocks.

use crate::memory::block::Block;
use std::collections::BTreeMap;
use std::mem;

/// Free blocks, by capacity.
pub(crate) struct FreeBlocks {
    blocks: BTreeMap<usize, Vec<Block>>,
    bytes: usize,
    /// The minimum of `bytes` since [`reset_least_bytes`](Self::reset_least_bytes) was last called.
    least_bytes: usize,
    /// The capacity of ordinary blocks.
    capacity: usize,
}

impl FreeBlocks {
    pub(crate) fn new(capacity: usize) -> FreeBlocks {
        FreeBlocks { blocks: BTreeMap::new(), bytes: 0, least_bytes: 0, capacity }
    }

    /// The bytes of all free blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The minimum of the free bytes since the last reset.
    pub(crate) fn least_bytes(&self) -> usize {
        self.least_bytes
    }

    pub(crate) fn reset_least_bytes(&mut self) {
        self.least_bytes = self.bytes;
    }

    pub(crate) fn put(&mut self, block: Block) {
        self.bytes += block.capacity();
        self.blocks.entry(block.capacity()).or_default().push(block);
    }

    /// The capacity of a free block that can serve for `capacity`.
    pub(crate) fn fitting(&self, capacity: usize) -> Option<usize> {
        // A block with some unused pages is better than new pages from the system.
        let most = if capacity == self.capacity { capacity } else { capacity + capacity / 16 };
        self.blocks.range(capacity..=most).next().map(|(&found, _)| found)
    }

    /// Takes a block of exactly this capacity.
    pub(crate) fn take(&mut self, capacity: usize) -> Option<Block> {
        let blocks = self.blocks.get_mut(&capacity)?;
        let block = blocks.pop();
        if blocks.is_empty() {
            self.blocks.remove(&capacity);
        }
        self.bytes -= block.map_or(0, Block::capacity);
        self.least_bytes = self.least_bytes.min(self.bytes);
        block
    }

    /// Takes blocks of at least `excess` bytes, if there are any, except `kept` ordinary ones.
    pub(crate) fn take_surplus(&mut self, excess: usize, kept: usize) -> Vec<Block> {
        let (mut blocks, mut bytes) = (Vec::new(), 0);
        while bytes < excess {
            let has_some =
                |&(&capacity, blocks): &(&usize, &Vec<Block>)| capacity != self.capacity || blocks.len() > kept;
            // The smallest block that is enough, or the largest one.
            let enough = self.blocks.range(excess - bytes..).find(has_some);
            let Some((&capacity, _)) = enough.or_else(|| self.blocks.iter().rev().find(has_some)) else { break };
            blocks.extend(self.take(capacity));
            bytes += capacity;
        }
        blocks
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Block> + use<> {
        (self.bytes, self.least_bytes) = (0, 0);
        mem::take(&mut self.blocks).into_values().flatten()
    }
}
