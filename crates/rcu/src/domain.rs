//! The process-wide domain: the grace-period counter, and who drives grace periods. [`crate::design`] has the argument.

use std::cell::Cell;

use crate::barrier::{Barrier, choose, heavy};
use crate::registry::{Registry, Slot};
use crate::sync::atomic::{
    AtomicBool, AtomicU64, Ordering,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::{const_fn, global};

global! {
    /// The one domain of this process.
    fn domain() -> Domain = Domain::new();
}

/// The state behind every function of this crate.
pub(crate) struct Domain {
    /// Counts grace periods in steps of [`Domain::STEP`]. Readers load it on entry, so the lowest bit tells them for free
    /// whether they must fence ([`Domain::FENCED`]). Never 0, which is [`Slot::OUTSIDE`].
    counter: Line<AtomicU64>,
    /// The latest grace period that has ended.
    completed: AtomicU64,
    /// Held by whoever drives grace periods, for as long as one look at the readers takes; guards `scanning`.
    driving: AtomicBool,
    /// The grace period that has begun and not ended; 0 for none.
    scanning: Cell<u64>,
    initialized: AtomicBool,
    pub(crate) registry: Registry,
}

/// The counter has its line to itself: each reader loads it on entry.
#[repr(align(128))]
struct Line<T>(T);

// SAFETY: `scanning` is accessed only by the holder of `driving`, which is taken with Acquire and given back with Release
// (or reset in the single-threaded child of a fork). Everything else is atomic.
unsafe impl Sync for Domain {}

impl Domain {
    pub(crate) const STEP: u64 = 2;
    const FENCED: u64 = 1;

    const_fn! {
        fn new() -> Self {
            Self {
                counter: Line(AtomicU64::new(Domain::STEP)),
                completed: AtomicU64::new(Domain::STEP),
                driving: AtomicBool::new(false),
                scanning: Cell::new(0),
                initialized: AtomicBool::new(false),
                registry: Registry::new(),
            }
        }
    }

    /// Chooses the barrier and prepares for `fork`, once, before the first reader enters. Later calls do nothing.
    pub(crate) fn initialize(&self, barrier: impl FnOnce() -> Barrier) {
        // Acquire: pairs with the Release below; who sees `true` sees the choice in the counter.
        if self.initialized.load(Acquire) {
            return;
        }
        #[cfg(not(relativist_loom))]
        static ONCE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        #[cfg(not(relativist_loom))]
        let _once = ONCE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Relaxed: the lock orders it.
        if self.initialized.load(Relaxed) {
            return;
        }
        if barrier() == Barrier::Fence {
            // Relaxed: published by the Release below, before any reader can enter.
            self.counter.0.fetch_or(Self::FENCED, Relaxed);
        }
        crate::fork::install();
        // Release: pairs with the Acquire above.
        self.initialized.store(true, Release);
    }

    /// Called before a thread's first section.
    pub(crate) fn initialize_by_default(&self) {
        self.initialize(choose);
    }

    pub(crate) fn barrier(&self) -> Barrier {
        // Relaxed: the bit does not change after `initialize`, whose Acquire the caller has passed.
        if self.fenced(Relaxed) { Barrier::Fence } else { Barrier::Membarrier }
    }

    pub(crate) fn fenced(&self, order: Ordering) -> bool {
        Self::is_fenced(self.counter.0.load(order))
    }

    #[inline(always)]
    pub(crate) fn is_fenced(counter: u64) -> bool {
        counter & Self::FENCED != 0
    }

    /// What a reader stores on entry.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        // Acquire: pairs with the AcqRel increments in `ticket` and `begin`. A reader that sees a grace period's number
        // sees all that was unlinked before it began, so that it needn't be waited for (design, step 3). A plain load on
        // x86, `ldapr` on Arm.
        self.counter.0.load(Acquire)
    }

    /// How many grace periods have begun.
    pub(crate) fn begun(&self) -> u64 {
        // Relaxed: a statistic.
        self.counter.0.load(Relaxed) / Self::STEP - 1
    }

    /// The first grace period that will cover everything the caller did so far: one that begins after this call.
    pub(crate) fn ticket(&self) -> u64 {
        // AcqRel on a read-modify-write that changes nothing: the grace period's increment comes later in the counter's
        // modification order and so continues this release sequence; readers that acquire its number see what the caller
        // did before, though somebody else may be driving.
        self.counter.0.fetch_add(0, AcqRel) + Self::STEP
    }

    /// Whether the grace period has ended; helps it along without blocking. Lock-free: at most one pass over the slots for
    /// each grace period that had to begin, at most two of them.
    pub(crate) fn poll(&self, ticket: u64) -> bool {
        if self.has_completed(ticket) {
            return true;
        }
        let Some(_driver) = self.try_drive() else {
            return false;
        };
        while !self.has_completed(ticket) {
            if self.scanning.get() == 0 {
                self.begin();
            }
            if !self.try_complete(self.scanning.get()) {
                return false;
            }
        }
        true
    }

    pub(crate) fn has_completed(&self, ticket: u64) -> bool {
        // Acquire: pairs with the Release in `try_complete`: what readers did happened before what the caller does next.
        self.completed.load(Acquire) >= ticket
    }

    /// Begins a grace period: readers from here on carry its number. Called by the driver.
    fn begin(&self) {
        // AcqRel: Release pairs with the Acquire in `now`; Acquire takes over what the callers of `ticket` released, so
        // that the barrier below covers their stores too.
        let number = self.counter.0.fetch_add(Self::STEP, AcqRel) + Self::STEP;
        heavy();
        self.scanning.set(number);
    }

    /// Ends the grace period if no reader from before it is left. Called by the driver.
    fn try_complete(&self, number: u64) -> bool {
        let blocks = |slot: &Slot| {
            // Acquire: pairs with the Release stores on entry and exit (`Guard`): the reader's section happened before.
            let entered = slot.entered.load(Acquire);
            entered != Slot::OUTSIDE && entered < number
        };
        if self.registry.iter().any(blocks) {
            return false;
        }
        self.scanning.set(0);
        // Release: pairs with the Acquire in `has_completed`.
        self.completed.store(number, Release);
        true
    }

    fn try_drive(&self) -> Option<Driver<'_>> {
        // Acquire: pairs with the Release in `Driver::drop`, for `scanning`.
        let free = self.driving.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        free.then_some(Driver(self))
    }

    /// In the child of a fork nobody else is driving; a grace period begun by another thread may lack its barrier.
    pub(crate) fn reset_in_child(&self) {
        self.scanning.set(0);
        // Relaxed: the child has one thread.
        self.driving.store(false, Relaxed);
    }
}

/// The right to drive grace periods.
struct Driver<'d>(&'d Domain);

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `try_drive`.
        self.0.driving.store(false, Release);
    }
}
