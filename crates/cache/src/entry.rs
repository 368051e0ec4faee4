//! The entries of a cache: a value, and what eviction and expiry know about it.

use std::mem::offset_of;
use std::ptr::NonNull;

use relativist_core::hint::cold_path;
use relativist_core::prefetch::prefetch_for_write;

use relativist_core::sync::{AtomicBool, AtomicU64, Relaxed, UnsafeCell};
use relativist_table::node::Node;

/// The deadline of an entry that does not expire.
pub(super) const NEVER: u64 = u64::MAX;

/// What the map of a cache stores as the value of a key.
///
/// The fields that hits need come first, so that a hit on a small entry reads one cache line. With
/// keys and values of 8 bytes, a node that cannot expire takes 64 bytes. An allocator with a class
/// of this size aligns it to the line.
#[repr(C)]
pub(crate) struct Entry<V, L> {
    pub(super) value: V,
    pub(super) lifespan: L,
    pub(super) slot: Slot,
}

/// When an entry expires: [`Unlimited`] or [`Deadlines`], for all entries of a cache.
pub(crate) trait Lifespan: Send + Sync + 'static {
    /// Whether entries can expire at all.
    const IS_LIMITED: bool;

    /// Takes the deadline of a new entry, and the latest time to which hits may postpone it.
    fn new(deadline: u64, last_deadline: u64) -> Self;

    /// Returns the time from which the entry is no longer returned.
    fn deadline(&self) -> u64;

    /// Moves the deadline to `deadline`, or to the last one possible, if that postpones it by more
    /// than `step`.
    fn postpone(&self, deadline: u64, step: u64);
}

/// The lifespan of entries that cannot expire. Takes no memory.
pub(crate) struct Unlimited;

/// The deadlines of an entry that may expire, in nanoseconds of the cache's clock.
pub(crate) struct Deadlines {
    /// The time from which the entry is no longer returned.
    deadline: AtomicU64,
    /// The latest time to which hits may postpone the deadline.
    last_deadline: u64,
}

impl Lifespan for Unlimited {
    const IS_LIMITED: bool = false;

    fn new(_: u64, _: u64) -> Self {
        Self
    }

    #[inline(always)]
    fn deadline(&self) -> u64 {
        NEVER
    }

    fn postpone(&self, _: u64, _: u64) {}
}

impl Lifespan for Deadlines {
    const IS_LIMITED: bool = true;

    fn new(deadline: u64, last_deadline: u64) -> Self {
        Self { deadline: AtomicU64::new(deadline), last_deadline }
    }

    #[inline(always)]
    fn deadline(&self) -> u64 {
        // Relaxed: a number that orders nothing.
        self.deadline.load(Relaxed)
    }

    fn postpone(&self, deadline: u64, step: u64) {
        let deadline = deadline.min(self.last_deadline);
        // Relaxed, both: as above. Of two threads that hit at the same time, either may win.
        if deadline.saturating_sub(self.deadline.load(Relaxed)) > step {
            cold_path();
            self.deadline.store(deadline, Relaxed);
        }
    }
}

/// The part of an entry that does not depend on its types.
#[repr(C)]
pub(super) struct Slot {
    /// Whether a lookup has found the entry since eviction last looked at it.
    mark: AtomicBool,
    /// This, the stamp and the neighbours are read and written under the lock of the shard. They
    /// are the parts of the [`Place`], in an order that leaves no gaps.
    tags: UnsafeCell<Tags>,
    stamp: UnsafeCell<u32>,
    neighbours: UnsafeCell<Neighbours>,
    pub(super) weight: u64,
}

struct Tags {
    state: State,
    queue: u8,
    visits: u8,
}

struct Neighbours {
    /// Means nothing in the first entry of a queue, and may dangle there.
    previous: Option<NonNull<Slot>>,
    next: Option<NonNull<Slot>>,
}

#[cfg(not(relativist_loom))]
const _: () = {
    assert!(size_of::<Slot>() == 32);
    assert!(size_of::<Node<u64, Entry<u64, Unlimited>>>() == 64);
    assert!(size_of::<Node<u64, Entry<u64, Deadlines>>>() == 80);
};

