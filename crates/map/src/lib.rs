//! A concurrent hash map. Lookups are wait-free, also while the map grows or shrinks.
//!
//! The algorithm is that of *relativistic* hash tables (Triplett, McKenney and Walpole, "Resizable,
//! Scalable, Concurrent Hash Tables via Relativistic Programming", USENIX ATC 2011), with chains
//! sorted by hash: a lookup takes no lock, executes no atomic read-modify-write and no fence, looks
//! at one table, never retries, and never misses an entry that is there, while the table is resized
//! by any power of two. Growing takes a single wait for readers, which delays neither lookups nor
//! further growth. [`design`] explains it.
//!
//! # Is it for you?
//!
//! It is made for maps that are read far more often than written and shared by many threads.
//!
//! * An entry is an allocation of its own: maps used by a single thread are better served by `std`
//!   or `hashbrown`.
//! * Updates lock a bucket. Lookups never wait for them, but updates that hit one key from all
//!   sides take turns.
//! * Memory of removed entries comes back after a grace period, that is, when the readers of that
//!   time have left. A reader that stays inside for long holds it up for the whole process
//!   ([`relativist_rcu`]).
//! * Updates need `'static` keys and values. If that is in the way, `dashmap` and `papaya` don't
//!   ask for it.
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
//!
//! # Operations
//!
//! Those on entries happen in a read section. [`HashMap::pin`] enters one and returns a handle,
//! [`Pinned`], with all of them. Where one guard shall do for several maps, or references shall
//! outlive a handle, the same are methods of [`HashMap`] that take a guard from [`read`].
//!
//! | to | there is |
//! |---|---|
//! | look up | [`get`](HashMap::get), [`get_key_value`](HashMap::get_key_value), [`contains_key`](HashMap::contains_key), by whatever is [`Equivalent`] to the key |
//! | look up the same key again and again | [`Pinned::cached`] |
//! | look up many keys at once | [`get_many`](HashMap::get_many), [`get_each`](HashMap::get_each) |
//! | insert or replace | [`insert`](HashMap::insert), or [`checked_insert`](HashMap::checked_insert), which reports exhaustion of memory |
//! | insert what is absent | [`try_insert`](HashMap::try_insert), [`get_or_insert`](HashMap::get_or_insert), [`get_or_insert_with`](HashMap::get_or_insert_with) |
//! | change what is present | [`update`](HashMap::update), [`compare_exchange`](HashMap::compare_exchange) |
//! | do either | [`update_or_insert`](HashMap::update_or_insert), [`update_or_insert_with`](HashMap::update_or_insert_with) |
//! | decide by what is there | [`compute`](HashMap::compute) |
//! | remove | [`remove`](HashMap::remove), [`remove_entry`](HashMap::remove_entry), [`remove_if`](HashMap::remove_if) |
//! | remove many | [`retain`](HashMap::retain), [`extract_if`](HashMap::extract_if), [`drain`](HashMap::drain), [`clear`](HashMap::clear) |
//! | go through all | [`iter`](HashMap::iter), [`keys`](HashMap::keys), [`values`](HashMap::values), `into_iter` |
//! | go through all, piece by piece | [`scan`](HashMap::scan) |
//! | choose a size | [`with_capacity`](HashMap::with_capacity), [`with_capacity_for_memory`](HashMap::with_capacity_for_memory), [`builder`](HashMap::builder) |
//! | resize | [`resize_to`](HashMap::resize_to), [`reserve`](HashMap::reserve), [`try_reserve`](HashMap::try_reserve), [`shrink_to_fit`](HashMap::shrink_to_fit); by default a background thread does |
//!
//! Each operation on a key is one atomic step, and linearizable; those on all entries are not one
//! step, but many. Closures run without locks: they may use the map, but one that changes its own
//! key each time it is called is called for ever. `Eq` of keys may run under a lock, and must not
//! update the map.
//!
//! [`HashSet`] is the set, with [`PinnedSet`] for its handle. The folder `examples` has a short
//! program for each of these patterns.
//!
//! # Async
//!
//! Operations don't wait for I/O or for readers, so tasks may call them directly. A handle or guard
//! can't be held across an `.await` of a task that may be moved to another thread: they aren't
//! `Send`, and that doesn't compile ([`Pinned`] shows the error). Take copies, or clones of an
//! `Arc`, across:
//!
//! ```
//! # use relativist::HashMap;
//! # use std::sync::Arc;
//! # async fn fetch(url: &str) -> Arc<str> { url.into() }
//! async fn page(pages: &HashMap<String, Arc<str>>, url: &str) -> Arc<str> {
//!     let known = pages.pin().get(url).cloned(); // the read section ends with the statement
//!     match known {
//!         Some(page) => page,
//!         None => {
//!             let fetched = fetch(url).await;
//!             Arc::clone(pages.pin().get_or_insert(url.into(), fetched))
//!         }
//!     }
//! }
//! # let pages = Arc::new(HashMap::new());
//! # let task = { let pages = Arc::clone(&pages); async move { page(&pages, "/").await } };
//! # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
//! # assert_eq!(&*runtime.block_on(runtime.spawn(task)).unwrap(), "/");
//! ```
//!
//! What does wait is resizing by hand: leave it to the background thread, or to `spawn_blocking`.
//!
//! # Features
//!
//! * `serde`: `Serialize` and `Deserialize` for maps and sets.
//! * `rayon`: `par_iter` on handles, and `collect` and `par_extend` into maps and sets.
//! * `contention`: counts how contended the locks of buckets and resizers are, see
//!   [`relativist_rcu::contention`]. For measurements: it makes updates slower.

#[cfg(test)]
use relativist_testing as _;

mod access;
mod atomic;
mod batch;
mod builder;
mod bulk;
mod cached;
mod collect;
mod counter;
pub mod design;
mod iter;
mod map;
mod node;
#[cfg(feature = "rayon")]
mod parallel;
mod pinned;
mod policy;
pub mod raw;
mod recycle;
mod rename;
mod scan;
#[cfg(feature = "serde")]
mod serialize;
mod set;
mod stats;
mod sync;
#[cfg(doctest)]
mod variance;
mod worker;

pub use access::{ExhaustedError, OccupiedError};
pub use atomic::{Change, CompareExchangeError};
pub use builder::{BuildError, Builder};
pub use bulk::{Drain, ExtractIf};
pub use cached::Cached;
pub use equivalent::Equivalent;
pub use iter::{IntoIter, Iter, Keys, Values};
pub use map::HashMap;
#[cfg(feature = "rayon")]
pub use parallel::ParIter;
pub use pinned::Pinned;
pub use policy::{Policy, PolicyError, Resizing};
pub use raw::AllocError;
pub use relativist_rcu::{Guard, read};
pub use rename::RenameError;
pub use set::{HashSet, PinnedSet};
pub use stats::Stats;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("relativist packs 48-bit pointers and 16 bits of summary into one word: it needs a 64-bit target");
