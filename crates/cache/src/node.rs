//! The nodes of a cache: a key, a value, and what lookups need beside them.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

use relativist_core::hint::cold_path;
use relativist_core::recycle;
use relativist_core::sync::{AtomicBool, AtomicU32, AtomicU64, Relaxed};

/// A time that never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// An entry, in one allocation. What eviction knows about it is [elsewhere](super::queues).
#[repr(C)]
pub(super) struct Node<K, V, L> {
    pub(super) key: K,
    pub(super) value: V,
    pub(super) lifespan: L,
    /// The index of the entry in the queues of its shard, used under the lock of the shard.
    index: AtomicU32,
    /// Whether a lookup has found the entry since eviction last looked at it.
    mark: AtomicBool,
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

#[cfg(not(relativist_loom))]
const _: () = {
    assert!(size_of::<Node<u64, u64, Unlimited>>() == 24);
    assert!(size_of::<Node<u64, u64, Deadlines>>() == 48);
};

impl<K, V, L: Lifespan> Node<K, V, L> {
    /// Creates a node. Aborts if there is no memory, like `Box::new`.
    #[inline(always)]
    pub(super) fn new(key: K, value: V, times: Times) -> Box<Self> {
        let layout = Layout::new::<Self>();
        let Some(memory) = recycle::allocate(layout) else { handle_alloc_error(layout) };
        let node = memory.cast::<Self>();
        // SAFETY: memory of this layout that comes from the global allocator, possibly through the
        // recycler, can be a box's. It is not empty.
        unsafe {
            node.write(Self {
                key,
                value,
                lifespan: L::new(times),
                index: AtomicU32::new(0),
                mark: AtomicBool::new(false),
            });
            Box::from_raw(node.as_ptr())
        }
    }
}

/// A node, which keeps the index of its entry in the queues of its shard.
pub(super) trait Indexed {
    /// Called under the lock of the shard only.
    fn index(&self) -> u32;

    /// As above.
    fn set_index(&self, index: u32);
}

impl<K, V, L> Indexed for Node<K, V, L> {
    #[inline(always)]
    fn index(&self) -> u32 {
        // Relaxed, here and below: the lock of the shard orders it.
        self.index.load(Relaxed)
    }

    #[inline(always)]
    fn set_index(&self, index: u32) {
        self.index.store(index, Relaxed);
    }
}

impl<K, V, L> Node<K, V, L> {
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

    /// Marks the entry as visited. Writes only if it is not marked.
    #[inline(always)]
    pub(super) fn visit(&self) {
        // Relaxed, both: a hint to the eviction, which orders nothing.
        if !self.mark.load(Relaxed) {
            cold_path();
            self.mark.store(true, Relaxed);
        }
    }

    /// Returns whether the entry was marked, and removes the mark.
    #[inline]
    pub(super) fn take_visit(&self) -> bool {
        // Relaxed, both: as above. A visit at the same time may be lost. It stores in any case,
        // because a branch would often be predicted wrongly.
        let visited = self.mark.load(Relaxed);
        self.mark.store(false, Relaxed);
        visited
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
