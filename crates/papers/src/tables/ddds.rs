//! Nick Piggin's *Dynamic Dynamic Data Structures* (USENIX ATC 2011, section 5): two tables while
//! one is resized, and a sequence counter.
//!
//! A resizer announces the old table, waits for readers, makes an empty one the current table, and
//! moves the nodes one by one from the old table to the new one. It increments a counter before and
//! after each move, so the counter is odd during a move. When all nodes are moved, the resizer
//! withdraws the old table, and frees it after another wait.
//!
//! A lookup that sees no old table looks at one table. Otherwise it looks at the current one, then
//! at the old one. If it misses in both, the node may have been in neither, or a moved node may
//! have led the lookup into another chain. This is possible only if the counter was odd before or
//! has changed since; then the lookup starts again.
//!
//! A lookup that sees no old table need not read the counter: no node is moved before the first
//! wait is over, so all lookups that have not seen the old table have left by then. And a lookup
//! that sees that the old table was withdrawn also sees the current one.
//!
//! *Progress*: lookups are not wait-free: during a resize they may retry without bound. Updates
//! wait for updates of their bucket, and for the move of the bucket. Resizers wait for readers
//! twice.
//!
//! *A lookup costs*, when there is no resize, one load and branch more than in a table that is
//! never resized. During a resize it also costs two loads of the counter, which is written twice
//! per moved entry, and it walks chains of two tables.

use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crossbeam_utils::CachePadded;
use relativist_rcu::{Guard, read};

use crate::tables::array::Array;
use crate::tables::chain::{self, Node, links, push};
use crate::tables::locks::Locks;
use crate::tables::rcu::Rcu;
use crate::tables::resizer::Resizer;
use crate::tables::{Costs, Resize, Table, TableHasher};

/// Piggin's table.
#[derive(Debug)]
pub struct Ddds<H> {
    current: Rcu<Array>,
    /// The table that is being emptied. Not owned.
    old: Rcu<Array>,
    hasher: H,
    locks: Locks,
    /// Odd while a node is being moved. In its own cache line: it is used during resizes only.
    moves: CachePadded<AtomicUsize>,
    resizer: CachePadded<Resizer>,
}

impl<H: TableHasher> Table for Ddds<H> {
    const NAME: &'static str = "DDDS";

    fn with_buckets(buckets: usize) -> Self {
        let array = Array::new(buckets);
        Self {
            resizer: Resizer::with_bytes(array.bytes()).into(),
            current: Rcu::new(array),
            old: Rcu::none(),
            hasher: H::default(),
            locks: Locks::new(buckets),
            moves: CachePadded::default(),
        }
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        let guard = read();
        let hash = self.hasher.hash_one(key);
        if self.old.try_get(&guard).is_some() {
            return self.get_during_resize(hash, key, guard);
        }
        // SAFETY: there always is a current table. Nodes are retired by RCU.
        unsafe { chain::get(self.current.get(&guard).head(hash), key, &guard) }
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        let hash = self.hasher.hash_one(key);
        let _lock = self.locks.lock(hash);
        let guard = read();
        // SAFETY: the lock is that of the chains of all tables.
        let is_old = |old: &Array| unsafe { links(old.head(hash)) }.any(|(_, node)| node.key == key);
        if self.old.try_get(&guard).is_some_and(is_old) {
            return false;
        }
        // SAFETY: there always is a current table. A resizer that is about to replace it will move
        // the node when it gets the lock.
        unsafe { chain::insert(self.current.get(&guard).head(hash), hash, key, value) }
    }

    fn remove(&self, key: u64) -> Option<u64> {
        let hash = self.hasher.hash_one(key);
        let node = {
            let _lock = self.locks.lock(hash);
            let guard = read();
            // SAFETY: there always is a current table.
            let tables = [Some(unsafe { self.current.get(&guard) }), self.old.try_get(&guard)];
            // SAFETY: the lock is that of the chains of all tables.
            let mut links = tables.into_iter().flatten().flat_map(|table| unsafe { links(table.head(hash)) });
            let (link, node) = links.find(|(_, node)| node.key == key)?;
            // SAFETY: this thread holds the lock, and a node is in one chain.
            unsafe { chain::unlink(link, node) }
        };
        // SAFETY: unlinked above.
        Some(unsafe { Node::retire(node) })
    }
}

