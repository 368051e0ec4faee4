//! A concurrent hash map. Lookups are wait-free, even while the map grows or shrinks.
//!
//! The maps are made for data that many threads look up more often than they change. A lookup takes
//! no lock, executes no atomic read-modify-write, and never retries. Where the kernel has
//! `membarrier`, it executes no fence either. The maps are *relativistic*, after the hash tables of
//! Triplett, McKenney and Walpole ("Resizable, Scalable, Concurrent Hash Tables via Relativistic
//! Programming", USENIX ATC 2011): readers and resizes run at the same time, and read-copy update
//! (RCU) frees what readers have left. [`relativist_bucket::design`] explains how, and lists the
//! guarantees.
//!
//! # Usage
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
//! [`Map::pin`] enters a read section and returns a handle, [`Pinned`], which has all operations on
//! entries. References to keys and values live as long as the handle.
//!
//! | task | methods of the handle |
//! |---|---|
//! | look up | [`get`](Pinned::get), [`get_key_value`](Pinned::get_key_value), [`contains_key`](Pinned::contains_key), by any type that is [`Equivalent`] to the key |
//! | look up many keys at once | [`get_many`](Pinned::get_many) |
//! | insert or replace | [`insert`](Pinned::insert) |
//! | insert if absent | [`try_insert`](Pinned::try_insert), [`get_or_insert`](Pinned::get_or_insert), [`get_or_insert_with`](Pinned::get_or_insert_with), [`get_or_default`](Pinned::get_or_default); by reference: [`get_or_insert_with_ref`](Pinned::get_or_insert_with_ref) |
//! | change if present | [`update`](Pinned::update), [`compare_exchange`](Pinned::compare_exchange) |
//! | change or insert | [`update_or_insert`](Pinned::update_or_insert), [`update_or_insert_with`](Pinned::update_or_insert_with) |
//! | insert, change or remove, depending on the value | [`compute`](Pinned::compute), [`try_compute`](Pinned::try_compute) |
//! | remove | [`remove`](Pinned::remove), [`remove_entry`](Pinned::remove_entry), [`remove_if`](Pinned::remove_if) |
//! | remove many | [`retain`](Pinned::retain), [`extract_if`](Pinned::extract_if), [`drain`](Pinned::drain), [`clear`](Pinned::clear) |
//! | iterate | [`iter`](Pinned::iter), [`keys`](Pinned::keys), [`values`](Pinned::values) |
//!
//! [`Map`] has the rest: construction, size, lookups that return copies, access through an
//! exclusive reference. The folder `examples` has a short program for each of these tasks.
//!
//! # Which map?
//!
//! * [`FlatMap`] stores entries in its buckets. It is the fastest one for entries of up to some 64
//!   bytes. Keys and values have to be [`Relocatable`]; the trait can be derived.
//! * [`HashMap`] stores each entry in memory of its own. Take it for large entries, for types that
//!   are not `Relocatable`, such as atomics and mutexes in the entry itself, or if entries must
//!   keep their addresses.
//! * [`PrivateMap`] is a `HashMap` with readers of its own. Its handles may be held across an
//!   `.await`, and its keys and values may borrow.
//! * [`LockMap`] has a lock for each entry: its values change in place. Its lookups take the lock.
//!   [`FlatLockMap`] stores its entries as a [`FlatMap`] does.
//!
//! [`HashSet`] and [`FlatSet`] are the sets.
//!
//! # In async tasks
//!
//! Tasks may call lookups and updates directly: they do not wait for I/O, and updates wait for
//! readers only if one stays so long that too many removed entries cannot be freed. Handles of a
//! [`HashMap`] or [`FlatMap`] are not `Send`: a task that may move to another thread cannot hold
//! one across an `.await`, or it does not compile ([`Pinned`] shows the error). Use a
//! [`PrivateMap`], or keep copies, or clones of an `Arc`:
//!
//! ```
//! # use relativist::HashMap;
//! # use std::sync::Arc;
//! # async fn fetch(url: &str) -> Arc<str> { url.into() }
//! async fn page(pages: &HashMap<String, Arc<str>>, url: &str) -> Arc<str> {
//!     let known = pages.get_cloned(url); // the read section ends with the call
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
//! **Features.**
//!
//! * `derive` (default): `#[derive(Relocatable)]`.
//! * `serde`: `Serialize` and `Deserialize` for maps and sets.
//! * `rayon`: `par_iter` on handles, and `collect` and `par_extend` into maps and sets.
//! * `contention`: counts the contention on locks of buckets, see [`relativist_rcu::contention`].
//!   Use it for measurements only: it makes updates slower.
//!
//! # Consistency
//!
//! * Each operation on a key is one atomic step, and linearizable. A lookup finds every key that is
//!   in the map throughout the call, also during resizes.
//! * [`clear`](Pinned::clear) is one step. Other operations on all entries are not one step, but
//!   many. An iteration sees an entry that is in the map throughout exactly once; one that is
//!   inserted or removed during the iteration may be seen or not.
//! * A reference stays valid and its target unchanged as long as the handle. Values are replaced,
//!   never changed in place: for that, there is [`LockMap`].
//!
//! # When not to use
//!
//! * One thread owns the map: use `hashbrown` or `std`.
//! * Keys or values are not `Send + Sync`, which updates need: use `dashmap` or `papaya`.
//! * Readers block inside a read section, unless it is that of a [`PrivateMap`].
//! * The target is not 64-bit, or has user addresses above 2^48.

#[cfg(test)]
use relativist_testing as _;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod builder;
mod collect;
mod entry;
mod hints;
mod iter;
mod key;
pub mod lock_map;
mod map;
#[cfg(feature = "rayon")]
mod parallel;
mod pinned;
mod results;
#[cfg(feature = "serde")]
mod serialize;
mod set;

pub use builder::Builder;
pub use entry::Stores;
pub use equivalent::Equivalent;
pub use iter::{Drain, ExtractIf, IntoIter, Iter, IterMut, Keys, Values, ValuesMut};
pub use lock_map::{FlatLockMap, LockMap};
pub use map::{FlatMap, HashMap, Map, PrivateMap};
#[cfg(feature = "rayon")]
pub use parallel::{ParIter, ParIterLocked};
pub use pinned::Pinned;
pub use relativist_bucket::{AllocError, Boxed, Form, Inline, Private, Relocatable};
#[cfg(feature = "derive")]
pub use relativist_derive::Relocatable;
pub use relativist_rcu::{Guard, read};
pub use results::{Change, CompareExchangeError, OccupiedError};
pub use set::{FlatSet, HashSet, PinnedSet, Set};
