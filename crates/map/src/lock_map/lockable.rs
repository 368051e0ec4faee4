//! A value with a lock of one byte, which a thread that waits for it does not keep from being
//! freed.
//!
//! The lock is that of the crate `parking_lot`, with three differences. A value may be *removed*:
//! then its lock cannot be taken any more. A thread leaves its read section before it sleeps. When
//! it wakes, the value may be gone. So it looks the key up again, unless it got the lock handed
//! over: what is locked is in the map. And unlocking takes a plain store, because threads that
//! sleep are counted elsewhere.

use std::mem::MaybeUninit;

#[cfg(debug_assertions)]
use relativist_core::sync::AtomicUsize;
use relativist_core::sync::atomic::AtomicUsize as Count;
use relativist_core::sync::parking::{park_then, unpark_all, unpark_one};
use relativist_core::sync::{
    Acquire, AtomicByte, AtomicU64, Cell, Relaxed, Release, Slept, UnsafeCell, fence_after_exchange, global, local,
};
use relativist_rcu::{heavy_barrier, light_barrier};

/// A value, its lock, and whether it is there.
pub struct Lockable<V> {
    state: AtomicByte,
    /// The identity of the entry, which it keeps when it moves.
    id: Id,
    /// The thread that has locked it last.
    #[cfg(debug_assertions)]
    holder: AtomicUsize,
    value: UnsafeCell<MaybeUninit<V>>,
}

/// The number of an entry: as many bytes as alignment mostly leaves beside the state.
pub(super) type Id = [u8; 7];

/// A thread holds the lock.
const LOCKED: u8 = 1;
/// There is no value yet. It is locked.
const VACANT: u8 = 2;
/// The entry was removed from the map, and there is no value any more.
const REMOVED: u8 = 4;
/// A resize moves the entry, or has moved it: it is, or will be, at another address.
const MOVED: u8 = 8;

/// The number of threads that sleep, or are about to sleep, at some of the addresses.
#[repr(align(64))]
struct Sleeping(Count);

const COUNTS: usize = if cfg!(relativist_loom) { 1 } else { 64 };

impl Sleeping {
    relativist_core::sync::const_fn! {
        fn new() -> Self {
            Self(Count::new(0))
        }
    }
}

#[cfg(not(relativist_loom))]
global! {
    /// Locks share these, so that a thread that sleeps costs few of the others.
    fn counts() -> [Sleeping; COUNTS] = [const { Sleeping::new() }; COUNTS];
}

#[cfg(relativist_loom)]
global! {
    fn counts() -> [Sleeping; COUNTS] = [Sleeping::new()];
}

#[inline(always)]
fn sleeping(key: usize) -> &'static Count {
    // Most entries are at least 32 bytes apart.
    &counts()[(key >> 5) % COUNTS].0
}

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
    /// The entry is to be looked up again.
    Moved,
}

