//! Herbert Xu's resizable table ("bridge: Add core IGMP snooping support", Linux 2.6.34, 2010;
//! USENIX ATC 2011, section 2): two sets of links per node, so that each node is in the old and in
//! the new table at the same time.
//!
//! A table has a *version*, which determines the set of links that its chains use. A resizer links
//! all nodes into the chains of a new table with the other set, publishes that, and waits for
//! readers: then the first set is free for the next resize. The number of buckets can change
//! arbitrarily.
//!
//! Updates take the lock of their bucket. If the resizer has already linked the bucket, they change
//! both tables.
//!
//! *Progress*: lookups are wait-free. Updates wait for updates of their bucket and for the
//! resizer's work on it. Resizers wait for readers once.
//!
//! *A lookup costs* what it costs in a table with one set of links, plus a load of the version
//! (from a cache line that it reads anyway), and the cache misses of larger nodes: 40 bytes here
//! instead of 32. The paper criticises this.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use crossbeam_utils::CachePadded;
use relativist_rcu::{Guard, read};

use crate::tables::locks::Locks;
use crate::tables::rcu::Rcu;
use crate::tables::resizer::Resizer;
use crate::tables::{Costs, Resize, Table, TableHasher};

type Link = AtomicPtr<Node>;

/// An entry, with one link for each of the two sets of chains.
#[repr(C)]
#[derive(Debug)]
struct Node {
    next: [Link; 2],
    hash: u64,
    key: u64,
    value: u64,
}

/// A table whose chains use one set of links.
#[derive(Debug)]
struct Version {
    heads: Box<[Link]>,
    number: u64,
}

impl Version {
    fn new(buckets: usize, number: u64) -> Self {
        assert!(buckets.is_power_of_two(), "{buckets} is not a power of two");
        // SAFETY: a link of zeros is null.
        Self { heads: unsafe { Box::new_zeroed_slice(buckets).assume_init() }, number }
    }

    #[inline(always)]
    fn head(&self, hash: u64) -> &Link {
        // SAFETY: there is at least one bucket, so this is below their number.
        unsafe { self.heads.get_unchecked(hash as usize & (self.heads.len() - 1)) }
    }

    /// Returns the index of the set of links that its chains use.
    #[inline(always)]
    fn set(&self) -> usize {
        self.number as usize % 2
    }

    /// Returns the node with this key, and the link that leads to it.
    ///
    /// # Safety
    ///
    /// As long as the references live, nodes are not freed: the caller is in a read section, or
    /// holds the bucket's lock.
    #[inline(always)]
    unsafe fn find(&self, hash: u64, key: u64) -> Option<(&Link, &Node)> {
        let mut link = self.head(hash);
        loop {
            // Acquire: pairs with the Release of the thread that linked the node, so that this
            // thread sees its content.
            // SAFETY: guaranteed by the caller.
            let node = unsafe { link.load(Acquire).as_ref() }?;
            if node.key == key {
                return Some((link, node));
            }
            link = &node.next[self.set()];
        }
    }

    /// Inserts a node at the beginning of its chain. The caller holds the bucket's lock.
    ///
    /// # Safety
    ///
    /// The node came from a box and is not freed.
    unsafe fn push(&self, pointer: *mut Node) {
        // SAFETY: guaranteed by the caller.
        let node = unsafe { &*pointer };
        let head = self.head(node.hash);
        // Relaxed: heads are changed under the lock only, and no thread reads this link of the node
        // yet.
        node.next[self.set()].store(head.load(Relaxed), Relaxed);
        // Release: pairs with `find`.
        head.store(pointer, Release);
    }

    /// Takes the node with this key out of its chain. The caller holds the bucket's lock.
    fn unlink(&self, hash: u64, key: u64) -> Option<NonNull<Node>> {
        // SAFETY: no other thread unlinks nodes while this one holds the lock.
        let (link, node) = unsafe { self.find(hash, key) }?;
        // This is the pointer that came from the box, because a pointer from a reference must not
        // free the node.
        let unlinked = NonNull::new(link.load(Relaxed));
        // Relaxed: links are changed under the lock only.
        // Release: pairs with `find`. The next node was published to this thread, but not to
        // readers that follow this link.
        link.store(node.next[self.set()].load(Relaxed), Release);
        unlinked
    }
}

/// Xu's table.
#[derive(Debug)]
pub struct DualChain<H> {
    current: Rcu<Version>,
    /// The table that a resizer is filling. Not owned.
    coming: Rcu<Version>,
    hasher: H,
    /// The locks. Each guards the number of the latest version into which the nodes of its buckets
    /// have been linked.
    locks: Locks<u64>,
    resizer: CachePadded<Resizer>,
}

