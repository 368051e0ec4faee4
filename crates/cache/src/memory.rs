//! The memory of items: blocks within a limit. Knows nothing of what an item is.

pub(crate) mod allocator;
mod arena;
pub(crate) mod block;
pub(crate) mod block_ref;
mod poison;
pub(crate) mod pool;
