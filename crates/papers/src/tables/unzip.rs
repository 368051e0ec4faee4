//! The resizable hash table of Triplett, McKenney and Walpole (USENIX ATC 2011, section 4), as the
//! paper prints it.
//!
//! A lookup takes a snapshot of the array's address, and walks the chain of its bucket. Chains may
//! be *imprecise*: contain entries of other buckets as well. Resizers ensure that no chain ever
//! lacks an entry of its own bucket.
//!
//! * *Shrink*: link the ends of the chains that become one to the beginning of the next; publish
//!   the smaller array; wait for readers; free the larger array.
//! * *Expand*: lead each new bucket to the first of its entries in the old bucket's chain; publish
//!   the larger array; wait for readers; then split the chains, step by step, with a wait for
//!   readers after each pass over all buckets: see `zip.rs`. The old array's heads hold the
//!   beginning of the zipped part of each chain. (The wait of step 7 after a pass that has changed
//!   nothing is left out, because it would order nothing.) A resize may have any factor that is a
//!   power of two.
//!
//! Updates (section 4.1) take the lock of their bucket. A resizer holds all of them until it has
//! published the new array, and then, while it expands, those of the buckets that it changes.
//!
//! *Progress*: lookups are wait-free. Updates wait for updates of their bucket and for the
//! resizer's work, but never for readers (except by the bound on the backlog of deferred work).
//! Resizers wait for readers: once to shrink; to expand, once, and once more for each pass. There
//! are as many passes as runs in the most mixed chain.
//!
//! *A lookup costs* a read section, and three loads that depend on one another (array, its mask and
//! base, head), then one per entry. A miss walks the whole chain. No shared line is written.

use std::ptr::null_mut;
use std::sync::atomic::Ordering::Release;

use crossbeam_utils::CachePadded;
use relativist_rcu::read;

use crate::tables::array::Array;
use crate::tables::chain::{self, Node, links, target};
use crate::tables::locks::Locks;
use crate::tables::rcu::Rcu;
use crate::tables::resizer::Resizer;
use crate::tables::zip::{Disturbed, Zipped, pass};
use crate::tables::{Costs, Resize, Table, TableHasher};

/// The paper's table, called RP in its figures.
#[derive(Debug)]
pub struct Unzip<H> {
    current: Rcu<Array>,
    /// While the table is expanded: the previous array, with the beginnings of zipped parts. Not
    /// owned.
    before: Rcu<Array>,
    hasher: H,
    locks: Locks<Disturbed>,
    resizer: CachePadded<Resizer>,
}

impl<H: TableHasher> Table for Unzip<H> {
    const NAME: &'static str = "RP, unzip";

    fn with_buckets(buckets: usize) -> Self {
        let array = Array::new(buckets);
        Self {
            resizer: Resizer::with_bytes(array.bytes()).into(),
            current: Rcu::new(array),
            before: Rcu::none(),
            hasher: H::default(),
            locks: Locks::new(buckets),
        }
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        let guard = read();
        // SAFETY: there always is an array. Nodes are retired by RCU.
        unsafe { chain::get(self.current.get(&guard).head(self.hasher.hash_one(key)), key, &guard) }
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        let hash = self.hasher.hash_one(key);
        let _lock = self.locks.lock(hash);
        // The array is read only after locking, because a resizer that holds the lock may be about
        // to publish another one.
        let guard = read();
        // SAFETY: there always is an array. The lock is that of the whole chain, also where it is
        // zipped.
        unsafe { chain::insert(self.current.get(&guard).head(hash), hash, key, value) }
    }

    fn remove(&self, key: u64) -> Option<u64> {
        let hash = self.hasher.hash_one(key);
        let node = {
            let mut disturbed = self.locks.lock(hash);
            let guard = read();
            // SAFETY: there always is an array.
            let array = unsafe { self.current.get(&guard) };
            // SAFETY: the lock is that of the chain.
            let (link, node) = unsafe { links(array.head(hash)) }.find(|(_, node)| node.key == key)?;
            match self.before.try_get(&guard) {
                // SAFETY: as above; Z1 holds since the arrays were published.
                Some(before) => unsafe {
                    Zipped::new(before.head(hash), array.buckets()).unlink(link, node, &mut disturbed)
                },
                // SAFETY: as above. Chains share no nodes.
                None => unsafe { chain::unlink(link, node) },
            }
        };
        // SAFETY: unlinked above.
        Some(unsafe { Node::retire(node) })
    }
}

impl<H: TableHasher> Resize for Unzip<H> {
    fn resize_to(&self, buckets: usize) {
        self.resize_to_watched(buckets, |_| ());
    }

    fn buckets(&self) -> usize {
        let guard = read();
        // SAFETY: there always is an array.
        unsafe { self.current.get(&guard) }.buckets()
    }

    fn costs(&self) -> Costs {
        self.resizer.costs()
    }
}

