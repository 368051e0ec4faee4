//! A cache of byte strings in memory, for many threads: a hard memory limit, eviction, expiry, and
//! lookups that take no lock. It is the storage of the memcached server `relativistd`, and has
//! memcached's semantics; but it has no sockets, no protocol and no threads of its own.
//!
//! ```
//! use relativist_store::{Cache, Clock, Content, Lookup, Mode, Store};
//! use std::sync::Arc;
//!
//! // The caller sets the clock, once a second or so.
//! let clock = Arc::new(Clock::new(1_700_000_000));
//! let cache = Cache::new(Arc::clone(&clock), 64 << 20, 1 << 20)?;
//!
//! let content = Content { flags: 0, exptime: 60, value: b"hello" };
//! assert_eq!(cache.store(Mode::Set, b"greeting", content), Store::Stored);
//!
//! let mut value = Vec::new();
//! assert_eq!(cache.get(b"greeting", |hit| value.extend_from_slice(hit.value)), Lookup::Hit);
//! assert_eq!(value, b"hello");
//!
//! clock.set(clock.now() + 60);
//! assert_eq!(cache.get(b"greeting", |_| ()), Lookup::Expired);
//! cache.maintain();
//! # Ok::<(), relativist_store::OutOfMemory>(())
//! ```
//!
//! # Commands
//!
//! Four steps on one key are the base of all commands: [`Cache::get`], [`Cache::peek`],
//! [`Cache::put`] and [`Cache::update`]. A closure decides in `put` and `update` while the key is
//! locked, so a decision and its change are one step. [`Cache::store`], [`count`](Cache::count),
//! [`touch`](Cache::touch) and [`delete`](Cache::delete) are made of these.
//!
//! Large values need not be copied. [`Cache::reserve`] reserves memory into which the caller
//! receives a value that it then stores. [`Hit::pin`] keeps a value that was found, whatever
//! becomes of the item.
//!
//! # Consistency
//!
//! Each command is linearizable: it takes effect at one moment between its call and its return.
//! Commands on several keys ([`Cache::get_many`], [`Cache::scan`], [`Cache::flush`]) are not one
//! step. An item that has expired, or that was flushed, is absent for every command, even while its
//! memory is not free yet.
//!
//! # Progress
//!
//! A lookup takes no lock. It writes shared memory only in these cases: the first lookup of an item
//! since the eviction has examined it, the first access in a minute, and a pin. Two rare kinds of
//! lookup continue under the lock of the key's bucket: those that find an expired item, which they
//! unlink, and those that find an item just as it is replaced. Updates lock one bucket. No command
//! waits for a resize of the table. A store may evict, and may wait for readers when the cache is
//! full.
//!
//! # Memory
//!
//! Items, the table, and memory that waits for readers never exceed the limit together. Items are
//! in blocks that are mapped directly; the cache does not use the global allocator for them. When
//! there is no room, whole blocks are evicted: see [`policy`]. A cache [without
//! eviction](Cache::without_eviction) refuses new items instead. [`Cache::maintain`] frees expired
//! items. Without it, their memory is reused only when their blocks are evicted.
//!
//! # When not to use it
//!
//! * For keys and values that are Rust objects, take `Cache` of `relativist`.
//! * For a cache in one thread, or one of a few hundred entries, an LRU list is simpler.
//! * Keys are at most [`MAX_KEY`] bytes, and values are below 4 GiB.
//! * Linux only: the memory of items comes from `mmap`.
//!
//! # Layers
//!
//! Each folder imports only those to its right: `cache` (the commands), `eviction` (which items are
//! alive, and making room), `item` (their layout), `memory` (blocks within the limit). `clock`,
//! `expiry`, `usage` and [`work`] import nothing, and [`sizing`] only `expiry` and [`policy`],
//! which is a module of `relativist`, because its cache shares it.

#[cfg(test)]
use relativist_testing as _;

mod cache;
mod clock;
mod eviction;
mod expiry;
mod item;
mod memory;
pub mod sizing;
mod usage;
pub mod work;

#[cfg(feature = "test-hooks")]
pub use cache::Hooks;
pub use cache::{Cache, Change, Content, CountError, Direction, Mode, Present, Store, apply, parse};
pub use clock::{Clock, Ticker};
pub use eviction::observer::EvictionObserver;
pub use expiry::Expiry;
pub use item::hit::{Hit, Lookup};
pub use item::large_value::{ReservedValue, ValueRef};
pub use item::layout::{ITEM_OVERHEAD, ItemShape, MAX_KEY};
pub use item::new::{New, Value};
pub use item::status::Marks;
pub use memory::block_ref::LARGE_VALUE;
pub use memory::request::OutOfMemory;
pub use memory::room::Room;
#[doc(inline)]
pub use relativist_core::eviction as policy;
pub use relativist_table::Stats as TableStats;
pub use usage::{Ages, MemoryUse, Sequence, SweepStats, Usage};

/// The maximum number of keys that [`Cache::get_many`] looks up at a time.
pub const MAX_BATCH_KEYS: usize = relativist_table::Table::BATCH;

/// The largest limit that a [`Cache`] can use: 128 GiB. Links reach 256 GiB, and the unused ends of
/// blocks take some of that. A cache that runs out of addresses evicts, whatever its limit.
pub const MAX_LIMIT: usize = relativist_table::CompactLink::RANGE / 2;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
