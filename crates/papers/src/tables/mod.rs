//! The hash tables that the papers describe or compare with, implemented so that one harness can
//! measure them.
//!
//! The paper is Triplett, McKenney and Walpole, "Resizable, Scalable, Concurrent Hash Tables via
//! Relativistic Programming", USENIX ATC 2011; section numbers refer to it.
//!
//! | Module | Table | Lookups | Resizes |
//! |---|---|---|---|
//! | [`unzip`] | the paper's (section 4) | wait-free | concatenation; a wait for readers per unzipping pass |
//! | [`in_place`] | the same in one place (4.2) | wait-free | as in `unzip`, with one or two waits more |
//! | [`sorted`] | this project's own, of `relativist-table` (4.3) | wait-free | one wait |
//! | [`split_ordered`] | Shalev and Shavit's list under RCU | wait-free | no wait, and one for shrinking |
//! | [`dual_chain`] | Xu's two sets of links | wait-free | one wait |
//! | [`ddds`] | Piggin's (section 5) | retry during a resize | node by node; two waits |
//! | [`rwlock`], [`mutex`] | chains behind one lock (section 5) | blocking | under the lock |
//! | [`fixed`] | RCU chains | wait-free | none |
//! | [`key_move`] | RCU chains that move an entry to another key (section 8) | wait-free | none |
//! | [`xkernel`] | Mosberger's map: a cached entry, a list of filled buckets | of one thread | none |
//! | [`tree`] | no hash table: a B-tree behind a lock | blocking | none |
//!
//! To be comparable, all tables map `u64` to `u64`, hash with the same function, and have chains of
//! nodes of the same layout: link, hash, key, value ([`dual_chain`] has a second link). Bucket
//! arrays are dense, a word per bucket; bucket locks are in a separate array, each in its own cache
//! line. Unless an algorithm requires otherwise, chains are unsorted, with the newest node first,
//! and the bucket is the hash modulo the number of buckets. Lookups are inlined, and each has its
//! own read section (or lock). Two tables are different. [`xkernel`] comes from another paper, is
//! for one thread and for keys of many sizes, and does not implement [`Table`]. [`key_move`] shows
//! an algorithm, and has one lock for all updates.
//!
//! Features that users need are left out: no table here resizes itself, and entries cannot be
//! replaced or iterated over.
//!
//! ```
//! use std::hash::{BuildHasherDefault, DefaultHasher};
//!
//! use relativist_papers::tables::unzip::Unzip;
//! use relativist_papers::tables::{Resize, Table};
//!
//! let table = Unzip::<BuildHasherDefault<DefaultHasher>>::with_buckets(8);
//! assert!(table.insert(1, 10));
//! table.resize_to(64);
//! assert_eq!(table.get(1), Some(10));
//! assert!(table.costs().waits >= 1);
//! ```

#[cfg(test)]
use relativist_testing as _;

mod array;
mod chain;
pub mod ddds;
pub mod dual_chain;
pub mod fixed;
#[cfg(target_os = "linux")]
pub mod in_place;
pub mod key_move;
mod locks;
pub mod mutex;
mod owned;
mod rcu;
mod resizer;
pub mod rwlock;
pub mod sorted;
pub mod split_ordered;
pub mod tree;
pub mod unzip;
pub mod xkernel;
mod zip;

use std::hash::BuildHasher;

pub use resizer::Costs;

/// A hash function, the same for all tables of a comparison.
pub trait TableHasher: BuildHasher + Clone + Default + Send + Sync + 'static {}

impl<H: BuildHasher + Clone + Default + Send + Sync + 'static> TableHasher for H {}

/// A table that any number of threads may use.
pub trait Table: Send + Sync + 'static {
    /// The name of the table in reports.
    const NAME: &'static str;

    /// Creates an empty table of `buckets` buckets. Tables without buckets ignore the number.
    ///
    /// # Panics
    /// Panics if `buckets` is not a power of two.
    fn with_buckets(buckets: usize) -> Self;

    /// Returns the value of `key`.
    fn get(&self, key: u64) -> Option<u64>;

    /// Inserts a key if it is absent. Returns false, and changes nothing, if it is present.
    fn insert(&self, key: u64, value: u64) -> bool;

    /// Removes a key and returns its value.
    fn remove(&self, key: u64) -> Option<u64>;
}

/// A table whose number of buckets can be changed while other threads use it.
pub trait Resize: Table {
    /// Resizes to `buckets` buckets. Other threads that resize the table wait.
    ///
    /// # Panics
    /// Panics if `buckets` is not a power of two, or less than the initial number, for which there
    /// are locks. Panics inside a read section.
    fn resize_to(&self, buckets: usize);

    /// Returns the current number of buckets.
    fn buckets(&self) -> usize;

    /// Returns the costs of all resizes so far.
    fn costs(&self) -> Costs;
}
