//! The node of a map: link, key and value, in one allocation.

use std::alloc::{Layout, handle_alloc_error};
use std::mem::offset_of;
use std::ptr::NonNull;

use relativist_rcu::Guard;

use crate::{Hash, Link};
use relativist_core::recycle;

/// A link, a key and a value, in one allocation. Maps are tables of nodes.
#[repr(C)]
pub struct Node<K, V> {
    link: Link,
    /// The key.
    pub key: K,
    /// The value.
    pub value: V,
}

impl<K, V> Node<K, V> {
    /// Creates a node. Aborts if there is no memory, like `Box::new`.
    #[inline]
    pub fn new(hash: Hash, key: K, value: V) -> Box<Self> {
        let layout = Layout::new::<Self>();
        let node = recycle::allocate(layout).unwrap_or_else(|| handle_alloc_error(layout)).cast::<Self>();
        // SAFETY: memory of this layout that comes from the global allocator, possibly through the
        // recycler, can be a box's.
        unsafe {
            node.write(Self { link: Link::new(hash), key, value });
            Box::from_raw(node.as_ptr())
        }
    }

    /// Converts the box to its link. The pointer may be used to access the whole node.
    pub fn into_link(self: Box<Self>) -> NonNull<Link> {
        const { assert!(offset_of!(Self, link) == 0) };
        NonNull::from(Box::leak(self)).cast()
    }

    /// # Safety
    ///
    /// The link is part of a `Node<K, V>` that is alive and not changed during `'a`.
    #[inline(always)]
    pub unsafe fn of<'a>(link: NonNull<Link>) -> &'a Self {
        // SAFETY: the link is the first field, and pointers to it are for the whole node
        // (`into_link`).
        unsafe { link.cast().as_ref() }
    }

    /// # Safety
    ///
    /// The link came from [`Node::into_link`], and no thread uses it any more.
    pub unsafe fn dispose(link: NonNull<Link>) {
        let node = link.cast::<Self>();
        // Frees the memory even if the destructor panics.
        let _memory = Memory(node.cast(), Layout::new::<Self>());
        // SAFETY: `into_link` leaked the box, and the caller guarantees that no thread uses it.
        unsafe { node.drop_in_place() };
    }

    /// Drops the node after a grace period.
    ///
    /// # Safety
    ///
    /// The link came from [`Node::into_link`], and no later reader can find it.
    #[inline]
    pub unsafe fn retire(link: NonNull<Link>, guard: &Guard)
    where
        K: Send + 'static,
        V: Send + 'static,
    {
        // SAFETY: key and value may be dropped on any thread at any time; the caller guarantees the
        // rest.
        unsafe { guard.defer_raw(link.cast(), size_of::<Self>(), |link| Self::dispose(link.cast())) };
    }
}

/// Memory whose contents have been dropped.
struct Memory(NonNull<u8>, Layout);

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: a box of this layout was leaked for it.
        unsafe { recycle::free(self.0, self.1) };
    }
}
