//! An entry that is about to be inserted.
//!
//! If another entry is evicted for it, the new one is queued before it is in the map, while the
//! lock of the shard is still held. Then another thread may pop it, fail to find it in the map, and
//! put it back. So if it is not inserted in the end, its memory is freed only after a grace period.

use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use relativist_rcu::Guard;

use super::core::{Core, Node};
use super::entry::{Entry, Lifespan, Slot, slot_of};
use super::queues::Queues;
use relativist_table::Link;

/// An entry that only this thread may insert. Dropping this drops the entry.
pub(super) struct Incoming<'g, K, V, S, L: Lifespan>
where
    K: Send + 'static,
    V: Send + 'static,
{
    core: &'g Core<K, V, S, L>,
    guard: &'g Guard,
    /// From `Node::into_link`.
    pub(super) link: NonNull<Link>,
    /// The entry that this one replaces, which is not evicted for it.
    pub(super) replaced: Option<NonNull<Slot>>,
    is_queued: Cell<bool>,
}

impl<'g, K, V, S, L: Lifespan> Incoming<'g, K, V, S, L>
where
    K: Send + 'static,
    V: Send + 'static,
{
    /// Takes the node, and the entry that it replaces.
    #[inline(always)]
    pub(super) fn new(
        core: &'g Core<K, V, S, L>,
        node: Box<Node<K, V, L>>,
        replaced: Option<&'g Node<K, V, L>>,
        guard: &'g Guard,
    ) -> Self {
        Self { core, guard, link: node.into_link(), replaced: replaced.map(slot_of), is_queued: Cell::new(false) }
    }

    #[inline(always)]
    pub(super) fn node(&self) -> &Node<K, V, L> {
        // SAFETY: `into_link` was called for a node of this type, which is alive as long as this.
        unsafe { Node::<K, V, L>::of(self.link) }
    }

    /// Puts the entry into the queues of its shard before it is in the map, if it can be inserted
    /// at once. An entry that replaces another one takes its visits over, so it is queued
    /// afterwards. With a listener, an eviction releases its room, because the listener may insert.
    /// So the entry may have to wait for room after an eviction.
    #[inline(always)]
    pub(super) fn queue(&self, queues: &mut Queues) {
        if self.replaced.is_none() && self.core.on_evict.is_none() {
            let node = self.node();
            // SAFETY: an entry of this shard. It stays alive until a grace period after it was
            // unlinked there, by `withdraw` or after it was removed from the map.
            unsafe { queues.admit(slot_of(node), node.link().hash().get(), 0) };
            self.is_queued.set(true);
        }
    }

    /// Inserts the entry into the map, unless its key is there. Returns whether it did. Then the
    /// caller calls [`Incoming::into_node`].
    #[inline(always)]
    pub(super) fn insert(&self) -> bool
    where
        K: Eq + Hash,
        S: BuildHasher,
    {
        let map = &self.core.map;
        // SAFETY: a node of this map's type that no box owns any more: freed a grace period after
        // it is unlinked, or with the table.
        unsafe { map.table.insert_if_absent(self.link, map.has_key(&self.node().key), self.guard) }
    }

    /// Returns the inserted node, and whether it was queued. Another thread may have removed it
    /// since.
    ///
    /// # Safety
    ///
    /// [`Incoming::insert`] has returned true, or the caller has inserted the link itself.
    #[inline(always)]
    pub(super) unsafe fn into_node(self) -> (&'g Node<K, V, L>, bool) {
        let this = ManuallyDrop::new(self);
        // SAFETY: it was in the map in the section of this guard.
        (unsafe { this.core.map.node(this.link) }, this.is_queued.get())
    }

    /// Returns the node, which was not inserted. If it was queued, it is a new one, and a ghost of
    /// its hash is forgotten.
    pub(super) fn into_box(self) -> Box<Node<K, V, L>> {
        let this = ManuallyDrop::new(self);
        if !this.is_queued.get() {
            // SAFETY: it was a box. No other thread has seen it.
            return unsafe { Node::<K, V, L>::from_link(this.link) };
        }
        this.withdraw();
        let (hash, weight) = (this.node().link().hash(), this.node().value.slot.weight);
        // SAFETY: it was never in the map, so no other thread uses key and value. Threads that have
        // popped it only read its link, its slot and its lifespan, in memory that is freed after a
        // grace period. None of them drops anything there.
        let (key, Entry { value, lifespan, .. }) = unsafe { Node::<K, V, L>::take(this.link) };
        Node::new(hash, key, Entry { value, lifespan, slot: Slot::new(weight) })
    }

    /// Takes it out of its queue. No thread that locks the shard later finds it.
    fn withdraw(&self) {
        let node = self.node();
        // SAFETY: an entry of this shard. Only this thread could insert it, so it is unlinked.
        unsafe { self.core.queues(node.link().hash()).unlink(slot_of(node)) };
    }
}

impl<K, V, S, L: Lifespan> Drop for Incoming<'_, K, V, S, L>
where
    K: Send + 'static,
    V: Send + 'static,
{
    fn drop(&mut self) {
        if self.is_queued.get() {
            self.withdraw();
            // SAFETY: no thread that enters a section from now on finds it.
            unsafe { Node::<K, V, L>::retire(self.link, self.guard) };
        } else {
            // SAFETY: it was a box. No other thread has seen it.
            drop(unsafe { Node::<K, V, L>::from_link(self.link) });
        }
    }
}
