//! What the cache does: its limit, eviction, expiry, loaders, hostile code of its users, and races.

use relativist_testing as _;

mod auto_traits;
mod by_reference;
mod compute;
mod expiry;
mod history;
mod hostile;
mod in_use;
mod interleaved;
mod limit;
mod load;
mod operations;
mod refresh;
mod stress;
mod waiting;
