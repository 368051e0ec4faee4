//! Split-ordered lists (Shalev and Shavit, "Split-Ordered Lists: Lock-Free Extensible Hash Tables",
//! JACM 53(3), 2006) under RCU. The paper (USENIX ATC 2011, section 2) names this as future work.
//!
//! All entries are in one list, ordered by their hashes with the bits reversed. So the entries of a
//! bucket, the low bits of the hash, are next to one another, whatever the number of buckets, and
//! so are those of the two buckets into which it would be split. A bucket leads to a *dummy* node
//! in the list, after which its entries begin. Resizing inserts or removes dummies, and replaces
//! the array that leads to them.
//!
//! The list is Michael's ("High Performance Dynamic Lock-Free Hash Tables and List-Based Sets",
//! SPAA 2002): a removal marks the link of the node, and an update that finds a marked node unlinks
//! it. RCU replaces its hazard pointers, so lookups neither write nor retry: they walk over marked
//! nodes.
//!
//! * *Expand*: insert the dummies that are missing; publish the larger array. (The original inserts
//!   a dummy at the first use of its bucket. Then lookups would have to write, so the resizer does
//!   it here.) No wait for readers.
//! * *Shrink*, which the original does not have: publish the smaller array; wait for readers, and
//!   for updates that began at the dummies of removed buckets; remove these dummies.
//!
//! *Progress*: lookups are wait-free, except that other threads may insert nodes just ahead of
//! them; insertions and removals are lock-free. Resizers exclude each other.
//!
//! *A lookup costs* a read section, three loads that depend on one another for the dummy, the dummy
//! itself (a cache miss that other tables don't have), and one per entry of the bucket whose hash
//! is not larger.

use std::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crossbeam_utils::CachePadded;
use relativist_rcu::read;

use crate::tables::rcu::Rcu;
use crate::tables::resizer::Resizer;
use crate::tables::{Costs, Resize, Table, TableHasher};

/// Set in the link of a node that has been removed. Nodes are aligned to words.
const MARK: usize = 1;

/// Leads to the next node. Marked when the node that contains it has been removed: after that it
/// does not change.
type Link = AtomicPtr<Node>;

/// An entry, or a dummy.
#[repr(C)]
#[derive(Debug)]
struct Node {
    next: Link,
    /// The hash with its bits reversed, made odd. For a dummy: the number of the bucket with its
    /// bits reversed, which is even.
    order: u64,
    key: u64,
    value: u64,
}

impl Node {
    fn place(&self) -> (u64, u64) {
        (self.order, self.key)
    }
}

/// Returns the place of a key with this hash. One bit of the hash is lost, which does not matter
/// because keys are compared.
fn place(hash: u64, key: u64) -> (u64, u64) {
    (hash.reverse_bits() | 1, key)
}

/// Returns the place of a bucket's dummy.
fn place_of_dummy(bucket: usize) -> (u64, u64) {
    ((bucket as u64).reverse_bits(), 0)
}

/// Returns the bucket from which this one is split. Its number is smaller. The first bucket has
/// none.
fn parent(bucket: usize) -> usize {
    bucket & !(1 << bucket.ilog2())
}

fn is_marked(next: *mut Node) -> bool {
    next.addr() & MARK != 0
}

fn unmarked(next: *mut Node) -> *mut Node {
    next.map_addr(|address| address & !MARK)
}

/// The dummies of all buckets.
type Dummies = Box<[*const Node]>;

/// The pointers to the dummies. Any thread may use them.
#[derive(Debug)]
struct Array(Dummies);

// SAFETY: the nodes to which it leads may be used by any thread.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

impl Array {
    #[inline(always)]
    fn dummy(&self, hash: u64) -> *const Node {
        // SAFETY: there is at least one bucket, so this is below their number.
        unsafe { *self.0.get_unchecked(hash as usize & (self.0.len() - 1)) }
    }

    /// The size of a bucket in bytes: the pointer to the dummy, and the dummy.
    const BUCKET: usize = size_of::<*const Node>() + size_of::<Node>();
}

/// Shalev and Shavit's table.
#[derive(Debug)]
pub struct SplitOrdered<H> {
    current: Rcu<Array>,
    hasher: H,
    resizer: CachePadded<Resizer>,
}

