//! What a table and the resize worker share, and how they reach its array and its counters.

use std::ptr::NonNull;
use std::sync::{PoisonError, TryLockError};

use relativist_core::counter::Counter;
use relativist_core::sync::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Mutex, MutexGuard, Relaxed};
use relativist_rcu::contention::Site;
use relativist_rcu::{Guard, active_barrier};

use super::Link;
use super::array::{AllocError, Array, AtomicArray};
use super::contents::dispose_of_all;
use super::link::AnyLink;
use super::policy::{Policy, Resizing};
use super::resizer::Resizer;

/// The state that the table shares with the resize worker. Small, because a program may have many
/// tables that stay empty (`tests/empty.rs`).
///
/// Lookups read the first field, and the count comes last. So lookups in a small table, for which
/// each update changes the count, do not lose their cache line.
#[repr(C)]
pub(crate) struct TableInner<L: AnyLink = Link> {
    /// Only the resizer replaces it, and frees the old one after a grace period.
    pub(super) array: AtomicArray,
    dispose: unsafe fn(NonNull<L>),
    pub(super) policy: Policy,
    /// Set while updates need not ask the worker to check this table: a request is pending, or the
    /// worker will check the table again anyway.
    pub(super) requested: AtomicBool,
    pub(super) resizing: AtomicBool,
    /// The binary logarithm of the number of buckets of the published array. Only the holder of the
    /// resizer's mutex changes it.
    bits: AtomicU8,
    /// Locked before the resizer's mutex, to make that fair: otherwise a thread that resizes in a
    /// loop could starve the others.
    turn: Mutex<()>,
    resizer: Mutex<Resizer>,
    pub(super) counts: Counts,
    pub(super) count: Counter,
}

/// The mutexes of resizers.
static RESIZER: Site = Site::new("map_resizer");

/// Statistics of the resizer.
#[derive(Default)]
pub(super) struct Counts {
    /// Bytes of the buckets of all arrays that are allocated.
    pub(super) bucket_bytes: AtomicUsize,
    pub(super) grows: AtomicU64,
    pub(super) shrinks: AtomicU64,
    pub(super) grace_periods: AtomicU64,
}

impl<L: AnyLink> TableInner<L> {
    pub(super) fn create(buckets: usize, policy: Policy, dispose: unsafe fn(NonNull<L>)) -> Result<Self, AllocError> {
        let array = Array::allocate(bits_for(buckets))?;
        let inner = Self {
            array: AtomicArray::new(array),
            dispose,
            policy: policy.starting_with(array.len()),
            requested: AtomicBool::new(false),
            resizing: AtomicBool::new(false),
            bits: AtomicU8::new(0),
            count: Counter::new(),
            turn: Mutex::new(()),
            resizer: Mutex::new(Resizer::default()),
            counts: Counts::default(),
        };
        inner.size_changed(array.len());
        // Relaxed: a statistic.
        inner.counts.bucket_bytes.store(array.bucket_bytes(), Relaxed);
        // Unlocking a bucket relies on RCU having chosen its barrier.
        active_barrier();
        Ok(inner)
    }

    #[inline(always)]
    pub(super) fn array<'g>(&self, _guard: &'g Guard) -> Array<'g> {
        // SAFETY: an array is freed a grace period after it was replaced, and the guard was taken
        // before it was found.
        unsafe { self.array.load() }
    }

    pub(super) fn try_lock_resizer(&self) -> Option<MutexGuard<'_, Resizer>> {
        let _turn = try_lock(&self.turn)?;
        try_lock(&self.resizer)
    }

    pub(super) fn lock_resizer(&self) -> MutexGuard<'_, Resizer> {
        RESIZER.acquire(
            || self.try_lock_resizer(),
            || {
                let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
                self.resizer.lock().unwrap_or_else(PoisonError::into_inner)
            },
        )
    }

    pub(super) fn wanted(&self) -> Option<usize> {
        self.policy.wanted(self.count.sum(), 1 << self.bits())
    }

    /// Returns the binary logarithm of the number of buckets.
    pub(super) fn bits(&self) -> u32 {
        // Relaxed: the holder of the resizer's mutex has written it or acquired it with the mutex.
        // For all others it is a statistic.
        self.bits.load(Relaxed).into()
    }

    /// Returns whether the worker will grow the table again when it has `buckets` buckets.
    pub(super) fn wants_more_than(&self, buckets: usize) -> bool {
        let wanted = || self.policy.wanted(self.count.sum(), buckets);
        self.policy.resizing == Resizing::Automatic && wanted().is_some_and(|wanted| wanted > buckets)
    }

    /// Called when the size of the table has changed.
    pub(super) fn size_changed(&self, buckets: usize) {
        self.count.size_changed(buckets);
        // Relaxed: see `bits`.
        self.bits.store(buckets.ilog2() as u8, Relaxed);
    }
}

impl<L: AnyLink> Drop for TableInner<L> {
    fn drop(&mut self) {
        // The resizer is taken first, because a destructor below may panic.
        let resizer = self.resizer.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: no thread uses the table any more, nor does the worker.
        unsafe { resizer.free_all() };
        // SAFETY: as above.
        let array = unsafe { self.array.load() };
        // An empty table may have many buckets, which need not be read.
        if self.count.sum() == 0 {
            // SAFETY: as above.
            return unsafe { array.free() };
        }
        // SAFETY: as above. The links in the table are the table's own, by the contract of
        // `VacantEntry::insert`; no reader is left, because lookups borrow the table.
        unsafe { dispose_of_all(array, self.dispose) };
    }
}

/// Ignores poisoning: a thread that panicked with the lock has left the data in a consistent state.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Ok(guard) => Some(guard),
    }
}

pub(super) fn bits_for(buckets: usize) -> u32 {
    // `ilog2` of the next power of two, without overflow for the largest.
    buckets.max(2).saturating_sub(1).ilog2().saturating_add(1).max(Array::MIN_BITS)
}
