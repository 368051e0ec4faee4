//! A value with a lock of one byte, which a thread that waits for it does not keep from being
//! freed.
//!
//! The lock is that of the crate `parking_lot`, with two differences. A value may be *removed*:
//! then its lock cannot be taken any more. And a thread leaves its read section before it sleeps.
//! When it wakes, the value may be gone. So it looks the key up again, unless it got the lock
//! handed over: what is locked is in the map.

use std::mem::MaybeUninit;

#[cfg(debug_assertions)]
use relativist_core::sync::AtomicUsize;
use relativist_core::sync::parking::{park_then, unpark_all, unpark_one};
use relativist_core::sync::{AcqRel, Acquire, AtomicByte, Relaxed, Release, UnsafeCell, fence_after_exchange};

/// A value, its lock, and whether it is there.
pub(super) struct Lockable<V> {
    state: AtomicByte,
    /// The thread that has locked it last.
    #[cfg(debug_assertions)]
    holder: AtomicUsize,
    value: UnsafeCell<MaybeUninit<V>>,
}

/// A thread holds the lock.
const LOCKED: u8 = 1;
/// Threads may sleep until it is unlocked.
const AWAITED: u8 = 2;
/// There is no value yet. It is locked.
const VACANT: u8 = 4;
/// The entry was removed from the map, and there is no value any more.
const REMOVED: u8 = 8;

// SAFETY: it owns its value.
unsafe impl<V: Send> Send for Lockable<V> {}
// SAFETY: only the thread that holds the lock uses the value.
unsafe impl<V: Send> Sync for Lockable<V> {}

/// What an attempt to lock has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    Locked,
    Busy,
    Removed,
}

impl<V> Lockable<V> {
    fn with(state: u8, value: MaybeUninit<V>) -> Self {
        Self {
            state: AtomicByte::new(state),
            #[cfg(debug_assertions)]
            holder: AtomicUsize::new(this_thread()),
            value: UnsafeCell::new(value),
        }
    }

    /// Returns a value that is not locked.
    pub(super) fn new(value: V) -> Self {
        Self::with(0, MaybeUninit::new(value))
    }

    /// Returns the place for a value, locked by this thread.
    pub(super) fn vacant() -> Self {
        Self::with(LOCKED | VACANT, MaybeUninit::uninit())
    }

    /// Returns whether there is a value.
    pub(super) fn has_value(&self) -> bool {
        // Relaxed: whoever finds the entry finds the state with which it was made, or a later one.
        self.state.load(Relaxed) & (VACANT | REMOVED) == 0
    }

    #[inline(always)]
    pub(super) fn try_lock(&self) -> Attempt {
        let mut state = 0;
        loop {
            // Acquire: pairs with the Release in `unlock`: the value is seen as it was left.
            match self.state.compare_exchange(state, state | LOCKED, Acquire, Relaxed) {
                Ok(_) => {
                    self.set_holder();
                    return Attempt::Locked;
                }
                Err(now) if now & REMOVED != 0 => return Attempt::Removed,
                Err(now) if now & LOCKED != 0 => return Attempt::Busy,
                Err(now) => state = now,
            }
        }
    }

    /// Sleeps while another thread holds the lock. Calls `leave` before, which leaves the read
    /// section. If it returns true, the caller holds the lock, and the value is in the map.
    /// Otherwise it may be gone.
    ///
    /// # Safety
    ///
    /// The value is protected until `leave` is called, which neither panics nor parks.
    #[cold]
    pub(super) unsafe fn sleep(this: *const Self, leave: impl FnOnce()) -> bool {
        // SAFETY: guaranteed by the caller. What follows uses it before `leave` is called.
        let state = unsafe { &(*this).state };
        // Relaxed: `park` checks it again, ordered by the lock of its queue.
        let now = state.load(Relaxed);
        let is_held = |state: u8| state & LOCKED != 0;
        // Relaxed: as above.
        if !is_held(now) || state.compare_exchange(now, now | AWAITED, Relaxed, Relaxed).is_err() {
            return false;
        }
        #[cfg(debug_assertions)]
        // SAFETY: as above.
        unsafe { &*this }.warn_of_deadlock();
        let key = this.addr();
        // SAFETY: no other code parks at this address: it is that of an entry, and whoever slept
        // at one that was here before was woken when that one was removed.
        let is_mine = unsafe {
            let is_locked = || {
                // Relaxed: ordered by the lock of the queue, which `unlock_and_wake` holds.
                let now = state.load(Relaxed);
                is_held(now) && now & AWAITED != 0
            };
            park_then(key, is_locked, leave)
        };
        if is_mine {
            // SAFETY: what is locked is in the map.
            unsafe { &*this }.set_holder();
        }
        is_mine
    }