/// Finds a place in the list from `head` on, and unlinks marked nodes on the way. Returns the link,
/// and the first node that is not before the place.
///
/// # Safety
///
/// The caller is in the read section in which it found `head`. The node of `head` was not removed
/// before that section.
unsafe fn find(head: &Link, place: (u64, u64)) -> (&Link, *mut Node) {
    'again: loop {
        let mut link = head;
        // Acquire, here and below: pairs with the Release of the thread that linked the node, so
        // that this thread sees its content.
        let mut current = link.load(Acquire);
        loop {
            // SAFETY: it was in the list at some time in this read section.
            let Some(node) = (unsafe { current.as_ref() }) else { return (link, current) };
            let next = node.next.load(Acquire);
            if is_marked(next) {
                // AcqRel: Release publishes the next node to threads that follow this link; Acquire
                // as above. It fails if the link was marked or a node was inserted. Only one thread
                // succeeds, because nodes are unlinked from nodes that are in the list.
                if link.compare_exchange(current, unmarked(next), AcqRel, Relaxed).is_err() {
                    continue 'again;
                }
                // SAFETY: from a box, and this thread has unlinked it.
                unsafe { Rcu::retire(current) };
                current = unmarked(next);
            } else if node.place() >= place {
                return (link, current);
            } else {
                (link, current) = (&node.next, next);
            }
        }
    }
}

/// Inserts a node, unless there is one at its place.
///
/// # Safety
///
/// The same as for [`find`].
unsafe fn insert(head: &Link, node: Node) -> Option<*mut Node> {
    let new = Box::into_raw(Box::new(node));
    // SAFETY: it was just created; other threads see it only when it is in the list, and then it is
    // not freed in this read section.
    let node = unsafe { &*new };
    loop {
        // SAFETY: guaranteed by the caller.
        let (link, next) = unsafe { find(head, node.place()) };
        // SAFETY: found in this read section.
        if unsafe { next.as_ref() }.is_some_and(|next| next.place() == node.place()) {
            // SAFETY: from a box, and no other thread has seen it.
            drop(unsafe { Box::from_raw(new) });
            return None;
        }
        // Relaxed: no other thread has it.
        node.next.store(next, Relaxed);
        // Release: pairs with the Acquire of threads that follow the link. It fails if the link was
        // marked or a node was inserted.
        if link.compare_exchange(next, new, Release, Relaxed).is_ok() {
            return Some(new);
        }
    }
}

/// Removes the node at a place, and returns its value.
///
/// # Safety
///
/// The same as for [`find`].
unsafe fn remove(head: &Link, place: (u64, u64)) -> Option<u64> {
    loop {
        // SAFETY: guaranteed by the caller.
        let (_, found) = unsafe { find(head, place) };
        // SAFETY: found in this read section.
        let node = unsafe { found.as_ref() }.filter(|node| node.place() == place)?;
        let next = node.next.load(Acquire);
        let marked = next.map_addr(|address| address | MARK);
        // AcqRel: a thread that sees the mark sees what this one did before; this thread sees what
        // the thread that linked the next node did before. It fails if another thread has marked
        // the link, or inserted a node behind it.
        if !is_marked(next) && node.next.compare_exchange(next, marked, AcqRel, Relaxed).is_ok() {
            // SAFETY: guaranteed by the caller. This unlinks the node, unless another thread does.
            unsafe { find(head, place) };
            return Some(node.value);
        }
    }
}

impl<H: TableHasher> Table for SplitOrdered<H> {
    const NAME: &'static str = "split-ordered";

    fn with_buckets(buckets: usize) -> Self {
        let first = Box::into_raw(Box::new(dummy(0)));
        let table = Self {
            current: Rcu::new(Array([first.cast_const()].into())),
            hasher: H::default(),
            resizer: Resizer::with_bytes(Array::BUCKET).into(),
        };
        table.resize_to(buckets);
        table
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        let guard = read();
        let hash = self.hasher.hash_one(key);
        let place = place(hash, key);
        // SAFETY: there always is an array.
        let dummy = unsafe { self.current.get(&guard) }.dummy(hash);
        // Acquire, here and below: pairs with the Release of the thread that linked the node, so
        // that this thread sees its content.
        // SAFETY: dummies are retired by RCU, after a wait for readers of the array.
        let mut next = unsafe { &*dummy }.next.load(Acquire);
        loop {
            // SAFETY: it was in the list at some time in this read section.
            let node = unsafe { unmarked(next).as_ref() }?;
            next = node.next.load(Acquire);
            if node.place() >= place {
                return (node.place() == place && !is_marked(next)).then_some(node.value);
            }
        }
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        let guard = read();
        let hash = self.hasher.hash_one(key);
        let (order, key) = place(hash, key);
        // SAFETY: there always is an array; dummies are retired by RCU, after a wait for readers of
        // the array.
        let head = unsafe { &(*self.current.get(&guard).dummy(hash)).next };
        // SAFETY: in a read section.
        unsafe { insert(head, Node { next: Link::default(), order, key, value }) }.is_some()
    }

