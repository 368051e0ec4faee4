//! Ordered maps in place of hash tables: the standard library's B-tree behind a reader-writer lock,
//! and a skip list without locks.
//!
//! Lever compares a kernel that keeps its page cache in red-black trees with kernels that keep it
//! in a hash table ("Linux Kernel Hash Table Behavior", ALS 2000). Trees need no hash function and
//! no resizing. But a lookup takes log2 n comparisons, and about as many cache misses if each entry
//! is a node.
//!
//! *Progress*: [`Tree`] blocks like any map behind a lock. Lookups in [`SkipList`] are lock-free.
//!
//! *A lookup costs*, in the tree, the reader-writer lock and a search in four or five nodes of up
//! to eleven keys (for 65536 entries); in the list, an epoch guard (a full fence) and some twenty
//! to thirty nodes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crossbeam_skiplist::SkipMap;
use crossbeam_utils::CachePadded;

use crate::tables::Table;
use crate::tables::locks::Locks;
use crate::tables::rwlock::Lock;

/// The standard library's B-tree behind a reader-writer lock.
#[derive(Debug)]
pub struct Tree(CachePadded<parking_lot::RwLock<BTreeMap<u64, u64>>>);

impl Table for Tree {
    const NAME: &'static str = "B-tree, RwLock";
    const ENTRY_BYTES: usize = 2 * size_of::<u64>();

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

/// crossbeam's skip list.
///
/// Insertion into it does not return whether the key was present, but [`Table::insert`] has to. So
/// a lock per key serializes updates.
pub struct SkipList {
    map: SkipMap<u64, u64>,
    updates: Locks,
}

impl Table for SkipList {
    const NAME: &'static str = "skip list";
    /// Key, value, reference count with height, and two links on average.
    const ENTRY_BYTES: usize = 5 * size_of::<u64>();

    fn with_buckets(_: usize) -> Self {
        Self { map: SkipMap::new(), updates: Locks::new(64) }
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.map.get(&key).map(|entry| *entry.value())
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        let _updating = self.updates.lock(key);
        let absent = !self.map.contains_key(&key);
        if absent {
            self.map.insert(key, value);
        }
        absent
    }

    fn remove(&self, key: u64) -> Option<u64> {
        let _updating = self.updates.lock(key);
        self.map.remove(&key).map(|entry| *entry.value())
    }
}

impl std::fmt::Debug for SkipList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SkipList").field("len", &self.map.len()).finish()
    }
}
