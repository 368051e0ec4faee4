//! Read-side critical sections.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::barrier::light;
use crate::domain::{Domain, domain};
use crate::registry::Slot;
use crate::sync::atomic::Ordering::Release;
use crate::sync::thread_local;

#[cfg(not(relativist_loom))]
thread_local! {
    /// This thread's slot. Has no destructor, so it can be read at any moment of a thread's life and costs one load.
    static SLOT: Cell<Option<&'static Slot>> = const { Cell::new(None) };
    /// Gives the slot back at thread exit.
    static REGISTRATION: Registration = const { Registration };
}

#[cfg(relativist_loom)]
thread_local! {
    static SLOT: Cell<Option<&'static Slot>> = Cell::new(None);
    static REGISTRATION: Registration = Registration;
}

/// Proof of being inside a read-side critical section; dropping it leaves the section.
///
/// References to what RCU protects borrow the guard, so they can't outlive the section. Guards nest: the section ends
/// when the last guard of the thread is dropped, in whatever order.
#[must_use = "the read section ends when the guard is dropped"]
pub struct Guard {
    slot: &'static Slot,
    /// The section belongs to the thread.
    _not_send: PhantomData<*mut ()>,
}

/// Enters a read-side critical section.
///
/// Whatever is reachable now or becomes reachable while the guard lives stays allocated until the guard is dropped.
///
/// Wait-free: a few loads and stores, neither lock nor atomic read-modify-write, and no fence with [`Barrier::Membarrier`].
/// Nested calls only count. A thread's first call registers it, which may allocate (and aborts when memory is out).
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
    let Some(slot) = own_slot() else {
        return read_unregistered();
    };
    if slot.is_reading() {
        slot.nesting.set(slot.nesting.get() + 1);
    } else {
        enter(slot);
    }
    Guard::of(slot)
}

/// Whether the calling thread is inside a read-side critical section.
pub fn is_reading() -> bool {
    own_slot().is_some_and(Slot::is_reading)
}

impl Guard {
    #[inline(always)]
    fn of(slot: &'static Slot) -> Self {
        Self { slot, _not_send: PhantomData }
    }

    /// Leaves the section and enters a new one, so that a long loop doesn't stall grace periods. References taken before
    /// can't be used after it: it borrows the guard mutably. Does nothing of use while another guard of the thread lives.
    pub fn renew(&mut self) {
        leave(self.slot);
        self.slot = ManuallyDrop::new(read()).slot;
    }

    pub(crate) fn slot(&self) -> &'static Slot {
        self.slot
    }
}

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

/// The slot of the calling thread, if it has one.
#[inline(always)]
pub(crate) fn own_slot() -> Option<&'static Slot> {
    SLOT.with(Cell::get)
}

#[inline(always)]
fn enter(slot: &Slot) {
    let now = domain().now();
    // Release: pairs with the Acquire in `Domain::try_complete`. Whoever sees this section sees the end of the one before
    // it, too. The order against what the section reads is the business of `light` and `heavy`.
    slot.entered.store(now, Release);
    light(Domain::is_fenced(now));
}

#[inline(always)]
fn leave(slot: &'static Slot) {
    if slot.nesting.get() == 0 {
        // Release: pairs with the Acquire in `Domain::try_complete`: what the section read was read before.
        slot.entered.store(Slot::OUTSIDE, Release);
    } else {
        leave_nested_or_flagged(slot);
    }
}

#[inline]
fn leave_nested_or_flagged(slot: &'static Slot) {
    let nesting = slot.nesting.get();
    if nesting & Slot::DEPTH > 0 {
        slot.nesting.set(nesting - 1);
    } else {
        leave_flagged(slot, nesting);
    }
}

/// The end of an outermost section that has left something to do behind it.
#[cold]
fn leave_flagged(slot: &'static Slot, flags: usize) {
    slot.nesting.set(0);
    leave(slot);
    if flags & Slot::RECLAIM != 0 {
        crate::defer::reclaim(slot);
    }
    if flags & Slot::TRANSIENT != 0 {
        SLOT.with(|own| own.set(None));
        slot.release();
    }
}

#[cold]
fn read_unregistered() -> Guard {
    domain().initialize_by_default();
    let slot = domain().registry.claim();
    SLOT.with(|own| own.set(Some(slot)));
    // In the destructors that run after `Registration`'s there is nobody left to give the slot back: the section does.
    if REGISTRATION.try_with(|_| ()).is_err() {
        slot.nesting.set(Slot::TRANSIENT);
    }
    enter(slot);
    Guard::of(slot)
}

struct Registration;

impl Drop for Registration {
    fn drop(&mut self) {
        let Some(slot) = own_slot() else { return };
        if slot.is_reading() {
            // A guard lives in another thread-local variable, and gives the slot back when it is dropped there. Or it
            // was leaked, and references to all it protects may live on in other threads: then the section never ends.
            slot.nesting.set(slot.nesting.get() | Slot::TRANSIENT);
        } else {
            SLOT.with(|own| own.set(None));
            slot.release();
        }
    }
}
