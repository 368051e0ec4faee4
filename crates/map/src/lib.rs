//! A concurrent hash map whose lookups are wait-free while it grows and shrinks under them.
//!
//! The algorithm is that of *relativistic* hash tables (Triplett, McKenney and Walpole, "Resizable, Scalable, Concurrent
//! Hash Tables via Relativistic Programming", USENIX ATC 2011), with chains sorted by hash: a lookup takes no lock, executes no
//! atomic read-modify-write and no fence, looks at one table, never retries, and never misses an entry that is there,
//! while the table is resized by any power of two with a single wait for readers. [`design`] explains it.
//!
//! # Is it for you?
//!
//! It is made for maps that are read far more often than written and shared by many threads.
//!
//! * An entry is an allocation of its own: maps used by a single thread are better served by `std` or `hashbrown`.
//! * Updates lock a bucket. Lookups never wait for them, but updates that hit one key from all sides take turns.
//! * Memory of removed entries comes back after a grace period, that is, when the readers of that time have left. A reader
//!   that stays inside for long holds it up for the whole process ([`relativist_rcu`]).
//! * Updates need `'static` keys and values. If that is in the way, `dashmap` and `papaya` don't ask for it.
//! * 64-bit targets only, with user addresses below 2^48.
//!
//! # Example
//!
//! ```
//! use relativist::HashMap;
//! use std::thread;
//!
//! let map: HashMap<u64, u64> = HashMap::new();
//! thread::scope(|scope| {
//!     scope.spawn(|| (0..1000).for_each(|n| drop(map.pin().insert(n, n * n))));
//!     scope.spawn(|| map.pin().get(&7).is_none_or(|&square| square == 49));
//! });
//! assert_eq!(map.pin().get(&12), Some(&144));
//! ```

mod access;
mod collect;
mod counter;
pub mod design;
mod iter;
mod map;
mod mutation;
mod node;
mod pinned;
mod policy;
mod prefetch;
pub mod raw;
mod recycle;
mod rename;
mod stats;
mod sync;
mod worker;

pub use access::OccupiedError;
pub use iter::Iter;
pub use map::{Builder, HashMap};
pub use pinned::Pinned;
pub use policy::Resizing;
pub use raw::AllocError;
pub use relativist_rcu::{Guard, read};
pub use rename::RenameError;
pub use stats::Stats;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("relativist packs 48-bit pointers and 16 bits of summary into one word: it needs a 64-bit target");
