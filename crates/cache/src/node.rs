//! The nodes of a cache: a key, a value, and what eviction and expiry know about the entry.

use std::alloc::{Layout, handle_alloc_error};
use std::mem::offset_of;
use std::ptr::NonNull;

use relativist_bucket::Hash;
use relativist_core::hint::cold_path;
use relativist_core::prefetch::prefetch_for_write;
use relativist_core::recycle;
use relativist_core::sync::{AtomicBool, AtomicU64, Relaxed, UnsafeCell};

/// A time that never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// An entry, in one allocation.
///
/// The fields that hits need come first. With keys and values of 8 bytes, a node that cannot expire
/// takes 56 bytes: with the 8 that many allocators add, a cache line.
#[repr(C)]
pub(super) struct Node<K, V, L> {
    pub(super) key: K,
    pub(super) value: V,
    pub(super) lifespan: L,
    pub(super) slot: Slot,
}

/// A pointer to a node.
pub(super) type NodePtr<K, V, L> = NonNull<Node<K, V, L>>;

/// When an entry expires: [`Unlimited`] or [`Deadlines`], for all entries of a cache.
pub(super) trait Lifespan: Send + Sync + 'static {
    /// Whether entries can expire or be refreshed at all.
    const IS_LIMITED: bool;

    /// Makes the lifespan of a new entry.
    fn new(times: Times) -> Self;

    /// Returns the time from which the entry is no longer returned.
    fn deadline(&self) -> u64;

    /// Sets the deadline, or the last one possible.
    fn set_deadline(&self, deadline: u64);

    /// Returns the time from which a load refreshes the entry.
    fn refresh(&self) -> u64;

    /// Sets that time. Returns false if it was not `current` any more.
    fn set_refresh(&self, current: u64, refresh: u64) -> bool;
}

/// The times of an entry, in nanoseconds of the cache's clock.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) deadline: u64,
    /// The latest time to which the deadline may move.
    pub(super) last_deadline: u64,
    pub(super) refresh: u64,
}

impl Times {
    pub(super) const NEVER: Self = Self { deadline: NEVER, last_deadline: NEVER, refresh: NEVER };
}

/// The lifespan of entries that cannot expire. Takes no memory.
pub(super) struct Unlimited;

/// The lifespan of an entry that may expire.
pub(super) struct Deadlines {
    deadline: AtomicU64,
    last_deadline: u64,
    refresh: AtomicU64,
}

impl Lifespan for Unlimited {
    const IS_LIMITED: bool = false;

    fn new(_: Times) -> Self {
        Self
    }

    #[inline(always)]
    fn deadline(&self) -> u64 {
        NEVER
    }

    fn set_deadline(&self, _: u64) {}

    fn refresh(&self) -> u64 {
        NEVER
    }

    fn set_refresh(&self, _: u64, _: u64) -> bool {
        false
    }
}

impl Lifespan for Deadlines {
    const IS_LIMITED: bool = true;

    fn new(times: Times) -> Self {
        Self {
            deadline: AtomicU64::new(times.deadline),
            last_deadline: times.last_deadline,
            refresh: AtomicU64::new(times.refresh),
        }
    }

    #[inline(always)]
    fn deadline(&self) -> u64 {
        // Relaxed: a number that orders nothing.
        self.deadline.load(Relaxed)
    }

    fn set_deadline(&self, deadline: u64) {
        // Relaxed: as above. Of two threads that hit at the same time, either may win.
        self.deadline.store(deadline.min(self.last_deadline), Relaxed);
    }

    fn refresh(&self) -> u64 {
        // Relaxed: as above.
        self.refresh.load(Relaxed)
    }

    fn set_refresh(&self, current: u64, refresh: u64) -> bool {
        // Relaxed, both: as above.
        self.refresh.compare_exchange(current, refresh, Relaxed, Relaxed).is_ok()
    }
}

/// The part of a node that does not depend on its types.
#[repr(C)]
pub(super) struct Slot {
    /// Whether a lookup has found the entry since eviction last looked at it.
    mark: AtomicBool,
    /// This, the stamp and the neighbours are read and written under the lock of the shard. They
    /// are the parts of the [`Place`], in an order that leaves no gaps.
    tags: UnsafeCell<Tags>,
    stamp: UnsafeCell<u32>,
    neighbours: UnsafeCell<Neighbours>,
    pub(super) hash: Hash,
    pub(super) weight: u64,
}

