//! Sorted chains (USENIX ATC 2011, section 4.3): an adapter for this project's own chained table,
//! [`relativist_table`].
//!
//! The bucket is taken from the high bits of the hash and chains are sorted by it, so that a resize
//! only joins or cuts neighbouring chains, with one wait for readers, whatever the factor;
//! [`relativist_table::design`] explains why.
//!
//! *Progress*: lookups are wait-free; updates wait for updates of their bucket and the resizer's
//! work on it; resizers wait for readers.
//!
//! *A lookup costs* a read section, the loads for array and head, and one per entry with a hash
//! that is not larger. Most misses end at the head.

use std::hash::{BuildHasher, Hash as HashKey};
use std::marker::PhantomData;
use std::ptr::NonNull;

use crossbeam_utils::CachePadded;
use relativist_rcu::{Guard, read};
use relativist_table::node::Node;
use relativist_table::{Entry, Hash, Link, Resizing};

use crate::tables::resizer::Resizer;
use crate::tables::{Costs, Resize, Table, TableHasher};

/// The bytes of a bucket.
const BUCKET: usize = relativist_table::Table::BYTES_PER_BUCKET;

/// The library's table, resized by hand.
#[derive(Debug)]
pub struct Sorted<H, K = u64> {
    table: relativist_table::Table,
    hasher: H,
    resizer: CachePadded<Resizer>,
    _keys: PhantomData<K>,
}

impl<H: BuildHasher, K: HashKey + Eq + Copy + Send + Sync + 'static> Sorted<H, K> {
    /// Creates an empty table of `buckets` buckets, at least 2.
    ///
    /// # Panics
    /// Panics if `buckets` is not a power of two.
    pub fn with_hasher(buckets: usize, hasher: H) -> Self {
        assert!(buckets.is_power_of_two(), "{buckets} is not a power of two");
        let table = relativist_table::Table::new(buckets, Resizing::Manual, Node::<K, u64>::dispose);
        let table = table.expect("memory for the buckets");
        let resizer = Resizer::with_bytes(table.buckets() * BUCKET).into();
        Self { table, hasher, resizer, _keys: PhantomData }
    }

    #[inline(always)]
    fn hash(&self, key: &K) -> Hash {
        Hash::new(self.hasher.hash_one(key))
    }

    /// # Safety
    ///
    /// `link` was found in this table, and the guard or lock that keeps it alive lasts for `'a`.
    #[inline(always)]
    unsafe fn node<'a>(link: NonNull<Link>) -> &'a Node<K, u64> {
        // SAFETY: all links of the table are in nodes of this type.
        unsafe { Node::of(link) }
    }

    /// Returns a function that recognizes the link of this key.
    #[inline(always)]
    fn has_key(key: &K) -> impl Fn(NonNull<Link>) -> bool {
        // SAFETY: the table calls this with links of its own, in a read section or under their
        // lock.
        move |link| *key == unsafe { Self::node(link) }.key
    }

    /// Returns the value of a key.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Option<u64> {
        let guard = read();
        let link = self.table.find(self.hash(key), Self::has_key(key), &guard)?;
        // SAFETY: found under the guard.
        Some(unsafe { Self::node(link) }.value)
    }

    /// Inserts a key if it is absent. Returns false, and changes nothing, if it is present.
    #[inline(always)]
    pub fn insert(&self, key: K, value: u64) -> bool {
        let hash = self.hash(&key);
        let link = Node::new(hash, key, value).into_link();
        match self.table.entry(hash, Self::has_key(&key), &read()) {
            Entry::Vacant(entry) => {
                // SAFETY: a fresh node, which `Node::dispose` can free. `remove` frees it after a
                // grace period.
                unsafe { entry.insert(link) };
                true
            }
            Entry::Occupied(_) => {
                // SAFETY: no other thread has seen it.
                unsafe { Node::<K, u64>::dispose(link) };
                false
            }
        }
    }

    /// Removes a key and returns its value.
    #[inline(always)]
    pub fn remove(&self, key: &K) -> Option<u64> {
        let guard = read();
        let link = self.table.remove(self.hash(key), Self::has_key(key), &guard)?;
        // SAFETY: this thread has just unlinked it, and the guard keeps it alive.
        unsafe {
            Node::<K, u64>::retire(link, &guard);
            Some(Self::node(link).value)
        }
    }

    /// Iterates over the values.
    pub fn values<'g>(&'g self, guard: &'g Guard) -> impl Iterator<Item = u64> + 'g {
        // SAFETY: reached in the table under the guard.
        self.table.iter(guard).map(|link| unsafe { Self::node(link) }.value)
    }
}

impl<H: TableHasher> Table for Sorted<H> {
    const NAME: &'static str = "relativist";

    fn with_buckets(buckets: usize) -> Self {
        Self::with_hasher(buckets, H::default())
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        self.get(&key)
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        self.insert(key, value)
    }

    fn remove(&self, key: u64) -> Option<u64> {
        self.remove(&key)
    }
}

impl<H: TableHasher> Resize for Sorted<H> {
    fn resize_to(&self, buckets: usize) {
        let _resizing = self.resizer.lock();
        let before = self.table.buckets();
        if buckets != before {
            self.resizer.add_bytes(buckets * BUCKET);
            self.table.resize_to(buckets).expect("memory for the buckets");
            // Guarantee T5 of the library: growing waits once, whatever the factor, and shrinking
            // does not. (`stats` would report this, but it walks all buckets.)
            if buckets > before {
                self.resizer.count_wait();
            }
            self.resizer.subtract_bytes(before * BUCKET);
        }
    }

    fn buckets(&self) -> usize {
        self.table.buckets()
    }

    fn costs(&self) -> Costs {
        self.resizer.costs()
    }
}
