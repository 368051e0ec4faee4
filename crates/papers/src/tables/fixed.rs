//! A hash table of RCU chains that cannot be resized, like those of the Linux kernel before it had
//! resizable ones. It is the baseline for comparisons.
//!
//! *Progress*: lookups are wait-free; updates wait for updates of their bucket.
//!
//! *A lookup costs* a read section, a load for the head (base and mask are the table's own), and
//! one per entry. No shared line is written.

use relativist_rcu::read;

use crate::tables::array::Array;
use crate::tables::chain::{self, Node, links};
use crate::tables::locks::Locks;
use crate::tables::{Table, TableHasher};

/// Chains under RCU with per-bucket locks.
#[derive(Debug)]
pub struct Fixed<H> {
    array: Array,
    hasher: H,
    locks: Locks,
}

impl<H: TableHasher> Table for Fixed<H> {
    const NAME: &'static str = "fixed";

    fn with_buckets(buckets: usize) -> Self {
        Self { array: Array::new(buckets), hasher: H::default(), locks: Locks::new(buckets) }
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        // SAFETY: nodes are retired by RCU.
        unsafe { chain::get(self.array.head(self.hasher.hash_one(key)), key, &read()) }
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        let hash = self.hasher.hash_one(key);
        let _lock = self.locks.lock(hash);
        // SAFETY: the lock is that of the chain.
        unsafe { chain::insert(self.array.head(hash), hash, key, value) }
    }

    fn remove(&self, key: u64) -> Option<u64> {
        let hash = self.hasher.hash_one(key);
        let node = {
            let _lock = self.locks.lock(hash);
            // SAFETY: the lock is that of the chain.
            let (link, node) = unsafe { links(self.array.head(hash)) }.find(|(_, node)| node.key == key)?;
            // SAFETY: this thread holds the lock of the chain.
            unsafe { chain::unlink(link, node) }
        };
        // SAFETY: unlinked above.
        Some(unsafe { Node::retire(node) })
    }
}

impl<H> Drop for Fixed<H> {
    fn drop(&mut self) {
        // SAFETY: no other thread uses the table.
        unsafe { self.array.free_nodes() };
    }
}