struct Tags {
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
    assert!(size_of::<Slot>() == 40);
    assert!(size_of::<Node<u64, u64, Unlimited>>() == 56);
    assert!(size_of::<Node<u64, u64, Deadlines>>() == 80);
};

/// Where an entry is in the queues of its shard, or among those that wait for readers.
pub(super) struct Place<'s> {
    pub(super) queue: &'s mut u8,
    pub(super) visits: &'s mut u8,
    /// In a queue, the level of the shard when the entry was queued. Later, the grace period in
    /// which it was removed.
    pub(super) stamp: &'s mut u32,
    pub(super) previous: &'s mut Option<NonNull<Slot>>,
    pub(super) next: &'s mut Option<NonNull<Slot>>,
}

// SAFETY: the place has pointers to other slots, and is only used under the lock of the shard. Both
// may happen on any thread.
unsafe impl Send for Slot {}
// SAFETY: as above; everything else is atomic or does not change.
unsafe impl Sync for Slot {}

impl Slot {
    pub(super) fn new(hash: Hash, weight: u64) -> Self {
        Self {
            mark: AtomicBool::new(false),
            tags: UnsafeCell::new(Tags { queue: 0, visits: 0 }),
            stamp: UnsafeCell::new(0),
            neighbours: UnsafeCell::new(Neighbours { previous: None, next: None }),
            hash,
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
        let Tags { queue, visits } = self.tags.with_mut(|tags| unsafe { &mut *tags });
        // SAFETY: as above.
        let stamp = self.stamp.with_mut(|stamp| unsafe { &mut *stamp });
        // SAFETY: as above.
        let Neighbours { previous, next } = self.neighbours.with_mut(|neighbours| unsafe { &mut *neighbours });
        Place { queue, visits, stamp, previous, next }
    }
}

impl<K, V, L: Lifespan> Node<K, V, L> {
    /// Creates a node. Aborts if there is no memory, like `Box::new`.
    #[inline(always)]
    pub(super) fn new(hash: Hash, key: K, value: V, weight: u64, times: Times) -> Box<Self> {
        let layout = Layout::new::<Self>();
        let Some(memory) = recycle::allocate(layout) else { handle_alloc_error(layout) };
        let node = memory.cast::<Self>();
        // SAFETY: memory of this layout that comes from the global allocator, possibly through the
        // recycler, can be a box's.
        unsafe {
            node.write(Self { key, value, lifespan: L::new(times), slot: Slot::new(hash, weight) });
            Box::from_raw(node.as_ptr())
        }
    }
}

impl<K, V, L> Node<K, V, L> {
    const SLOT: usize = offset_of!(Self, slot);

    /// Returns key and value.
    pub(super) fn into_parts(self) -> (K, V) {
        (self.key, self.value)
    }

    /// Drops the node. Frees the memory even if a destructor panics.
    ///
    /// # Safety
    ///
    /// The node came from a box, and no thread uses it any more.
    pub(super) unsafe fn free(node: NonNull<Self>) {
        let _memory = Memory(node.cast(), Layout::new::<Self>());
        // SAFETY: guaranteed by the caller.
        unsafe { node.drop_in_place() };
    }

    /// Returns a pointer to the slot of a node.
    #[inline]
    pub(super) fn slot_of(node: NonNull<Self>) -> NonNull<Slot> {
        // SAFETY: the offset of a field of a node, inside the node.
        unsafe { node.byte_add(Self::SLOT).cast() }
    }

    /// Returns the node of a slot.
    ///
    /// # Safety
    ///
    /// The slot came from [`Node::slot_of`] of a node of these types.
    #[inline]
    pub(super) unsafe fn of_slot(slot: NonNull<Slot>) -> NonNull<Self> {
        // SAFETY: `slot_of` has added this offset. The pointer is one to the whole node.
        unsafe { slot.byte_sub(Self::SLOT).cast() }
    }

    /// Prefetches what an eviction needs of a node. The slot came from [`Node::slot_of`].
    pub(super) fn prefetch(slot: NonNull<Slot>) {
        // The addresses are not used.
        prefetch_for_write(slot.as_ptr().wrapping_byte_sub(Self::SLOT));
        prefetch_for_write(slot.as_ptr().wrapping_byte_add(offset_of!(Slot, weight)));
        if Self::SLOT >= 64 {
            prefetch_for_write(slot.as_ptr());
        }
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