    fn remove(&self, key: u64) -> Option<u64> {
        let guard = read();
        let hash = self.hasher.hash_one(key);
        // SAFETY: there always is an array; dummies are retired by RCU, after a wait for readers of
        // the array.
        let head = unsafe { &(*self.current.get(&guard).dummy(hash)).next };
        // SAFETY: in a read section.
        unsafe { remove(head, place(hash, key)) }
    }
}

fn dummy(bucket: usize) -> Node {
    let (order, key) = place_of_dummy(bucket);
    Node { next: Link::default(), order, key, value: 0 }
}

impl<H: TableHasher> Resize for SplitOrdered<H> {
    fn resize_to(&self, buckets: usize) {
        assert!(buckets.is_power_of_two(), "{buckets} is not a power of two");
        let _resizing = self.resizer.lock();
        match self.buckets() {
            now if buckets < now => self.shrink(now, buckets),
            now if buckets > now => self.expand(now, buckets),
            _ => {}
        }
    }

    fn buckets(&self) -> usize {
        let guard = read();
        // SAFETY: there always is an array.
        unsafe { self.current.get(&guard) }.0.len()
    }

    fn costs(&self) -> Costs {
        self.resizer.costs()
    }
}

impl<H> SplitOrdered<H> {
    fn expand(&self, now: usize, buckets: usize) {
        self.resizer.add_bytes(buckets * Array::BUCKET);
        let before = self.current.pointer();
        // SAFETY: there always is an array, and only this thread frees it.
        let old = unsafe { &*before };
        let mut dummies = Vec::with_capacity(buckets);
        dummies.extend_from_slice(&old.0);
        for bucket in now..buckets {
            let from: *const Node = dummies[parent(bucket)];
            let _guard = read();
            // SAFETY: dummies in the array have not been removed; in a read section.
            let inserted = unsafe { insert(&(*from).next, dummy(bucket)) };
            dummies.push(inserted.expect("no other resizer inserts dummies"));
        }
        // SAFETY: the old array is retired below.
        unsafe { self.current.set(Box::into_raw(Box::new(Array(dummies.into())))) };
        self.resizer.subtract_bytes(now * Array::BUCKET);
        // SAFETY: from a box, replaced.
        unsafe { Rcu::retire(before) };
    }

    fn shrink(&self, now: usize, buckets: usize) {
        let before = self.current.pointer();
        // SAFETY: there always is an array, and only this thread frees it.
        let old = unsafe { &*before };
        let smaller = Array(old.0[..buckets].into());
        self.resizer.add_bytes(buckets * Array::BUCKET);
        // SAFETY: the old array is freed below, after the wait.
        unsafe { self.current.set(Box::into_raw(Box::new(smaller))) };
        // After this no update begins at a dummy that is removed: a node inserted behind it would
        // be lost.
        self.resizer.wait_for_readers();
        for bucket in (buckets..now).rev() {
            let _guard = read();
            // SAFETY: dummies of smaller numbers are still there; in a read section.
            let removed = unsafe { remove(&(*old.0[parent(bucket)]).next, place_of_dummy(bucket)) };
            debug_assert!(removed.is_some(), "only resizers remove dummies");
        }
        self.resizer.subtract_bytes(now * Array::BUCKET);
        // SAFETY: from a box, replaced, and readers have left it.
        drop(unsafe { Box::from_raw(before) });
    }
}

impl<H> Drop for SplitOrdered<H> {
    fn drop(&mut self) {
        let array = self.current.get_mut().expect("there always is an array");
        let mut next = array.0[0].cast_mut();
        while !next.is_null() {
            // SAFETY: nodes come from boxes, and no other thread uses the table.
            let node = unsafe { Box::from_raw(next) };
            // Relaxed: no other thread uses the table.
            next = unmarked(node.next.load(Relaxed));
        }
    }
}