/// The phases of a resizer's wait for readers, for an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The wait is about to begin.
    Begins,
    /// All threads that were reading at the beginning of the wait have left.
    Ended,
}

impl<H: TableHasher> Unzip<H> {
    /// Like [`Resize::resize_to`], but calls the observer at each wait for readers.
    ///
    /// # Panics
    /// See [`Resize::resize_to`].
    pub fn resize_to_watched(&self, buckets: usize, mut watch: impl FnMut(Wait)) {
        self.locks.assert_enough(buckets);
        let _resizing = self.resizer.lock();
        match self.buckets() {
            now if buckets < now => self.shrink(buckets, &mut watch),
            now if buckets > now => self.expand(buckets, &mut watch),
            _ => {}
        }
    }

    /// Returns the keys to which each bucket's head leads, in the order of the chains: including
    /// keys of other buckets, if a chain is imprecise.
    pub fn chains(&self) -> Vec<Vec<u64>> {
        let guard = read();
        // SAFETY: nodes are retired by RCU.
        let keys = |head| unsafe { links(head) }.map(|(_, node)| node.key).collect();
        // SAFETY: there always is an array.
        unsafe { self.current.get(&guard) }.heads().iter().map(keys).collect()
    }
}

impl<H> Unzip<H> {
    fn wait_for_readers(&self, watch: &mut dyn FnMut(Wait)) {
        watch(Wait::Begins);
        self.resizer.wait_for_readers();
        watch(Wait::Ended);
    }

    fn shrink(&self, buckets: usize, watch: &mut dyn FnMut(Wait)) {
        let smaller = self.allocate(buckets);
        let all = self.locks.lock_all();
        let before = self.current.pointer();
        // SAFETY: there is an array, and only resizers free it.
        let larger = unsafe { &*before };
        for (bucket, head) in smaller.heads().iter().enumerate() {
            let mut tail = head;
            for joined in larger.heads()[bucket..].iter().step_by(buckets) {
                // SAFETY: this thread holds the lock of all these.
                for (link, node) in unsafe { links(joined) } {
                    if std::ptr::eq(link, joined) {
                        // Release: pairs with `chain::get`, where readers of the previous chain
                        // continue into this one.
                        tail.store(target(joined).as_ptr(), Release);
                    }
                    tail = &node.next;
                }
            }
        }
        // SAFETY: the old array is freed below, when all readers have left it.
        unsafe { self.current.set(Box::into_raw(smaller)) };
        drop(all);
        // New readers no longer find the larger array.
        self.wait_for_readers(watch);
        self.resizer.subtract_bytes(larger.bytes());
        // SAFETY: it came from a box, was replaced, and all readers, including updates, have left
        // it.
        drop(unsafe { Box::from_raw(before) });
    }

    fn expand(&self, buckets: usize, watch: &mut dyn FnMut(Wait)) {
        let larger = self.allocate(buckets);
        let all = self.locks.lock_all();
        let before = self.current.pointer();
        // SAFETY: there is an array, and only resizers free it.
        let smaller = unsafe { &*before };
        for (bucket, head) in larger.heads().iter().enumerate() {
            let old = smaller.head(bucket as u64);
            // SAFETY: this thread holds the lock.
            let first = unsafe { Zipped::new(old, buckets).next_of(bucket as u64, old) };
            // Release: pairs with `chain::get`. (The Release that publishes the array would
            // suffice.)
            head.store(first, Release);
        }
        // SAFETY: the old array is retired below.
        unsafe { self.before.set(before) };
        // SAFETY: the old array is retired below.
        unsafe { self.current.set(Box::into_raw(larger)) };
        drop(all);
        // Readers that entered by the smaller array must find the whole chain (Z2).
        self.wait_for_readers(watch);
        // SAFETY: the heads lead to the first nodes of each child (Z1), and this thread waits
        // between passes.
        while unsafe { pass(&self.locks, smaller.heads(), buckets) } {
            // Readers that were on a run when it was the second must leave before its end is
            // changed (Z2).
            self.wait_for_readers(watch);
        }
        // SAFETY: the old value is retired below.
        unsafe { self.before.set(null_mut()) };
        self.resizer.subtract_bytes(smaller.bytes());
        // SAFETY: it came from a box and has been replaced. Updates in read sections may still use
        // it.
        unsafe { Rcu::retire(before) };
    }

    fn allocate(&self, buckets: usize) -> Box<Array> {
        let array = Box::new(Array::new(buckets));
        self.resizer.add_bytes(array.bytes());
        array
    }
}

impl<H> Drop for Unzip<H> {
    fn drop(&mut self) {
        // `before` does not own its array.
        // SAFETY: no other thread uses the table.
        unsafe { self.before.set(null_mut()) };
        let array = self.current.get_mut().expect("there always is an array");
        // SAFETY: no other thread uses the table, and outside of resizes chains share no nodes.
        unsafe { array.free_nodes() };
    }
}