    /// Unlocks it.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and there is a value. It uses neither afterwards.
    #[inline(always)]
    pub(super) unsafe fn unlock(this: *const Self) {
        // SAFETY: the value is in the map as long as it is locked.
        // Release: pairs with the Acquire in `try_lock`.
        if unsafe { (*this).state.compare_exchange(LOCKED, 0, Release, Relaxed) }.is_err() {
            // SAFETY: guaranteed by the caller.
            unsafe { Self::unlock_and_wake(this) };
        }
    }

    /// # Safety
    ///
    /// As for [`Lockable::unlock`].
    #[cold]
    unsafe fn unlock_and_wake(this: *const Self) {
        // SAFETY: no other code parks at this address; the store is the last use of the value.
        unsafe {
            unpark_one(this.addr(), |woken| {
                let lock = if woken.in_turn { LOCKED } else { 0 };
                let awaited = if woken.more { AWAITED } else { 0 };
                // Release: as in `unlock`. (A thread that gets the lock handed over has been woken
                // after that.) A store would do; loom would let others exchange what is before it.
                (*this).state.swap(lock | awaited, Release);
                woken.in_turn
            });
        }
    }

    /// Puts a value into its place, and keeps the lock.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and there is no value.
    pub(super) unsafe fn fill(&self, value: V) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.value.with_mut(|place| (*place).write(value)) };
        // Relaxed: the lock orders uses of the value.
        self.state.fetch_and(!VACANT, Relaxed);
        // Makes it a full barrier, like that of a table's update (B3), for `has_value`.
        fence_after_exchange();
    }

    /// Marks it as removed, and wakes those who wait. Moves out the value.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, there is a value, and a table no longer leads to it. The caller
    /// is in a read section that protects it.
    pub(super) unsafe fn take(&self) -> V {
        // SAFETY: guaranteed by the caller.
        let value = unsafe { self.value.with(|place| (*place).assume_init_read()) };
        self.close();
        value
    }

    /// Marks it as removed, and wakes those who wait.
    pub(super) fn close(&self) {
        // AcqRel: threads that do not get the lock see nothing but the state.
        if self.state.swap(REMOVED, AcqRel) & AWAITED != 0 {
            unpark_all(std::ptr::from_ref(self).addr());
        }
    }

    /// Returns the value, which is used only while the lock is held.
    #[inline(always)]
    pub(super) fn get(&self) -> *mut V {
        self.value.with_mut(|place| place.cast())
    }

    /// Moves the value out, if there is one.
    pub(super) fn into_value(self) -> Option<V> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: it is owned, and not dropped.
        this.has_value().then(|| unsafe { this.value.with(|place| (*place).assume_init_read()) })
    }

    #[inline(always)]
    fn set_holder(&self) {
        // Relaxed: read only to warn.
        #[cfg(debug_assertions)]
        self.holder.store(this_thread(), Relaxed);
    }

    /// Tells a developer of a thread that waits for itself.
    #[cfg(debug_assertions)]
    fn warn_of_deadlock(&self) {
        // Relaxed: as above.
        if self.holder.load(Relaxed) == this_thread() {
            eprintln!(
                "relativist::LockMap: thread '{}' waits for an entry that it has locked itself. Unless it has given the \
                 guard to another thread, it waits for ever. It waits here:\n{}",
                std::thread::current().name().unwrap_or("<unnamed>"),
                std::backtrace::Backtrace::force_capture()
            );
        }
    }
}

/// Returns a number that no other thread has that runs.
#[cfg(debug_assertions)]
fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

impl<V> Drop for Lockable<V> {
    fn drop(&mut self) {
        if self.has_value() {
            // SAFETY: there is a value, and no other code uses it: the entry is in no map.
            unsafe { self.value.with_mut(|place| (*place).assume_init_drop()) };
        }
    }
}

#[cfg(all(test, relativist_loom))]
mod loom_tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    type Shared = Lockable<UnsafeCell<u64>>;

    /// Adds 1 under the lock, this many times.
    fn add(shared: &Shared, times: usize) {
        for _ in 0..times {
            loop {
                let is_locked = match shared.try_lock() {
                    Attempt::Locked => true,
                    // SAFETY: the caller shares it.
                    Attempt::Busy => unsafe { Lockable::sleep(shared, || ()) },
                    Attempt::Removed => unreachable!("nobody removes it"),
                };
                if is_locked {
                    break;
                }
            }
            // SAFETY: the lock is held.
            unsafe {
                (*shared.get()).with_mut(|value| *value += 1);
                Lockable::unlock(shared);
            }
        }
    }

    /// One of several threads that sleep is woken, the next one later, and none is left behind.
    #[test]
    fn three_threads() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let shared: Arc<Shared> = Arc::new(Lockable::new(UnsafeCell::new(0)));
            let spawn = |times| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || add(&shared, times))
            };
            let threads = [spawn(1), spawn(2)];
            add(&shared, 1);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(shared.state.load(Acquire), 0, "it is unlocked, and nobody waits");
            // SAFETY: no other thread uses it.
            assert_eq!(unsafe { (*shared.get()).with(|value| *value) }, 4);
        });
    }
}
