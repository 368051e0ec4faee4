//! A hash map that stores entries inside its buckets. Lookups are wait-free, also while the map is
//! resized.
//!
//! [`FlatMap`] makes the same promises as [`HashMap`](crate::HashMap), and has the same methods
//! where they make sense. A bucket is a cache line with up to three entries of 16 bytes. So most
//! hits in a map that exceeds the processor's caches take one cache miss, where `HashMap` takes
//! two. Insertions seldom allocate. Filling, iterating and clearing go through memory in order.
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
//! | an update | allocates nothing, unless a bucket overflows or types need to be dropped | an allocation or a deferred free |
//! | types | [`Relocatable`]: no `Mutex` or atomic in the entry itself | any that are `Send + Sync` |
//! | addresses of entries | change when the map is resized, and may change when their bucket is updated | stay as long as the entry |
//! | intrusive use | no | no, but its table has it: `relativist-table` |
//!
//! # Consistency and progress
//!
//! A flat map makes the promises of [`HashMap`](crate), with these differences:
//!
//! * A reference stays valid as long as the guard. But a later lookup of the same entry may return
//!   a reference to another place: compare values, not addresses.
//! * Growing never waits for readers, not even by hand. Shrinking by hand waits for readers.
//! * Insertions and removals during a resize also move a few buckets.
//! * Closures of [`FlatMap::update`] and similar operations run again if another thread has changed
//!   the entry meanwhile, or has moved it by a resize or an update of the same bucket.
//! * Iterating needs `Hash` and `Eq`, to recognize entries that are moved meanwhile.
//!
//! # The algorithm
//!
//! A bucket is a range of hashes, stored as a chain of *segments* of three slots. The first segment
//! is in the array. Later segments are allocated when a bucket has more entries than fit. Each
//! segment has a *word* with a tag for each live slot: part of the hash of its key. A lookup loads
//! the word and compares the keys of the slots whose tags match. It goes on to later segments only
//! if a filter in the link shows that an entry with this tag may be there.
//!
//! An update locks the bucket, writes a free slot, and publishes the slot by one store of the word.
//! [`FlatMap::remove`] takes no lock if the entry is in the first segment: one compare-exchange of
//! the word vacates the slot. If it fails, because an update holds the lock or has changed the
//! word, the removal locks the bucket, too. Readers may have references to a *vacated* slot. So the
//! slot is free again only after two grace periods. A stamp in the word shows when it was vacated.
//!
//! To resize, threads copy the entries bucket by bucket to an array of another size. The word of a
//! bucket that has moved has a flag and no live slots, and its filter has all bits. So a lookup
//! finds nothing in the first segment, is sent on by the filter, sees the flag, and goes on in the
//! next array.
//!
//! `proofs/flat.pml` is a model of all this, except that its removals always lock. The model is
//! also checked with single steps left out, and each time a check fails.

mod access;
mod array;
mod bucket;
mod builder;
mod bulk;
mod chain;
mod iter;
mod map;
#[cfg(feature = "rayon")]
mod parallel;
mod put;
mod relocate;
mod remove;
mod resize;
mod segment;
mod set;
mod table;
mod word;

pub use builder::Builder;
pub use bulk::{Drain, ExtractIf, Keys, Values};
pub use iter::{IntoIter, Iter};
pub use map::{FlatMap, Pinned};
#[cfg(feature = "rayon")]
pub use parallel::ParIter;
pub use relocate::Relocatable;
pub use set::{FlatSet, PinnedSet};