impl<H> Ddds<H> {
    /// Finishes a lookup that has seen an old table. This is a cold function of its own, and takes
    /// the guard, so that other lookups do not pay for it.
    #[cold]
    #[inline(never)]
    fn get_during_resize(&self, hash: u64, key: u64, guard: Guard) -> Option<u64> {
        // This is `None` if the old table has been withdrawn: then all nodes are in the current
        // one, and stay there during this section.
        let old = self.old.try_get(&guard);
        loop {
            // Acquire: pairs with the Release after each move. This thread sees all earlier moves.
            let moves = self.moves.load(Acquire);
            // SAFETY: there always is a current table. Nodes are retired by RCU.
            let found = unsafe { chain::get(self.current.get(&guard).head(hash), key, &guard) };
            // SAFETY: nodes are retired by RCU.
            let found = found.or_else(|| unsafe { chain::get(old?.head(hash), key, &guard) });
            // Relaxed: if one of the loads above has seen a store of a move, the two pair (Acquire,
            // Release), and this load sees that the move has begun. It is not executed before those
            // loads, because they are Acquire.
            let moved = moves % 2 == 1 || self.moves.load(Relaxed) != moves;
            if found.is_some() || !moved {
                return found;
            }
            std::hint::spin_loop();
        }
    }

    /// Moves all nodes of an old bucket.
    fn empty(&self, head: &chain::Link, table: &Array) {
        // SAFETY: the caller holds the lock of the bucket, and so of those to which its nodes
        // belong.
        while let Some(node) = unsafe { head.load(Relaxed).as_ref() } {
            let moves = self.moves.load(Relaxed);
            // Relaxed: a thread that sees the stores that follow, which are Release, sees this one.
            self.moves.store(moves + 1, Relaxed);
            // SAFETY: as above.
            let moved = unsafe { chain::unlink(head, node) };
            // SAFETY: as above, and it is in no chain now.
            unsafe { push(table.head(node.hash), moved.as_ptr()) };
            // Release: pairs with the Acquire in `get_during_resize`.
            self.moves.store(moves + 2, Release);
        }
    }
}

impl<H: TableHasher> Resize for Ddds<H> {
    fn resize_to(&self, buckets: usize) {
        self.locks.assert_enough(buckets);
        let _resizing = self.resizer.lock();
        let before = self.current.pointer();
        // SAFETY: there always is a table, and only this thread frees it.
        let old = unsafe { &*before };
        if old.buckets() == buckets {
            return;
        }
        let table = Array::new(buckets);
        self.resizer.add_bytes(table.bytes());
        // SAFETY: it is freed below, after a wait.
        unsafe { self.old.set(before) };
        // Lookups that have seen no old table look at the current one only.
        self.resizer.wait_for_readers();
        // SAFETY: as above.
        unsafe { self.current.set(Box::into_raw(Box::new(table))) };
        // SAFETY: there is a table; no other thread replaces it.
        let table = unsafe { &*self.current.pointer() };
        for (bucket, head) in old.heads().iter().enumerate() {
            let _lock = self.locks.lock(bucket as u64);
            self.empty(head, table);
        }
        // SAFETY: as above.
        unsafe { self.old.set(null_mut()) };
        self.resizer.wait_for_readers();
        self.resizer.subtract_bytes(old.bytes());
        // SAFETY: it came from a box, and all readers, including updates, have left it.
        drop(unsafe { Box::from_raw(before) });
    }

    fn buckets(&self) -> usize {
        let guard = read();
        // SAFETY: there always is a table.
        unsafe { self.current.get(&guard) }.buckets()
    }

    fn costs(&self) -> Costs {
        self.resizer.costs()
    }
}

impl<H> Drop for Ddds<H> {
    fn drop(&mut self) {
        let array = self.current.get_mut().expect("there always is a table");
        // SAFETY: no other thread uses the table.
        unsafe { array.free_nodes() };
    }
}
