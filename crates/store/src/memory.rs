//! The memory of items: blocks within a limit. This layer does not know the layout of items.

mod address_space;
pub(crate) mod allocator;
mod arena;
pub(crate) mod block;
pub(crate) mod block_ref;
mod poison;
pub(crate) mod pool;
#[cfg(test)]
pub(crate) mod reader;
mod sum;