impl<V> Lockable<V> {
    fn with(state: u8, value: MaybeUninit<V>) -> Self {
        Self {
            state: AtomicByte::new(state),
            id: new_id(),
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
        // Acquire: pairs with the Release in `unlock`: the value is seen as it was left.
        // litmus: lock-value
        match self.state.compare_exchange(0, LOCKED, Acquire, Relaxed) {
            Ok(_) => {
                self.set_holder();
                Attempt::Locked
            }
            Err(REMOVED) => Attempt::Removed,
            Err(MOVED) => Attempt::Moved,
            Err(_) => Attempt::Busy,
        }
    }

    /// Sleeps while another thread holds the lock. Calls `leave` before, which leaves the read
    /// section. If it returns `Ok`, the caller holds the lock, and the value is in the map.
    /// Otherwise it may be gone.
    ///
    /// # Safety
    ///
    /// The value is protected until `leave` is called, which neither panics nor parks.
    #[cold]
    pub(super) unsafe fn sleep(this: *const Self, leave: impl FnOnce()) -> Result<(), WakeNext> {
        #[cfg(debug_assertions)]
        // SAFETY: guaranteed by the caller.
        unsafe { &*this }.warn_of_deadlock();
        let key = Self::key(this);
        let sleeping = sleeping(key);
        // Relaxed: ordered by the barrier.
        sleeping.fetch_add(1, Relaxed);
        // Pairs with the light barrier in `unlock`: either that thread sees the new number, or this
        // one sees that it is unlocked.
        heavy_barrier();
        // SAFETY: no other code parks at this key, and whoever slept at an entry that was here
        // before was woken when that one was removed or moved. The value is used before `leave` is
        // called.
        let slept = unsafe {
            // Relaxed: ordered by the barrier, and by the lock of the queue.
            park_then(key, || (*this).state.load(Relaxed) & LOCKED != 0, leave)
        };
        if slept == Slept::Not {
            count_woken(key, 1);
        }
        match slept {
            Slept::AndGotTheLock => {
                // SAFETY: what is locked is in the map.
                unsafe { &*this }.set_holder();
                Ok(())
            }
            Slept::AndWasWoken => Err(WakeNext(Some(key))),
            Slept::Not => Err(WakeNext(None)),
        }
    }

    /// Returns the key at which threads sleep. It is not the address of an object, because the
    /// value may be a lock that lets threads sleep at its own address.
    #[inline(always)]
    fn key(this: *const Self) -> usize {
        !this.addr()
    }

    /// Returns whether a thread that was woken sleeps at this one.
    pub(super) fn is_passed(&self, next: &WakeNext) -> bool {
        next.0 == Some(Self::key(self))
    }

    /// Unlocks it.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and there is a value. It uses neither afterwards.
    #[inline(always)]
    pub(super) unsafe fn unlock(this: *const Self) {
        let key = Self::key(this);
        let is_awaited = || sleeping(key).load(Relaxed) != 0;
        // SAFETY: guaranteed by the caller.
        unsafe { &*this }.clear_holder();
        // Relaxed: whoever is not seen here is seen below.
        if is_awaited() {
            // SAFETY: guaranteed by the caller.
            return unsafe { Self::hand_over(this) };
        }
        // SAFETY: the value is in the map as long as it is locked.
        // Release: pairs with the Acquire in `try_lock`.
        // litmus: lock-value
        unsafe { (*this).state.store(0, Release) };
        light_barrier();
        // Relaxed: ordered by the barrier, which pairs with the heavy one in `sleep`.
        if is_awaited() {
            wake_one(key);
        }
    }

    /// Unlocks it, or hands the lock over to a thread that has slept for long.
    ///
    /// # Safety
    ///
    /// As for [`Lockable::unlock`].
    #[cold]
    unsafe fn hand_over(this: *const Self) {
        // SAFETY: no other code parks at this key; the store is the last use of the value.
        unsafe {
            unpark_one(Self::key(this), |woken| {
                count_woken(Self::key(this), usize::from(woken.one));
                if !woken.in_turn {
                    // Release: as in `unlock`. Whoever goes to sleep later sees it, because it
                    // takes the lock of the queue.
                    // litmus: lock-value
                    (*this).state.store(0, Release);
                }
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
        self.state.swap(LOCKED, Relaxed);
        // Makes it a full barrier, like that of a table's update (B3), for `has_value`.
        fence_after_exchange();
    }

    /// Takes the value out, and keeps the lock.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and there is a value.
    pub(super) unsafe fn vacate(&self) -> V {
        // SAFETY: guaranteed by the caller.
        let value = unsafe { self.value.with(|place| (*place).assume_init_read()) };
        // Relaxed: the lock orders uses of the value. The update of the table that follows makes
        // it visible, before the caller returns.
        self.state.store(LOCKED | VACANT, Relaxed);
        value
    }

    /// Returns the number of the entry.
    pub(super) fn id(&self) -> Id {
        self.id
    }

    /// Marks it as removed, and wakes those who wait. The caller holds the lock.
    pub(super) fn close(&self) {
        // Relaxed: threads that do not get the lock see nothing but the state.
        self.state.swap(REMOVED, Relaxed);
        self.wake_all();
    }

    /// Wakes those who wait, after an exchange that has closed it: nobody sleeps here when the
    /// memory is used for another entry.
    fn wake_all(&self) {
        let key = Self::key(self);
        // Makes the exchange a full barrier, which pairs with the heavy one in `sleep`.
        fence_after_exchange();
        // Relaxed: ordered by the barrier.
        if sleeping(key).load(Relaxed) != 0 {
            count_woken(key, unpark_all(key));
        }
    }

    /// Marks it as moved, and wakes those who wait. Returns false if it is locked.
    pub(super) fn close_to_move(&self) -> bool {
        // Acquire: pairs with the Release in `unlock`: the value is copied as it was left.
        // litmus: lock-value
        let is_closed = self.state.compare_exchange(0, MOVED, Acquire, Relaxed).is_ok();
        if is_closed {
            self.wake_all();
        }
        is_closed
    }

    /// Makes it possible again to lock it, where it is.
    pub(super) fn reopen(&self) {
        // Release: pairs with the Acquire in `try_lock`, which sees what `close_to_move` saw.
        // litmus: lock-value
        self.state.store(0, Release);
    }

    /// Makes it possible to lock the copy of a value that was closed.
    ///
    /// # Safety
    ///
    /// No other thread can find the copy.
    pub(super) unsafe fn open_copy(copy: *mut Self) {
        // Each part is written anew, because models know atomics and cells by their numbers.
        // SAFETY: guaranteed by the caller.
        unsafe {
            (&raw mut (*copy).state).write(AtomicByte::new(0));
            #[cfg(debug_assertions)]
            (&raw mut (*copy).holder).write(AtomicUsize::new(0));
            let value = (*copy).value.with(|place| place.read());
            (&raw mut (*copy).value).write(UnsafeCell::new(value));
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

    /// Called before another thread may get the lock.
    #[inline(always)]
    fn clear_holder(&self) {
        // Relaxed: read only to warn.
        #[cfg(debug_assertions)]
        self.holder.store(0, Relaxed);
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

/// The duty of a thread that was woken, and has not tried to lock yet: it wakes the next one if it
/// gives up, because a comparison of keys panics, or finds another entry or none.
pub(super) struct WakeNext(Option<usize>);

impl WakeNext {
    /// Of a thread that was not woken.
    pub(super) const NOBODY: Self = Self(None);

    /// The thread has tried to lock. Whoever holds the lock will wake the next one.
    #[inline(always)]
    pub(super) fn fulfil(self) {
        std::mem::forget(self);
    }
}

impl Drop for WakeNext {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(key) = self.0 {
            wake_one(key);
        }
    }
}

/// Counts threads that sleep no longer. Whoever wakes them does so: until they run, others unlock
/// without looking for them.
fn count_woken(key: usize, threads: usize) {
    // Relaxed: while the number is too high, threads that unlock look for sleepers needlessly.
    sleeping(key).fetch_sub(threads, Relaxed);
}

/// Wakes one of those that sleep at a key. It finds the lock as it is then.
#[cold]
fn wake_one(key: usize) {
    // SAFETY: no other code parks at this key.
    unsafe {
        unpark_one(key, |woken| {
            count_woken(key, usize::from(woken.one));
            false
        });
    }
}

global! {
    /// The first number that no thread has taken.
    fn next_block() -> AtomicU64 = AtomicU64::new(0);
}

local! {
    /// The next number of this thread, unless it begins a block.
    static NEXT: Cell<u64> = Cell::new(0);
}

/// Returns a number that no other entry has. There are 2^56, more than can be counted.
fn new_id() -> Id {
    /// The numbers that a thread takes at once.
    const BLOCK: u64 = 1 << 10;
    NEXT.with(|next| {
        let mut id = next.get();
        if id % BLOCK == 0 {
            // Relaxed: a counter.
            id = next_block().fetch_add(BLOCK, Relaxed);
        }
        next.set(id + 1);
        let [bytes @ .., _] = id.to_le_bytes();
        bytes
    })
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
                    Attempt::Busy => unsafe { Lockable::sleep(shared, || ()) }.map_err(WakeNext::fulfil).is_ok(),
                    Attempt::Removed | Attempt::Moved => unreachable!("it stays"),
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
            relativist_rcu::active_barrier();
            let shared: Arc<Shared> = Arc::new(Lockable::new(UnsafeCell::new(0)));
            let spawn = |times| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || add(&shared, times))
            };
            let threads = [spawn(1), spawn(2)];
            add(&shared, 1);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(shared.state.load(Acquire), 0, "it is unlocked");
            // SAFETY: no other thread uses it.
            assert_eq!(unsafe { (*shared.get()).with(|value| *value) }, 4);
        });
    }

    /// Who is woken and gives up wakes the next one. A comparison of keys may have panicked.
    #[test]
    fn one_gives_up() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            relativist_rcu::active_barrier();
            let shared: Arc<Shared> = Arc::new(Lockable::new(UnsafeCell::new(0)));
            assert_eq!(shared.try_lock(), Attempt::Locked);
            let spawn = |run: fn(&Shared)| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || run(&shared))
            };
            let give_up = |shared: &Shared| {
                // SAFETY: the thread shares it.
                if let Ok(()) = unsafe { Lockable::sleep(shared, || ()) } {
                    // SAFETY: the lock was handed over.
                    unsafe { Lockable::unlock(shared) };
                }
            };
            let threads = [spawn(give_up), spawn(|shared| add(shared, 1))];
            // SAFETY: the lock is held.
            unsafe { Lockable::unlock(&*shared) };
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(shared.state.load(Acquire), 0, "it is unlocked");
        });
    }
}
