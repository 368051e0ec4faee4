//! Which items are alive, and making room: eviction and expiry.
//!
//! Each file imports only files above it:
//!
//! | File | Holds |
//! |---|---|
//! | `flush` | the line between flushed items and others |
//! | `store_times` | when items were stored |
//! | `observer` | the interface for observers of evictions |
//! | `schedule` | when to sweep a block for expired items |
//! | `reclaim` | what to do next when there is no room |
//! | `item_store` | the table and the memory of items, and which of them are alive |
//! | `sweep` | evicting and expiring the items of a block |

mod flush;
pub(crate) mod item_store;
pub(crate) mod observer;
pub(crate) mod reclaim;
mod schedule;
mod store_times;
mod sweep;
