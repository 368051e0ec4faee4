//! Chains of nodes, which readers walk while an updater who holds the chain's lock changes them.

use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use relativist_rcu::Guard;

use crate::rcu::Rcu;

/// What leads to a node: a bucket's head, or the link of the node before.
pub(crate) type Link = AtomicPtr<Node>;

/// An entry. 32 bytes, laid out like the node of `relativist::HashMap` with such keys and values.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) next: Link,
    pub(crate) hash: u64,
    pub(crate) key: u64,
    pub(crate) value: u64,
}

impl Node {
    /// A node in no chain.
    pub(crate) fn new(hash: u64, key: u64, value: u64) -> *mut Self {
        Box::into_raw(Box::new(Self { next: Link::default(), hash, key, value }))
    }

    /// Frees a node that no reader can find any more, after a grace period; its value.
    ///
    /// May wait for readers if much has piled up, and is therefore called without any lock.
    ///
    /// # Safety
    ///
    /// `node` came from [`Node::new`], has been unlinked by the caller, and is retired once.
    pub(crate) unsafe fn retire(node: NonNull<Self>) -> u64 {
        // SAFETY: nobody but us will free it.
        let value = unsafe { node.as_ref() }.value;
        // SAFETY: as the caller vouches.
        unsafe { Rcu::retire(node.as_ptr()) };
        value
    }
}

/// The value of `key` in the chain that begins with `head`.
///
/// # Safety
///
/// Nodes of the chain are freed only a grace period after they were unlinked.
#[inline(always)]
pub(crate) unsafe fn get(head: &Link, key: u64, _guard: &Guard) -> Option<u64> {
    // Acquire, here and below: pairs with the Release of who linked the node, so that we see its
    // content.
    let mut next = head.load(Acquire);
    // SAFETY: linked at some time in our read section, so not freed before it ends.
    while let Some(node) = unsafe { next.as_ref() } {
        if node.key == key {
            return Some(node.value);
        }
        next = node.next.load(Acquire);
    }
    None
}

/// The links of a chain from `head` on, each with the node to which it leads.
///
/// # Safety
///
/// As long as the iterator and the references live, nodes of the chain are not freed: the caller
/// holds its lock, or is in a read section.
pub(crate) unsafe fn links(head: &Link) -> impl Iterator<Item = (&Link, &Node)> {
    let mut link = head;
    std::iter::from_fn(move || {
        // Acquire: as in `get`, for those who don't hold the lock.
        // SAFETY: as the caller vouches.
        let node = unsafe { link.load(Acquire).as_ref() }?;
        Some((std::mem::replace(&mut link, &node.next), node))
    })
}

/// Inserts at the beginning, if `key` is absent; false when it was present.
///
/// # Safety
///
/// The caller holds the chain's lock.
pub(crate) unsafe fn insert(head: &Link, hash: u64, key: u64, value: u64) -> bool {
    // SAFETY: under the lock nobody unlinks nodes.
    let absent = unsafe { links(head) }.all(|(_, node)| node.key != key);
    if absent {
        let node = Node::new(hash, key, value);
        // SAFETY: just made.
        unsafe { push(head, node) };
    }
    absent
}

/// Puts a node at the beginning.
///
/// # Safety
///
/// The caller holds the chain's lock, and the node is in no chain that others change.
pub(crate) unsafe fn push(head: &Link, node: *mut Node) {
    // Release: pairs with `get`, where a reader is led from the chain that the node was in to this
    // one.
    // Relaxed: heads are changed under the lock only.
    // SAFETY: as the caller vouches.
    unsafe { &*node }.next.store(head.load(Relaxed), Release);
    // Release: pairs with `get`. Whoever finds the node sees its content.
    head.store(node, Release);
}

/// Unlinks the node to which `link` leads; it is to be retired after unlocking.
///
/// # Safety
///
/// The caller holds the chain's lock, and no other link leads to the node.
pub(crate) unsafe fn unlink(link: &Link, node: &Node) -> NonNull<Node> {
    let unlinked = target(link);
    // Relaxed: links are changed under the lock only.
    // Release: pairs with `get`. The next node was published to us, not to those who come by this
    // link.
    link.store(node.next.load(Relaxed), Release);
    unlinked
}

/// The node to which `link` leads, as the pointer that its box gave: what comes from a reference
/// must not free it.
pub(crate) fn target(link: &Link) -> NonNull<Node> {
    // Relaxed: asked under the lock that guards the link.
    NonNull::new(link.load(Relaxed)).expect("it leads to a node")
}

/// Frees all nodes.
///
/// # Safety
///
/// Nobody uses the chain any more, nor any other that shares nodes with it.
pub(crate) unsafe fn free(head: &Link) {
    // Relaxed: the only user.
    let mut next = head.load(Relaxed);
    while !next.is_null() {
        // SAFETY: nodes come from boxes, and nobody else uses them.
        let mut node = unsafe { Box::from_raw(next) };
        next = *node.next.get_mut();
    }
}
