//! The hash tables that the papers describe or compare with, as real code, to be measured under one
//! harness.
//!
//! The paper is Triplett, McKenney and Walpole, "Resizable, Scalable, Concurrent Hash Tables via
//! Relativistic Programming", USENIX ATC 2011; sections are its.
//!
//! | Module | Table | Lookups | Resizes |
//! |---|---|---|---|
//! | [`unzip`] | the paper's (section 4) | wait-free | concatenation; a wait for readers per unzipping pass |
//! | [`in_place`] | the same in one place (4.2) | wait-free | likewise, with one or two waits more |
//! | [`sorted`] | this project's own (4.3) | wait-free | one wait |
//! | [`split_ordered`] | Shalev and Shavit's list under RCU | wait-free | no wait, and one for shrinking |
//! | [`dual_chain`] | Xu's two sets of links | wait-free | one wait |
//! | [`ddds`] | Piggin's (section 5) | retry beside a resize | node by node; two waits |
//! | [`rwlock`], [`mutex`] | chains behind one lock (section 5) | blocking | under the lock |
//! | [`striped`] | a lock per stripe | blocking | stripe by stripe |
//! | [`fixed`] | RCU chains | wait-free | none |
//! | [`xkernel`] | Mosberger's map: a cached entry, a list of filled buckets | of one thread | none |
//! | [`tree`] | no hash table: a B-tree behind a lock, a skip list | blocking; lock-free | none |
//!
//! To be comparable, all tables map `u64` to `u64`, hash with the same function, and have chains of
//! nodes of the same layout: link, hash, key, value ([`dual_chain`] has a link more, which is its
//! point). Bucket arrays are dense, a word per bucket; bucket locks lie beside them, each on a line
//! of its own. Chains are unsorted, with the youngest first, and the bucket is the hash modulo the
//! number of buckets, but where an algorithm says otherwise. Lookups are inlined, and have a read
//! section (or lock) of their own. [`xkernel`] stands apart: it is of another paper, for one thread
//! and for keys of many sizes, and is no [`Table`].
//!
//! What users want of a table is left out: no table here resizes itself, and entries can't be
//! replaced or iterated over.
//!
//! ```
//! use std::hash::{BuildHasherDefault, DefaultHasher};
//!
//! use relativist_baselines::unzip::Unzip;
//! use relativist_baselines::{Resize, Table};
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
mod locks;
pub mod mutex;
mod owned;
mod rcu;
mod resizer;
pub mod rwlock;
pub mod sorted;
pub mod split_ordered;
pub mod striped;
pub mod tree;
pub mod unzip;
pub mod xkernel;
mod zip;

use std::hash::BuildHasher;

pub use resizer::Costs;

/// A hash function, the same for all tables of a comparison.
pub trait TableHasher: BuildHasher + Clone + Default + Send + Sync + 'static {}

impl<H: BuildHasher + Clone + Default + Send + Sync + 'static> TableHasher for H {}

/// A table that any number of threads use.
pub trait Table: Send + Sync + 'static {
    /// How reports call it.
    const NAME: &'static str;

    /// Bytes that an entry takes, without its share of the buckets and what the allocator adds.
    const ENTRY_BYTES: usize = size_of::<chain::Node>();

    /// An empty table of `buckets` buckets, if it has such.
    ///
    /// # Panics
    /// When `buckets` is not a power of two.
    fn with_buckets(buckets: usize) -> Self;

    /// The value of `key`.
    fn get(&self, key: u64) -> Option<u64>;

    /// Inserts a key if it is absent; false, and nothing is changed, when it was present.
    fn insert(&self, key: u64, value: u64) -> bool;

    /// Removes a key; its value.
    fn remove(&self, key: u64) -> Option<u64>;
}

/// A table whose number of buckets can be changed while others use it.
pub trait Resize: Table {
    /// Resizes to `buckets` buckets, and returns when that is done. Others that resize wait.
    ///
    /// # Panics
    /// When `buckets` is not a power of two, or less than what the table was made with: there are
    /// locks for each of these. Inside a read section.
    fn resize_to(&self, buckets: usize);

    /// Buckets now.
    fn buckets(&self) -> usize;

    /// What resizes have cost so far.
    fn costs(&self) -> Costs;
}