/// Where an entry is in the queues of its shard.
pub(super) struct Place<'s> {
    pub(super) state: &'s mut State,
    pub(super) queue: &'s mut u8,
    pub(super) visits: &'s mut u8,
    /// The level of the shard when the entry was queued.
    pub(super) stamp: &'s mut u32,
    pub(super) previous: &'s mut Option<NonNull<Slot>>,
    pub(super) next: &'s mut Option<NonNull<Slot>>,
}

/// The life of an entry. It is queued after it is in the map, or before (if another entry was
/// evicted for it). It leaves the queue after it was unlinked from the map, or before (by a thread
/// that evicts it). An entry that is unlinked before it is queued is never queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// In the map or about to be, and not queued yet.
    New,
    Queued,
    /// Taken out of the queue by a thread that evicts it.
    Popped,
    /// Unlinked from the map, or never inserted. The thread that did so has also released the
    /// weight.
    Unlinked,
}

// SAFETY: the place has pointers to other slots, and is only used under the lock of the shard. Both
// may happen on any thread.
unsafe impl Send for Slot {}
// SAFETY: as above; everything else is atomic or does not change.
unsafe impl Sync for Slot {}

impl Slot {
    pub(super) fn new(weight: u64) -> Self {
        Self {
            mark: AtomicBool::new(false),
            tags: UnsafeCell::new(Tags { state: State::New, queue: 0, visits: 0 }),
            stamp: UnsafeCell::new(0),
            neighbours: UnsafeCell::new(Neighbours { previous: None, next: None }),
            weight,
        }
    }

    /// Marks the entry as visited. Writes only if it is not marked.
    #[inline(always)]
    pub(super) fn visit(&self) {
        // Relaxed, both: a hint to the eviction, which orders nothing.
        if !self.mark.load(Relaxed) {
            cold_path();
            self.mark.store(true, Relaxed);
        }
    }

    /// Returns whether the entry is marked.
    #[inline]
    pub(super) fn is_visited(&self) -> bool {
        // Relaxed: as above.
        self.mark.load(Relaxed)
    }

    /// Returns whether the entry was marked, and removes the mark.
    #[inline]
    pub(super) fn take_visit(&self) -> bool {
        let visited = self.is_visited();
        if visited {
            // Relaxed: as above. A visit at the same time may be lost.
            self.mark.store(false, Relaxed);
        }
        visited
    }

    /// # Safety
    ///
    /// The caller holds the lock of the entry's shard, and has no other reference to the place.
    #[inline]
    pub(super) unsafe fn place(&self) -> Place<'_> {
        // SAFETY: guaranteed by the caller.
        let Tags { state, queue, visits } = self.tags.with_mut(|tags| unsafe { &mut *tags });
        // SAFETY: as above.
        let stamp = self.stamp.with_mut(|stamp| unsafe { &mut *stamp });
        // SAFETY: as above.
        let Neighbours { previous, next } = self.neighbours.with_mut(|neighbours| unsafe { &mut *neighbours });
        Place { state, queue, visits, stamp, previous, next }
    }
}

/// Returns a pointer to the slot of a node, from which [`node_of`] gets back to the node.
#[inline]
pub(super) fn slot_of<K, V, L>(node: &Node<K, Entry<V, L>>) -> NonNull<Slot> {
    // SAFETY: the offset of a field of a node, inside the node.
    unsafe { NonNull::from(node).byte_add(offset_of!(Node<K, Entry<V, L>>, value.slot)).cast() }
}

/// # Safety
///
/// The pointer came from [`slot_of`] of a node of these types, and the node is alive during `'g`.
#[inline]
pub(super) unsafe fn node_of<'g, K, V, L>(slot: NonNull<Slot>) -> &'g Node<K, Entry<V, L>> {
    // SAFETY: `slot_of` has added this offset. The pointer is one to the whole node.
    unsafe { slot.byte_sub(offset_of!(Node<K, Entry<V, L>>, value.slot)).cast().as_ref() }
}

/// Prefetches the link and the slot of a node. The slot came from [`slot_of`].
pub(super) fn prefetch_node<K, V, L>(slot: NonNull<Slot>) {
    let offset = offset_of!(Node<K, Entry<V, L>>, value.slot);
    // The address is not used.
    prefetch_for_write(slot.as_ptr().wrapping_byte_sub(offset));
    prefetch_for_write(slot.as_ptr().wrapping_byte_add(offset_of!(Slot, weight)));
    if offset >= 64 {
        prefetch_for_write(slot.as_ptr());
    }
}
