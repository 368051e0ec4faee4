//! Read-side critical sections.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::barrier::light;
use crate::current::{clear_current_slot, current_slot, own_slot, set_current_slot};
use crate::domain::domain;
use crate::registry::{Slot, unregistered};
use crate::stripes::Recent;
use relativist_core::hint::cold_path;
use relativist_core::sync::atomic::Ordering::{Relaxed, Release};
use relativist_core::sync::local;

local! {
    /// Gives the slot back at thread exit.
    static REGISTRATION: Registration = Registration(Cell::new(None));
}

/// Proof of being inside a read-side critical section; dropping it leaves the section.
///
/// References to objects that RCU protects borrow the guard, so they cannot outlive the section.
/// Guards nest: the section ends when the last guard of the thread is dropped. The order of drops
/// does not matter.
#[must_use = "the read section ends when the guard is dropped"]
pub struct Guard {
    slot: &'static Slot,
    _stays: Stays<OnItsThread>,
}

/// Makes the guard neither `Send` nor `Sync`, because the section belongs to the thread.
struct Stays<T>(PhantomData<T>);

/// The marker that the compiler names where a guard, or a handle of a map, would go to another
/// thread, or be held across an `.await`.
struct OnItsThread;

/// Implemented by nothing: says why a guard cannot leave its thread.
#[diagnostic::on_unimplemented(
    message = "a read section stays on its thread: a guard or handle cannot go to another thread, nor be held across an `.await`",
    note = "drop the guard or handle first, and take another one afterwards; keep copies, or clones of an `Arc`"
)]
trait MayLeaveItsThread {}

// SAFETY: there is no such type.
unsafe impl<T: MayLeaveItsThread> Send for Stays<T> {}
// SAFETY: as above.
unsafe impl<T: MayLeaveItsThread> Sync for Stays<T> {}

/// Enters a read-side critical section.
///
/// Objects that are reachable now, or become reachable while the guard lives, stay allocated until
/// the guard is dropped.
///
/// Wait-free: takes a few loads and stores, no lock and no atomic read-modify-write, and with
/// [`Barrier::Membarrier`] no fence. A nested call only increments a counter. A thread's first call
/// registers it, which may allocate (and aborts if there is no memory).
///
/// Works in the destructors of thread-local variables and in the child of a `fork`.
///
/// ```
/// let outer = relativist_rcu::read();
/// let inner = relativist_rcu::read();
/// drop(outer);
/// assert!(relativist_rcu::is_reading());
/// drop(inner);
/// assert!(!relativist_rcu::is_reading());
/// ```
///
/// [`Barrier::Membarrier`]: crate::Barrier::Membarrier
#[inline]
pub fn read() -> Guard {
    let slot = current_slot();
    if slot.is_idle() {
        enter(slot, false);
        Guard::of(slot)
    } else {
        cold_path();
        read_slowly(slot)
    }
}

/// Enters a section by the slow path: a nested section, a thread's first section, or any section if
/// readers have to fence.
#[inline]
fn read_slowly(slot: &'static Slot) -> Guard {
    if slot.is_reading() {
        slot.nesting.set(slot.nesting.get() + 1);
        Guard::of(slot)
    } else {
        read_fenced_or_unregistered(slot)
    }
}

#[cold]
fn read_fenced_or_unregistered(slot: &'static Slot) -> Guard {
    let slot = if std::ptr::eq(slot, unregistered()) { register() } else { slot };
    enter(slot, slot.is_fenced());
    Guard::of(slot)
}

/// Returns whether the calling thread is inside a read-side critical section.
pub fn is_reading() -> bool {
    own_slot().is_some_and(Slot::is_reading)
}

impl Guard {
    #[inline(always)]
    fn of(slot: &'static Slot) -> Self {
        Self { slot, _stays: Stays(PhantomData) }
    }

    /// Returns a guard that was passed to [`std::mem::forget`], which left its section open. Use
    /// this in code that cannot keep a guard, such as interfaces to other languages. Returns `None`
    /// outside of sections.
    ///
    /// If it is forgotten again ([`std::mem::ManuallyDrop`]), this may be called any number of
    /// times.
    ///
    /// ```
    /// use relativist_rcu::{Guard, read};
    ///
    /// std::mem::forget(read());
    /// // SAFETY: forgotten above.
    /// let guard = unsafe { Guard::of_forgotten() };
    /// assert!(guard.is_some());
    /// drop(guard);
    /// // SAFETY: there is none.
    /// assert!(unsafe { Guard::of_forgotten() }.is_none());
    /// ```
    ///
    /// # Safety
    ///
    /// If the calling thread is in a section, then it has forgotten a guard that this function has
    /// not returned yet, or that was forgotten again since.
    #[inline]
    pub unsafe fn of_forgotten() -> Option<Self> {
        let slot = current_slot();
        slot.is_reading().then(|| Self::of(slot))
    }

