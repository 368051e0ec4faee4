//! What the cache does: its limit, eviction, expiry, loaders, hostile code of its users, and races.

use relativist_testing as _;

mod compute;
mod expiry;
mod hostile;
mod limit;
mod load;
mod operations;
#[path = "../support/random.rs"]
mod random;
mod stress;
