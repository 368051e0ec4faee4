//! Grace periods: their counter, and their driver. [`crate::design`] explains why this is correct.

use crate::barrier::{Barrier, choose, heavy};
use crate::contention::Site;
use crate::registry::Registry;
use relativist_core::sync::atomic::{
    AtomicBool, AtomicU64, Ordering,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use relativist_core::sync::{Cell, const_fn, global};

global! {
    /// The domain of the process.
    fn domain() -> GracePeriods<Registry> = GracePeriods::new(GracePeriods::<Registry>::UNCHOSEN, Registry::new());
}

static DRIVER: Site = Site::new("rcu_driver");

/// The counter grows by this with each grace period.
pub(crate) const STEP: u64 = 2;
/// The bit of the counter that shows whether readers have to fence.
const FENCED: u64 = 1;

/// The readers for which grace periods wait.
pub(crate) trait Readers {
    /// Returns whether any section is open that has stored a number below `number`.
    fn has_reader_before(&self, number: u64) -> bool;
}

/// The state of a domain: grace periods, and the readers for which they wait.
pub(crate) struct GracePeriods<R> {
    /// Counts grace periods in steps of [`STEP`]; the lowest bit is [`FENCED`].
    /// [`GracePeriods::UNCHOSEN`] before the first use; after it never
    /// [`Slot::OUTSIDE`](crate::registry::Slot::OUTSIDE) or
    /// [`Slot::OUTSIDE_FENCED`](crate::registry::Slot::OUTSIDE_FENCED).
    counter: Line<AtomicU64>,
    /// The latest grace period that has ended.
    completed: AtomicU64,
    /// Held by the thread that drives grace periods, for one pass over the slots; guards
    /// `scanning`.
    driving: AtomicBool,
    /// The grace period in progress; 0 for none.
    scanning: Cell<u64>,
    pub(crate) registry: R,
}

/// The counter has its own cache line, because each reader loads it on entry.
#[repr(align(128))]
struct Line<T>(T);

// SAFETY: `scanning` is accessed only by the holder of `driving`, which is taken with Acquire and
// released with Release (or reset in the single-threaded child of a fork). Everything else is
// atomic.
unsafe impl<R: Sync> Sync for GracePeriods<R> {}

impl<R> GracePeriods<R> {
    const UNCHOSEN: u64 = 0;

    const_fn! {
        fn new(counter: u64, registry: R) -> Self {
            Self {
                counter: Line(AtomicU64::new(counter)),
                completed: AtomicU64::new(0),
                driving: AtomicBool::new(false),
                scanning: Cell::new(0),
                registry,
            }
        }
    }
}

impl GracePeriods<Registry> {
    /// Chooses the barrier and prepares for `fork`, before the first reader enters. Later calls do
    /// nothing. Takes no lock, which a fork could leave locked.
    pub(crate) fn initialize(&self, barrier: impl FnOnce() -> Barrier) {
        // Acquire: pairs with the Release below: a thread that sees the choice sees what was
        // prepared for it.
        // litmus: initialize
        if self.counter.0.load(Acquire) != Self::UNCHOSEN {
            return;
        }
        // If two threads race, both do this. That is harmless: the handler may run twice in a
        // child.
        crate::fork::install();
        let first = match barrier() {
            Barrier::Membarrier => STEP,
            Barrier::Fence => STEP | FENCED,
        };
        // If several threads choose, one choice is stored. Release: as above. Acquire, if another
        // thread was first: as above.
        // litmus: initialize, initialize-raced
        let _ = self.counter.0.compare_exchange(Self::UNCHOSEN, first, Release, Acquire);
    }

    /// Called before a thread's first section.
    pub(crate) fn initialize_by_default(&self) {
        self.initialize(choose);
    }

    pub(crate) fn barrier(&self) -> Barrier {
        // Relaxed: the bit does not change after `initialize`, whose Acquire the caller has passed.
        if self.fenced(Relaxed) { Barrier::Fence } else { Barrier::Membarrier }
    }

    /// Returns the state of a private domain, which uses the same barrier as this one.
    pub(crate) fn private<R>(&self, readers: R) -> GracePeriods<R> {
        self.initialize_by_default();
        // Relaxed: see `barrier`.
        GracePeriods::new(STEP | u64::from(self.fenced(Relaxed)), readers)
    }
}

impl<R: Readers> GracePeriods<R> {
    pub(crate) fn fenced(&self, order: Ordering) -> bool {
        self.counter.0.load(order) & FENCED != 0
    }

    /// Returns the number that a reader stores on entry.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        // Acquire: pairs with the AcqRel increments in `ticket` and `begin`. A reader that sees a
        // grace period's number sees everything that was unlinked before it began, so the grace
        // period need not wait for it (design, case 3). A plain load on x86, `ldapr` on Arm. Loom
        // would not notice Relaxed here, because under loom `light` executes a fence. With
        // `membarrier` that is a compiler fence only.
        // litmus: ticket, membarrier-before-use, bucket-stamp
        self.counter.0.load(Acquire)
    }

    /// Returns the number of grace periods that have begun.
    pub(crate) fn begun(&self) -> u64 {
        // Relaxed: a statistic.
        (self.counter.0.load(Relaxed) / STEP).saturating_sub(1)
    }

    /// Returns the first grace period that will cover everything that the caller did so far: one
    /// that begins after this call.
    pub(crate) fn ticket(&self) -> u64 {
        // AcqRel on a read-modify-write that changes nothing: the grace period's increment comes
        // later in the counter's modification order and so continues this release sequence; readers
        // that acquire its number see what the caller did before, even if another thread is the
        // driver.
        // litmus: ticket, ticket-fence, queue-sealed
        let now = self.counter.0.fetch_add(0, AcqRel);
        now + STEP
    }

    /// Returns whether the grace period has ended. If it has not, drives grace periods: takes the
    /// next steps of the current one. Wait-free: at most two passes over the slots, one for the
    /// grace period that it found in progress and one for the next. (But no grace period ends while
    /// its driver is preempted: other threads see the flag taken, and return.)
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
        self.ended() >= ticket
    }

    /// Returns the latest grace period that has ended.
    pub(crate) fn ended(&self) -> u64 {
        // Acquire: pairs with the Release in `try_complete`: what readers did happens before what
        // the caller does next.
        // litmus: completed, bucket-slot-reused, bucket-stamp
        self.completed.load(Acquire)
    }

    /// Begins a grace period: readers that enter later store its number. Called by the driver.
    fn begin(&self) {
        // AcqRel: Release pairs with the Acquire in `now`; Acquire takes over what the callers of
        // `ticket` released, so that the barrier below covers their stores too. Loom would not
        // notice Relaxed here: under loom the fence in `heavy` is an Acquire, and any increment
        // continues the release sequence of `ticket`.
        // litmus: ticket-fence, bucket-stamp
        let number = self.counter.0.fetch_add(STEP, AcqRel) + STEP;
        heavy();
        self.scanning.set(number);
    }

    /// Ends the grace period if no reader from before it is left. Called by the driver.
    fn try_complete(&self, number: u64) -> bool {
        if self.registry.has_reader_before(number) {
            return false;
        }
        self.scanning.set(0);
        // Release: pairs with the Acquire in `has_completed`.
        // litmus: completed, bucket-slot-reused, bucket-stamp
        self.completed.store(number, Release);
        true
    }

    pub(crate) fn try_drive(&self) -> Option<Driver<'_, R>> {
        // Acquire: pairs with the Release in `Driver::drop`, for `scanning`.
        // litmus: driver
        let free = self.driving.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        DRIVER.count_try(free);
        free.then(|| Driver(self))
    }

    /// Resets the driver in the child of a fork, where no other thread can be driving. A grace
    /// period that another thread began may lack its barrier.
    #[cfg(all(unix, not(relativist_loom)))]
    pub(crate) fn reset_in_child(&self) {
        self.scanning.set(0);
        // Relaxed: the child has one thread.
        self.driving.store(false, Relaxed);
    }
}

/// The right to drive grace periods.
pub(crate) struct Driver<'d, R>(&'d GracePeriods<R>);

impl<R> Drop for Driver<'_, R> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `try_drive`.
        // litmus: driver
        self.0.driving.store(false, Release);
    }
}