    /// Leaves the section and enters a new one, so that a long loop does not stall grace periods.
    /// Earlier references cannot be used afterwards, because this borrows the guard mutably. Has no
    /// effect while another guard of the thread lives.
    ///
    /// ```compile_fail,E0502
    /// use relativist_rcu::{Published, read};
    /// let value = Published::new(1);
    /// let mut guard = read();
    /// let one = value.read(&guard);
    /// guard.renew(); // error: `one` borrows the guard
    /// assert_eq!(*one, 1);
    /// ```
    ///
    /// ```
    /// use relativist_rcu::{Published, read};
    /// let value = Published::new(1);
    /// let mut guard = read();
    /// let one = *value.read(&guard);
    /// guard.renew();
    /// assert_eq!((one, *value.read(&guard)), (1, 1));
    /// ```
    pub fn renew(&mut self) {
        leave(self.slot);
        self.slot = ManuallyDrop::new(read()).slot;
    }

    /// Returns a number for the calling thread, for per-thread data. No other thread has it as long
    /// as this one is registered.
    ///
    /// Numbers are small: those of exited threads are reused, so they stay below the maximum number
    /// of threads (with background threads of this crate) that used RCU at the same time. What the
    /// previous thread with this number did happens before what this one does.
    ///
    /// ```
    /// let guard = relativist_rcu::read();
    /// assert_eq!(guard.thread_index(), relativist_rcu::read().thread_index());
    /// ```
    #[inline(always)]
    pub fn thread_index(&self) -> usize {
        self.slot.index
    }

    pub(crate) fn slot(&self) -> &'static Slot {
        self.slot
    }
}

// A panic in a section leaves no inconsistent state that the guard gives access to (R9).
impl UnwindSafe for Guard {}
impl RefUnwindSafe for Guard {}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard")
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        leave(self.slot);
    }
}

#[inline(always)]
fn enter(slot: &Slot, fenced: bool) {
    let now = domain().now();
    // Release: pairs with the Acquire in `Domain::try_complete`. A thread that sees this section
    // sees the end of the one before it, too. `light` and `heavy` order the store before the
    // section's reads.
    // litmus: entry-fence, next-section, slot-reused-section
    slot.entered.store(now, Release);
    light(fenced);
}

#[inline(always)]
fn leave(slot: &'static Slot) {
    if slot.nesting.get() == 0 {
        // Release: pairs with the Acquire in `Domain::try_complete`: the section's reads happen
        // before the end of the grace period.
        // litmus: leave, completed, membarrier-before-use, membarrier-after-leave, cut-left
        // litmus: bucket-vacated
        slot.entered.store(Slot::OUTSIDE, Release);
    } else {
        cold_path();
        leave_slowly(slot);
    }
}

/// Leaves a nested section, or an outermost one that has flags set.
#[inline]
fn leave_slowly(slot: &'static Slot) {
    let nesting = slot.nesting.get();
    if nesting & Slot::DEPTH > 0 {
        slot.nesting.set(nesting - 1);
    } else {
        leave_flagged(slot, nesting);
    }
}

#[cold]
fn leave_flagged(slot: &'static Slot, flags: usize) {
    slot.nesting.set(flags & Slot::FENCED);
    // Release: as in `leave`.
    // litmus: leave
    slot.entered.store(slot.at_rest(), Release);
    if flags & Slot::RECLAIM != 0 {
        crate::defer::reclaim(slot);
    }
    if flags & Slot::TRANSIENT != 0 {
        give_back(slot);
    }
}

/// Releases the thread's slot: now, or at the end of the section that is still open. If the guard
/// of that section was leaked, the slot is never released, because other threads may be using
/// references that the section protects.
fn give_back(slot: &Slot) {
    if slot.is_reading() {
        slot.nesting.set(slot.nesting.get() | Slot::TRANSIENT);
    } else {
        clear_current_slot();
        Recent::clear();
        slot.release();
    }
}

fn register() -> &'static Slot {
    domain().initialize_by_default();
    let slot = domain().registry.claim(domain().fenced(Relaxed));
    // A global allocator that uses RCU itself may have registered this thread while `claim`
    // allocated.
    if let Some(own) = own_slot() {
        slot.release();
        return own;
    }
    set_current_slot(slot);
    // In thread-local destructors that run after that of `Registration`, the end of the section
    // releases the slot.
    if REGISTRATION.try_with(|registration| registration.0.set(Some(slot))).is_err() {
        slot.nesting.set(slot.nesting.get() | Slot::TRANSIENT);
    }
    slot
}

/// Releases this thread's slot when the thread exits. Another thread-local variable, whose
/// destructor runs later, may still hold a guard.
struct Registration(Cell<Option<&'static Slot>>);

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(slot) = self.0.get() {
            give_back(slot);
        }
    }
}
