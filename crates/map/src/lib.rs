//! A concurrent hash map. Lookups are wait-free, even while the map grows or shrinks.
//!
//! The map is made for data that many threads look up far more often than they change. A lookup
//! takes no lock, executes no atomic read-modify-write, and never retries. Where the kernel has
//! `membarrier`, it executes no fence either. This also holds during a resize: a lookup always
//! reads one table only.
//!
//! The algorithm is that of *relativistic* hash tables (Triplett, McKenney and Walpole, "Resizable,
//! Scalable, Concurrent Hash Tables via Relativistic Programming", USENIX ATC 2011), with chains
//! that are sorted by hash. [`relativist_table::design`] explains it and lists the guarantees;
//! [`design`] has those of the maps.
//!
//! # Usage
//!
//! Operations on entries happen in a read section. [`HashMap::pin`] enters one and returns a
//! handle, [`Pinned`], that has all operations. References to keys and values live as long as the
//! handle:
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
//! To share one guard between several maps, or to keep references longer than a handle, use the
//! methods of [`HashMap`] that take a guard from [`read`].
//!
//! | task | methods |
//! |---|---|
//! | look up | [`get`](HashMap::get), [`get_key_value`](HashMap::get_key_value), [`contains_key`](HashMap::contains_key), by any type that is [`Equivalent`] to the key |
//! | look up without a guard | [`get_copied`](HashMap::get_copied), [`get_cloned`](HashMap::get_cloned), [`contains`](HashMap::contains) |
//! | look up many keys at once | [`get_many`](HashMap::get_many), [`get_each`](HashMap::get_each) |
//! | insert or replace | [`insert`](HashMap::insert), or [`checked_insert`](HashMap::checked_insert), which returns an error if memory is exhausted |
//! | insert many at once | [`insert_many`](HashMap::insert_many), `extend` |
//! | insert if absent | [`try_insert`](HashMap::try_insert), [`get_or_insert`](HashMap::get_or_insert), [`get_or_insert_with`](HashMap::get_or_insert_with) |
//! | change if present | [`update`](HashMap::update), [`compare_exchange`](HashMap::compare_exchange) |
//! | change or insert | [`update_or_insert`](HashMap::update_or_insert), [`update_or_insert_with`](HashMap::update_or_insert_with) |
//! | insert, change or remove, depending on the value | [`compute`](HashMap::compute) |
//! | remove | [`remove`](HashMap::remove), [`remove_entry`](HashMap::remove_entry), [`remove_if`](HashMap::remove_if) |
//! | remove many | [`retain`](HashMap::retain), [`extract_if`](HashMap::extract_if), [`drain`](HashMap::drain), [`clear`](HashMap::clear) |
//! | iterate | [`iter`](HashMap::iter), [`keys`](HashMap::keys), [`values`](HashMap::values), `into_iter` |
//! | iterate in pieces | [`scan`](HashMap::scan) |
//! | set the initial size | [`with_capacity`](HashMap::with_capacity), [`builder`](HashMap::builder) |
//! | resize by hand | [`resize_to`](HashMap::resize_to), [`reserve`](HashMap::reserve), [`try_reserve`](HashMap::try_reserve), [`shrink_to_fit`](HashMap::shrink_to_fit); by default a background thread resizes the map |
//!
//! [`HashSet`] is the set, and [`PinnedSet`] its handle. The folder `examples` has a short program
//! for each of these tasks.
//!
//! # Two maps
//!
//! [`HashMap`] stores each entry in a node of its own. [`FlatMap`] stores entries inside its
//! buckets, and has the same methods.
//!
//! * Take `FlatMap` for small entries, up to some 64 bytes, in maps that exceed the processor's
//!   caches, or that are often updated, iterated over or cleared. A hit takes one cache
//!   miss instead of two, and an update allocates no node.
//! * Take `HashMap` for large entries; for types that are not [`Relocatable`], such as atomics and
//!   mutexes that are not behind a pointer; if `Hash` of keys is slow or may panic, because
//!   `FlatMap` calls it whenever it grows; or if entries must keep their addresses.
//!
//! A third one, [`PrivateMap`], is a `HashMap` with readers of its own: handles may be held across
//! an `.await`, and keys and values may borrow. See the module [`private`].
//!
//! [`FlatSet`] is its set. The module [`flat`] compares the two maps in full. What this page says
//! about consistency and progress holds for both, with the differences that are listed there.
//!
//! # In async tasks
//!
//! Tasks may call lookups and updates directly: they do not wait for I/O, and updates wait for
//! readers only if one stays so long that too many removed entries cannot be freed. Handles and
//! guards are not `Send`: a task that may move to another thread cannot hold one across an
//! `.await`, or it does not compile ([`Pinned`] shows the error). Use a [`PrivateMap`], or keep
//! copies, or clones of an `Arc`:
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
//! Resizing by hand does wait: call it from `spawn_blocking`.
//!
//! **Features.**
//!
//! * `derive` (by default): the macro `#[derive(Relocatable)]`, see [`Relocatable`].
//! * `serde`: `Serialize` and `Deserialize` for maps and sets.
//! * `rayon`: `par_iter` on handles, and `collect` and `par_extend` into maps and sets.
//! * `contention`: counts the contention on locks of buckets and resizers, see
//!   [`relativist_rcu::contention`]. Use it for measurements only: it makes updates slower.
//!
//! # Consistency
//!
//! * Each operation on a key is one atomic step, and linearizable. A lookup finds every key that is
//!   in the map throughout the call, also during resizes.
//! * Operations on all entries are not one step, but many. An iteration sees an entry that is in
//!   the map throughout exactly once; one that is inserted or removed during the iteration may be
//!   seen or not.
//! * A reference stays valid and its target unchanged as long as the handle or guard. Values are
//!   replaced, never changed in place.
//! * Closures run without locks and may use the map. But a closure that updates its own key is
//!   called again and again, without end. `Eq` of keys may run under a lock, and must not update
//!   the map.
//!
//! # Progress
//!
//! * Lookups and the steps of an iteration are wait-free.
//! * An update locks one bucket. It waits for other updates of that bucket, and during a resize for
//!   updates of neighbouring buckets and for short steps of the resizer.
//! * Automatic growth waits for no reader, and blocks neither lookups nor updates. A reader that
//!   stays in its section delays shrinking, and the reclamation of memory in the whole process
//!   ([`relativist_rcu`]).
//! * Resizing by hand waits for readers. It panics if the calling thread has a handle or a guard.
//!   (Growing a [`FlatMap`] by hand does not wait.)
//!
//! # Performance
//!
//! This is about [`HashMap`]; see [`FlatMap`] for the costs of the other one.
//!
//! * A lookup takes a cache miss for the bucket and one for the entry. At half an entry per bucket,
//!   31 of 32 misses are answered by the bucket alone.
//! * An update takes a lookup, a short lock, and an allocation or a deferred free.
//! * An entry is an allocation of 16 bytes plus key and value. A bucket takes 8 bytes, and there is
//!   usually 1/4 to 1 entry per bucket.
//! * Removed entries are dropped after a grace period. The number that waits is bounded
//!   ([`relativist_rcu::MAX_DEFERRED`]); the memory that their keys and values own is not.
//! * Filling a map, iterating over it and clearing it are slower than with `dashmap` or
//!   `scc::HashIndex`, because each entry is an allocation of its own, in the order of hashes.
//!
//! # When not to use
//!
//! * One thread owns the map: use `hashbrown` or `std`, which do not allocate each entry
//!   separately.
//! * The map is mostly filled, iterated over or cleared: use `dashmap` or `scc`, or try
//!   [`FlatMap`].
//! * Keys or values are not `Send + Sync`, which updates need: use `dashmap` or `papaya`. (If they
//!   are not `'static`, use [`PrivateMap`].)
//! * Readers block inside a read section, unless it is that of a [`PrivateMap`].
//! * The target is not 64-bit, or has user addresses above 2^48.

#[cfg(test)]
use relativist_testing as _;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod access;
mod builder;
mod bulk;
pub mod design;
mod fill;
pub mod flat;
mod iter;
mod map;
#[cfg(feature = "rayon")]
mod parallel;
pub mod private;
mod results;
mod scan;
#[cfg(feature = "serde")]
mod serialize;
mod set;
#[cfg(doctest)]
mod variance;

pub use builder::{BuildError, Builder};
pub use bulk::{Drain, ExtractIf};
pub use equivalent::Equivalent;
pub use flat::{FlatMap, FlatSet, Relocatable};
pub use iter::{IntoIter, Iter, Keys, Values};
pub use map::{HashMap, Pinned};
#[cfg(feature = "rayon")]
pub use parallel::ParIter;
pub use private::PrivateMap;
pub use relativist_rcu::{Guard, read};
pub use relativist_table::{AllocError, Policy, PolicyError, Resizing, Stats};
pub use results::{Change, CompareExchangeError, ExhaustedError, OccupiedError};
pub use set::{HashSet, PinnedSet};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("relativist packs 48-bit pointers and 16 bits of summary into one word: it needs a 64-bit target");
