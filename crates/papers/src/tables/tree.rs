//! An ordered map in place of a hash table: the standard library's B-tree behind a reader-writer
//! lock.
//!
//! Lever compares a kernel that keeps its page cache in red-black trees with kernels that keep it
//! in a hash table ("Linux Kernel Hash Table Behavior", ALS 2000). Trees need no hash function and
//! no resizing. But a lookup takes log2 n comparisons, and about as many cache misses if each entry
//! is a node.
//!
//! *Progress*: blocking, like any map behind a lock.
//!
//! *A lookup costs* the reader-writer lock and a search in four or five nodes of up to eleven keys
//! (for 65536 entries).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crossbeam_utils::CachePadded;

use crate::tables::Table;
use crate::tables::rwlock::Lock;

/// The standard library's B-tree behind a reader-writer lock.
#[derive(Debug)]
pub struct Tree(CachePadded<parking_lot::RwLock<BTreeMap<u64, u64>>>);

impl Table for Tree {
    const NAME: &'static str = "B-tree, RwLock";

    fn with_buckets(_: usize) -> Self {
        Self(CachePadded::default())
    }

    fn get(&self, key: u64) -> Option<u64> {
        Lock::read(&*self.0).get(&key).copied()
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        match Lock::write(&*self.0).entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(value);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    fn remove(&self, key: u64) -> Option<u64> {
        Lock::write(&*self.0).remove(&key)
    }
}
