//! The memory of items: blocks within a limit. This layer does not know the layout of items.
//!
//! Each file imports only files above it:
//!
//! | File | Holds |
//! |---|---|
//! | `request` | the situation of a thread that needs memory, and the answer that there is none |
//! | `room` | room that is set aside for a value before it has arrived |
//! | `address_space` | the addresses that a cache reserves |
//! | `arena` | runs of these addresses |
//! | `poison` | reports to AddressSanitizer |
//! | `block` | a piece of memory that holds items |
//! | `block_ref` | blocks that connections use |
//! | `free`, `sum` | free blocks; what blocks are used for |
//! | `pool` | all blocks that are not open |
//! | `allocator` | the open blocks, and the limit |

mod address_space;
pub(crate) mod allocator;
mod arena;
pub(crate) mod block;
pub(crate) mod block_ref;
mod free;
mod poison;
pub(crate) mod pool;
#[cfg(test)]
pub(crate) mod reader;
pub(crate) mod request;
pub(crate) mod room;
mod sum;
