//! Chains of nodes. Readers walk them while an update that holds the chain's lock changes them.

use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use relativist_rcu::Guard;

use crate::tables::rcu::Rcu;

/// A pointer to a node: a bucket's head, or the link of the previous node.
pub(crate) type Link = AtomicPtr<Node>;

/// An entry. 32 bytes, laid out like a [`relativist_table::node::Node`] with such keys and values.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) next: Link,
    pub(crate) hash: u64,
    pub(crate) key: u64,
    pub(crate) value: u64,
}

impl Node {
    /// Creates a node that is in no chain.
    pub(crate) fn new(hash: u64, key: u64, value: u64) -> *mut Self {
        Box::into_raw(Box::new(Self { next: Link::default(), hash, key, value }))
    }

    /// Frees a node after a grace period, and returns its value. New readers can no longer find it.
    ///
    /// Call this without holding locks: it waits for readers if the backlog is full.
    ///
    /// # Safety
    ///
    /// `node` came from [`Node::new`], has been unlinked by the caller, and is retired once.
    pub(crate) unsafe fn retire(node: NonNull<Self>) -> u64 {
        // SAFETY: no other thread will free it.
        let value = unsafe { node.as_ref() }.value;
        // SAFETY: guaranteed by the caller.
        unsafe { Rcu::retire(node.as_ptr()) };
        value
    }
}

/// Returns the value of `key` in the chain that begins with `head`.
///
/// # Safety
///
/// Nodes of the chain are freed only a grace period after they were unlinked.
#[inline(always)]
pub(crate) unsafe fn get(head: &Link, key: u64, _guard: &Guard) -> Option<u64> {
    // Acquire, here and below: pairs with the Release of the thread that linked the node, so that
    // this thread sees its content.
    let mut next = head.load(Acquire);
    // SAFETY: it was in the chain at some time in this read section, so it is not freed before the
    // section ends.
    while let Some(node) = unsafe { next.as_ref() } {
        if node.key == key {
            return Some(node.value);
        }
        next = node.next.load(Acquire);
    }
    None
}

/// Returns the links of a chain from `head` on, each with the node to which it leads.
///
/// # Safety
///
/// As long as the iterator and the references live, nodes of the chain are not freed: the caller
/// holds its lock, or is in a read section.
pub(crate) unsafe fn links(head: &Link) -> impl Iterator<Item = (&Link, &Node)> {
    let mut link = head;
    std::iter::from_fn(move || {
        // Acquire: as in `get`, for callers that do not hold the lock.
        // SAFETY: guaranteed by the caller.
        let node = unsafe { link.load(Acquire).as_ref() }?;
        Some((std::mem::replace(&mut link, &node.next), node))
    })
}

/// Inserts a node at the beginning if `key` is absent. Returns false if it is present.
///
/// # Safety
///
/// The caller holds the chain's lock.
pub(crate) unsafe fn insert(head: &Link, hash: u64, key: u64, value: u64) -> bool {
    // SAFETY: no other thread unlinks nodes while this one holds the lock.
    let absent = unsafe { links(head) }.all(|(_, node)| node.key != key);
    if absent {
        let node = Node::new(hash, key, value);
        // SAFETY: the node was just created.
        unsafe { push(head, node) };
    }
    absent
}

/// Inserts a node at the beginning.
///
/// # Safety
///
/// The caller holds the chain's lock, and the node is in no chain that other threads change.
pub(crate) unsafe fn push(head: &Link, node: *mut Node) {
    // Release: pairs with `get`, where a reader may continue from the node's old chain into this
    // one.
    // Relaxed: heads are changed under the lock only.
    // SAFETY: guaranteed by the caller.
    unsafe { &*node }.next.store(head.load(Relaxed), Release);
    // Release: pairs with `get`. A thread that finds the node sees its content.
    head.store(node, Release);
}

/// Unlinks the node to which `link` leads. The caller must retire it after unlocking.
///
/// # Safety
///
/// The caller holds the chain's lock, and no other link leads to the node.
pub(crate) unsafe fn unlink(link: &Link, node: &Node) -> NonNull<Node> {
    let unlinked = target(link);
    // Relaxed: links are changed under the lock only.
    // Release: pairs with `get`. The next node was published to this thread, but not to readers
    // that follow this link.
    link.store(node.next.load(Relaxed), Release);
    unlinked
}

/// Returns the node to which `link` leads, as the pointer that came from its box: a pointer from a
/// reference must not free it.
pub(crate) fn target(link: &Link) -> NonNull<Node> {
    // Relaxed: called under the lock that guards the link.
    NonNull::new(link.load(Relaxed)).expect("it leads to a node")
}

/// Frees all nodes.
///
/// # Safety
///
/// No thread uses the chain, or another chain that shares nodes with it, any more.
pub(crate) unsafe fn free(head: &Link) {
    // Relaxed: no other thread uses the chain.
    let mut next = head.load(Relaxed);
    while !next.is_null() {
        // SAFETY: nodes come from boxes, and no other thread uses them.
        let mut node = unsafe { Box::from_raw(next) };
        next = *node.next.get_mut();
    }
}