impl<H> DualChain<H> {
    /// Returns the tables that an update has to change. `linked` is the content of the lock that
    /// the caller holds.
    fn versions<'g>(&'g self, linked: u64, guard: &'g Guard) -> (&'g Version, Option<&'g Version>) {
        // `coming` is loaded first, because the resizer clears it last: a thread that no longer
        // sees the table there sees it in `current`.
        let coming = self.coming.try_get(guard);
        // SAFETY: there always is a version.
        let current = unsafe { self.current.get(guard) };
        let both = |coming: &&Version| coming.number == linked && current.number != linked;
        (current, coming.filter(both))
    }
}

impl<H: TableHasher> Table for DualChain<H> {
    const NAME: &'static str = "dual chain";

    fn with_buckets(buckets: usize) -> Self {
        let version = Version::new(buckets, 0);
        Self {
            resizer: Resizer::with_bytes(size_of_val(&*version.heads)).into(),
            current: Rcu::new(version),
            coming: Rcu::none(),
            hasher: H::default(),
            locks: Locks::new(buckets),
        }
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        let guard = read();
        // SAFETY: there always is a version.
        let version = unsafe { self.current.get(&guard) };
        // SAFETY: in a read section, and nodes are retired by RCU.
        unsafe { version.find(self.hasher.hash_one(key), key) }.map(|(_, node)| node.value)
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        let hash = self.hasher.hash_one(key);
        let linked = self.locks.lock(hash);
        let guard = read();
        let (current, coming) = self.versions(*linked, &guard);
        // SAFETY: in a read section.
        if unsafe { current.find(hash, key) }.is_some() {
            return false;
        }
        let node = Box::into_raw(Box::new(Node { next: Default::default(), hash, key, value }));
        for version in [Some(current), coming].into_iter().flatten() {
            // SAFETY: it was just created, and no other thread can remove it while this one holds
            // the lock.
            unsafe { version.push(node) };
        }
        true
    }

    fn remove(&self, key: u64) -> Option<u64> {
        let hash = self.hasher.hash_one(key);
        let node = {
            let linked = self.locks.lock(hash);
            let guard = read();
            let (current, coming) = self.versions(*linked, &guard);
            let node = current.unlink(hash, key)?;
            if let Some(coming) = coming {
                coming.unlink(hash, key);
            }
            node
        };
        // SAFETY: unlinked by this thread, and not freed yet.
        let value = unsafe { node.as_ref() }.value;
        // SAFETY: from a box; no longer in a chain that new readers walk; retired once.
        unsafe { Rcu::retire(node.as_ptr()) };
        Some(value)
    }
}

impl<H: TableHasher> Resize for DualChain<H> {
    fn resize_to(&self, buckets: usize) {
        self.locks.assert_enough(buckets);
        let _resizing = self.resizer.lock();
        let before = self.current.pointer();
        // SAFETY: there always is a version, and only this thread frees it.
        let old = unsafe { &*before };
        if old.heads.len() == buckets {
            return;
        }
        let version = Version::new(buckets, old.number + 1);
        self.resizer.add_bytes(size_of_val(&*version.heads));
        let coming = Box::into_raw(Box::new(version));
        // SAFETY: it is freed by a resize that replaces it, after a wait.
        unsafe { self.coming.set(coming) };
        // SAFETY: as above.
        self.link_all(old, unsafe { &*coming });
        // SAFETY: the old version is freed below, after the wait.
        unsafe { self.current.set(coming) };
        // SAFETY: it is the current one now.
        unsafe { self.coming.set(null_mut()) };
        // Readers must leave the old set of links, too, before the next resize changes them.
        self.resizer.wait_for_readers();
        self.resizer.subtract_bytes(size_of_val(&*old.heads));
        // SAFETY: from a box, replaced, and all readers, including updates, have left it.
        drop(unsafe { Box::from_raw(before) });
    }

    fn buckets(&self) -> usize {
        let guard = read();
        // SAFETY: there always is a version.
        unsafe { self.current.get(&guard) }.heads.len()
    }

    fn costs(&self) -> Costs {
        self.resizer.costs()
    }
}

impl<H> DualChain<H> {
    /// Links all nodes into the chains of the coming version.
    fn link_all(&self, old: &Version, coming: &Version) {
        for stripe in 0..self.locks.count() {
            let mut linked = self.locks.lock(stripe as u64);
            for head in old.heads[stripe..].iter().step_by(self.locks.count()) {
                let mut next = head.load(Relaxed);
                // SAFETY: under the lock, nodes in the chain are not freed.
                while let Some(node) = unsafe { next.as_ref() } {
                    // SAFETY: as above.
                    unsafe { coming.push(next) };
                    next = node.next[old.set()].load(Relaxed);
                }
            }
            *linked = coming.number;
        }
    }
}

impl<H> Drop for DualChain<H> {
    fn drop(&mut self) {
        let version = self.current.get_mut().expect("there always is a version");
        for head in &version.heads {
            let mut next = head.load(Relaxed);
            while !next.is_null() {
                // SAFETY: nodes come from boxes, and no other thread uses the table.
                let node = unsafe { Box::from_raw(next) };
                next = node.next[version.set()].load(Relaxed);
            }
        }
    }
}
