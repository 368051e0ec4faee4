//! The storage engine: keys and values in memory, under a byte budget.
//!
//! The [`Cache`] is handed a [`Clock`](crate::clock::Clock) and knows what an item is; it knows neither the wire formats nor
//! connections.
//!
//! All commands of all protocols come down to four steps on one key: [`get`](Cache::get), [`peek`](Cache::peek),
//! [`put`](Cache::put) and [`update`](Cache::update). What is put may be [expected](Cache::expect) before, and what is shown may be
//! [kept](Hit::lease) for longer: so large values are not copied. The commands of the classic protocol, built on them, are methods of
//! the cache, too; those of the others are built in [`execute`](crate::execute).
//!
//! Lookups take no lock and write no shared memory, but once for an item that
//! nobody has read since the eviction last looked at it, and once a minute for the time of its last access; and to count who keeps a large
//! value. One that would write so to an item just when another takes its place, or that meets one that has died, goes on under the key's
//! lock. A cache [with a global lock](Cache::with_global_lock) is the same behind one mutex, for comparison.
//!
//! Items lie in blocks of the engine's own memory (`heap`), within a hard limit. What to evict says [`policy`].

mod api;
mod arena;
mod arithmetic;
mod arrival;
mod block;
mod cache;
mod central;
mod expiry;
mod flush;
mod global_lock;
mod hash;
mod heap;
#[cfg(feature = "test-hooks")]
mod hooks;
mod item;
mod loan;
mod lookup;
mod operations;
mod poison;
pub mod policy;
mod status;
mod sweep;
mod update;
mod usage;

pub use api::{Change, Content, CountError, Hit, Lookup, Mode, New, Present, Store, Value, Witness};
pub use arithmetic::{Direction, apply, parse};
pub use arrival::{Arrival, Outline};
pub use cache::Cache;
pub use expiry::Expiry;
pub use heap::OutOfMemory;
#[cfg(feature = "test-hooks")]
pub use hooks::Hooks;
pub use item::{ITEM_OVERHEAD, MAX_KEY};
pub use loan::{LARGE_VALUE, Lease};
pub use relativist::Stats as TableStats;
pub use status::Marks;
pub use usage::{Sequence, Sweeps, Usage};

pub(crate) use loan::Origin;

/// Keys that [`Cache::get_many`] looks up at a time.
pub const MAX_BATCH_KEYS: usize = relativist::raw::Table::BATCH;
