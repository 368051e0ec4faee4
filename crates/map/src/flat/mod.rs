//! A hash map that stores entries inside its buckets. Lookups are wait-free, also while it is
//! resized.
//!
//! [`FlatMap`] makes the same promises as [`HashMap`](crate::HashMap), and has the same methods
//! where they make sense. A bucket is a cache line with up to three entries of 16 bytes. So a hit
//! in a map that exceeds the processor's caches takes one cache miss, where `HashMap` takes two; an
//! insertion seldom allocates; and filling, iterating and clearing go through memory in order.
//!
//! ```
//! use relativist::flat::FlatMap;
//!
//! let map: FlatMap<u64, u64> = FlatMap::new();
//! map.pin().insert(1, 10);
//! assert_eq!(map.pin().get(&1), Some(&10));
//! ```
//!
//! # Which map?
//!
//! | | [`FlatMap`] | [`HashMap`](crate::HashMap) |
//! |---|---|---|
//! | entries | in the buckets: best up to some 64 bytes | in nodes of their own, of any size |
//! | a hit outside of the caches | one cache miss | two |
//! | an update | moves no memory to or from the allocator, unless types need to be dropped | an allocation or a deferred free |
//! | types | [`Relocatable`]: no `Mutex` or atomic in the entry itself | any that are `Send + Sync` |
//! | addresses of entries | change when the map grows | stay as long as the entry |
//! | renaming keys, intrusive use | no | [`rename`](crate::HashMap::rename), [`raw`](crate::raw) |
//!
//! # Consistency and progress
//!
//! As for [`HashMap`](crate), with these differences:
//!
//! * A reference stays valid as long as the guard. But a later lookup of the same entry may return
//!   a reference to another place: compare values, not addresses.
//! * Neither growing nor resizing by hand waits for readers, except to shrink.
//! * Threads that update a map which is being resized move a few of its buckets each time.
//! * Closures of [`FlatMap::update`] and the like are called again if another thread has changed
//!   the entry, or an update of its bucket or a resize has moved it.
//! * Iterating needs `Hash` and `Eq`, by which it recognizes entries that are moved meanwhile.
//!
//! # The algorithm
//!
//! A bucket is a range of hashes, stored as a chain of *segments* of three slots. The first segment
//! is in the array, later ones are allocated when a bucket has more entries than fit. Each segment
//! has a *word* with a tag for each live slot: part of the hash of its key. A lookup loads the
//! word, compares the keys of the slots whose tags match, and goes on to later segments if a filter
//! in the link says that the tag may be there.
//!
//! An update locks the bucket, writes a free slot, and publishes it by one store of the word. A
//! removal from a first segment takes no lock, but one exchange of the word, which fails if the
//! bucket is locked. A slot whose entry was removed is *vacated*: readers may have references to
//! it, so it is free again only after two grace periods, which a stamp in the word shows.
//!
//! To resize, threads copy the entries bucket by bucket to an array of another size, and set a flag
//! in the word of each bucket that has moved. A lookup that finds the flag goes on in the next
//! array. `proofs/flat.pml` is a model of all this, which is checked without some of its steps,
//! too.

mod access;
mod array;
mod atomic;
mod bucket;
mod bulk;
mod chain;
mod collect;
mod iter;
mod map;
#[cfg(feature = "rayon")]
mod parallel;
mod pinned;
mod relocate;
mod resize;
mod segment;
mod set;
mod table;
mod word;

pub use bulk::{Drain, ExtractIf};
pub use iter::{IntoIter, Iter};
pub use map::FlatMap;
#[cfg(feature = "rayon")]
pub use parallel::ParIter;
pub use pinned::Pinned;
pub use relocate::Relocatable;
pub use set::{FlatSet, PinnedSet};
pub(crate) use table::Table;
