//! A hash map with a private domain: its readers may stay for long, also across an `.await`, and
//! its keys and values may borrow.
//!
//! [`PrivateMap`] is a [`HashMap`](crate::HashMap) whose entries are protected by a
//! [private domain](relativist_rcu::Domain) of their own instead of the domain of the process. It
//! has the same operations. What differs:
//!
//! | | [`PrivateMap`] | [`HashMap`](crate::HashMap) |
//! |---|---|---|
//! | the handle | [`Pinned`] is `Send` and `Sync`, and may be held across an `.await` | stays on its thread |
//! | a reader that stays | delays the reclamation of this map's entries, and nothing else | delays reclamation in the whole process |
//! | keys and values | any that are `Send + Sync`, with borrows too | must be `'static` |
//! | removed entries | are dropped by threads that use or drop this map | are dropped on any thread |
//! | entries that wait | not bounded while a handle stays; see [`PrivateMap::pending`] | bounded: threads wait |
//! | methods that take a guard | none: all operations are those of the handle | those of the map |
//! | a lookup | enters a section of the process in addition | |
//!
//! # Borrowed keys and values
//!
//! Entries may borrow from the stack of a function whose threads use the map:
//!
//! ```
//! use relativist::PrivateMap;
//!
//! let text = String::from("to be or not to be");
//! let words: PrivateMap<&str, usize> = PrivateMap::new();
//! std::thread::scope(|scope| {
//!     for half in [&text[..9], &text[9..]] {
//!         let words = &words;
//!         scope.spawn(move || {
//!             for word in half.split_whitespace() {
//!                 words.pin().update_or_insert(word, |n| n + 1, 1);
//!             }
//!         });
//!     }
//! });
//! assert_eq!(words.pin().get("be"), Some(&2));
//! ```
//!
//! What is borrowed must outlive the map:
//!
//! ```compile_fail,E0597
//! use relativist::PrivateMap;
//!
//! let words: PrivateMap<&str, usize> = PrivateMap::new();
//! let text = String::from("to be or not to be"); // error: dropped before `words`
//! words.pin().insert(&text[..2], 1);
//! ```
//!
//! # In async tasks
//!
//! ```
//! use std::sync::Arc;
//! use relativist::PrivateMap;
//!
//! async fn fetch(url: &str) -> usize { url.len() }
//! async fn compare(pages: Arc<PrivateMap<String, usize>>, url: &str) -> Option<bool> {
//!     let pinned = pages.pin();
//!     let known = pinned.get(url)?;
//!     let fetched = fetch(url).await; // the task may go on on another thread
//!     Some(*known == fetched)
//! }
//! # let pages = Arc::new(PrivateMap::from([("/".to_string(), 1)]));
//! # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
//! # assert_eq!(runtime.block_on(runtime.spawn(compare(pages, "/"))).unwrap(), Some(true));
//! ```
//!
//! # How it works
//!
//! A reader of the map is in a section of the map's domain as long as its handle lives. Each
//! operation also enters a section of the process for the time that it needs to walk the table, and
//! leaves it before it returns.
//!
//! * **Nodes**, each a link with a key and a value, are protected by the sections of handles: an
//!   operation walks over links only while its handle lives. A removed entry waits for a grace
//!   period of the map's domain. Then a thread that removes or replaces another entry,
//!   [reclaims](PrivateMap::reclaim), or drops the map drops its key and its value, and frees the
//!   node. No other thread does, because what they borrow may be gone then, and a map that was
//!   leaked could not stop such a thread. The background resizer is in no section of the domain. It
//!   reads only links in chains that it has locked, which are in the table, and never keys and
//!   values.
//! * **Buckets** are protected by the sections of the process, as in other maps. Only operations
//!   and the background resizer look at them. So a handle that stays does not delay resizes.
//!
//! A grace period of the map's domain that began after an entry was unlinked waits for each handle
//! that may have found it. Lookups with handles that were made later begin after the entry was
//! unlinked, and do not find it ([T1](relativist_table::design)).

mod access;
mod iter;
mod map;

pub use iter::{Drain, ExtractIf, IntoIter, Iter, Keys, Values};
pub use map::{Pinned, PrivateMap};
