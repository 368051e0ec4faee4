//! Which items are alive, and making room: eviction and expiry.

mod flush;
pub(crate) mod item_store;
pub(crate) mod observer;
mod reclaim;
mod schedule;
mod store_times;
mod sweep;
