//! The only source of atomics, cells, mutexes and thread-local variables, so that loom can replace
//! them (`--cfg relativist_loom`).

/// Statistics order nothing, so loom need not explore them.
pub use std::sync::atomic as statistics;
use std::sync::atomic::Ordering::SeqCst;
pub use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
// Loom need not explore counters either. Where one orders something, as the count of a
// cache's loads does, a litmus test covers it.
pub use std::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicPtr as UntrackedPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
};

#[cfg(relativist_loom)]
#[doc(hidden)]
pub use loom;
#[cfg(all(not(relativist_loom), relativist_sanitizer = "thread"))]
pub use sanitized::AtomicByte;
#[cfg(all(not(relativist_loom), not(relativist_sanitizer = "thread")))]
pub use std::sync::atomic::AtomicU8 as AtomicByte;
#[cfg(relativist_loom)]
pub use {
    loom::cell::{Cell, UnsafeCell},
    loom::sync::{Mutex, MutexGuard, atomic},
    loom::thread::yield_now,
    tracked::{AtomicBits, AtomicByte, AtomicPtr},
};
#[cfg(not(relativist_loom))]
pub use {
    std::cell::Cell,
    std::sync::atomic::{self, AtomicPtr, AtomicU64 as AtomicBits, compiler_fence},
    std::sync::{Mutex, MutexGuard},
    std::thread::yield_now,
};

/// Does nothing: loom explores all orders that the memory model allows, so it needs no compiler
/// fence.
#[cfg(relativist_loom)]
pub fn compiler_fence(_: atomic::Ordering) {}

/// [`std::cell::UnsafeCell`] with the interface of loom's, which fails models with a data race.
#[cfg(not(relativist_loom))]
#[repr(transparent)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(relativist_loom))]
impl<T> UnsafeCell<T> {
    /// Creates a cell.
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls a function with a pointer for reading.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Calls a function with a pointer for writing.
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Makes an exchange before it a full barrier. On x86-64 the exchange is one already.
#[inline(always)]
pub fn fence_after_exchange() {
    // litmus: update-then-lookup, update-then-lookup-grown, bucket-update-then-lookup
    #[cfg(any(not(target_arch = "x86_64"), relativist_loom))]
    atomic::fence(SeqCst);
    // The exchange orders accesses in the processor. This keeps the compiler from moving later
    // loads before it.
    #[cfg(all(target_arch = "x86_64", not(relativist_loom)))]
    compiler_fence(SeqCst);
}

/// Prevents the processor from executing later loads before earlier stores.
#[inline(always)]
pub fn full_fence() {
    // litmus: sleep, bucket-wake
    atomic::fence(SeqCst);
}

/// Lets threads sleep until another thread unlocks something at an address.
#[cfg(not(relativist_loom))]
pub mod parking {
    pub(crate) use std::sync::atomic::AtomicUsize as AtomicCount;

    pub use parking_lot_core::SpinWait;
    use parking_lot_core::{DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, ParkResult, UnparkToken};

    use super::{Slept, Woken};

    /// Not one of those of the crate `parking_lot`.
    const HANDED_OVER: UnparkToken = UnparkToken(0x0E17);

    /// Sleeps at `key`, an address that no other code parks at, unless `is_locked` returns false.
    /// `is_locked` must neither panic nor park.
    pub(crate) fn park(key: usize, is_locked: impl Fn() -> bool) {
        // SAFETY: guaranteed by the callers, also for the callback that does nothing.
        unsafe { park_then(key, is_locked, || {}) };
    }

    /// Sleeps at `key`, unless `is_locked` returns false. Calls `before_sleep` when a thread that
    /// unlocks would wake this one.
    ///
    /// # Safety
    ///
    /// No other code parks at this key. Neither function panics or parks.
    pub unsafe fn park_then(key: usize, is_locked: impl FnOnce() -> bool, before_sleep: impl FnOnce()) -> Slept {
        // SAFETY: guaranteed by the caller; the other callback does nothing.
        match unsafe { parking_lot_core::park(key, is_locked, before_sleep, |_, _| {}, DEFAULT_PARK_TOKEN, None) } {
            ParkResult::Unparked(HANDED_OVER) => Slept::AndGotTheLock,
            ParkResult::Unparked(_) => Slept::AndWasWoken,
            _ => Slept::Not,
        }
    }

    /// Wakes one of the threads that sleep at `key`. Before it runs, and before any thread goes to
    /// sleep there, calls `unlock`, which returns whether the thread gets something handed over.
    ///
    /// # Safety
    ///
    /// No other code parks at this key. `unlock` neither panics nor parks.
    pub unsafe fn unpark_one(key: usize, unlock: impl FnOnce(Woken) -> bool) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            parking_lot_core::unpark_one(key, |result| {
                let one = result.unparked_threads > 0;
                let woken = Woken { one, more: result.have_more_threads, in_turn: one && result.be_fair };
                if unlock(woken) { HANDED_OVER } else { DEFAULT_UNPARK_TOKEN }
            })
        };
    }

    /// Wakes all threads that sleep at `key`, and returns their number.
    #[cold]
    pub fn unpark_all(key: usize) -> usize {
        // SAFETY: an address that no other code parks at.
        unsafe { parking_lot_core::unpark_all(key, DEFAULT_UNPARK_TOKEN) }
    }
}

/// Whether a thread has slept, and what it got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slept {
    /// It was unlocked.
    Not,
    /// It was woken, and others may be waiting for what it does.
    AndWasWoken,
    /// What it waited for was handed over.
    AndGotTheLock,
}

/// What a thread learns that wakes one of those that sleep.
#[derive(Debug, Clone, Copy)]
pub struct Woken {
    /// Whether a thread wakes.
    pub one: bool,
    /// Whether others go on sleeping.
    pub more: bool,
    /// Whether the one that wakes has waited for so long that it should get the lock.
    pub in_turn: bool,
}

/// The replacement for models. Every other thread that sleeps is woken as one whose turn it is.
#[cfg(relativist_loom)]
pub mod parking {
    #[cfg(test)]
    pub(crate) use loom::sync::atomic::AtomicUsize as AtomicCount;
    use loom::sync::{Condvar, Mutex, MutexGuard};

    use super::{Slept, Woken};

    #[derive(Default)]
    struct Queue {
        threads: usize,
        /// The key and the number of each thread that sleeps.
        sleeping: Vec<(usize, usize)>,
        /// The number of each thread that was woken, and whether it gets something.
        woken: Vec<(usize, bool)>,
    }

    loom::lazy_static! {
        static ref QUEUE: (Mutex<Queue>, Condvar) = (Mutex::new(Queue::default()), Condvar::new());
    }

    fn lock() -> MutexGuard<'static, Queue> {
        QUEUE.0.lock().unwrap()
    }

    /// Never spins.
    #[derive(Default)]
    pub struct SpinWait;

    impl SpinWait {
        /// Creates one.
        pub fn new() -> Self {
            Self
        }

        /// Returns false: the thread should sleep.
        pub fn spin(&mut self) -> bool {
            false
        }
    }

    #[cfg(test)]
    pub(crate) fn park(key: usize, is_locked: impl Fn() -> bool) {
        // SAFETY: as for the original.
        unsafe { park_then(key, is_locked, || {}) };
    }

    /// As the original.
    ///
    /// # Safety
    ///
    /// As for the original.
    pub unsafe fn park_then(key: usize, is_locked: impl FnOnce() -> bool, before_sleep: impl FnOnce()) -> Slept {
        let mut queue = lock();
        if !is_locked() {
            return Slept::Not;
        }
        let thread = queue.threads;
        queue.threads += 1;
        queue.sleeping.push((key, thread));
        drop(queue);
        before_sleep();
        let mut queue = lock();
        loop {
            if let Some(woken) = queue.woken.iter().position(|&(woken, _)| woken == thread) {
                let (_, gets) = queue.woken.swap_remove(woken);
                return if gets { Slept::AndGotTheLock } else { Slept::AndWasWoken };
            }
            queue = QUEUE.1.wait(queue).unwrap();
        }
    }

    /// As the original.
    ///
    /// # Safety
    ///
    /// As for the original.
    pub unsafe fn unpark_one(key: usize, unlock: impl FnOnce(Woken) -> bool) {
        let mut queue = lock();
        let found = queue.sleeping.iter().position(|&(other, _)| other == key);
        let thread = found.map(|index| queue.sleeping.remove(index).1);
        let (one, more) = (thread.is_some(), queue.sleeping.iter().any(|&(other, _)| other == key));
        let in_turn = thread.is_some_and(|thread| thread % 2 == 1);
        let gets = unlock(Woken { one, more, in_turn });
        queue.woken.extend(thread.map(|thread| (thread, gets)));
        QUEUE.1.notify_all();
    }

    /// As the original.
    pub fn unpark_all(key: usize) -> usize {
        let mut queue = lock();
        let sleeping = std::mem::take(&mut queue.sleeping);
        let (woken, rest) = sleeping.into_iter().partition(|&(other, _)| other == key);
        queue.sleeping = rest;
        let woken: Vec<(usize, usize)> = woken;
        queue.woken.extend(woken.iter().map(|&(_, thread)| (thread, false)));
        QUEUE.1.notify_all();
        woken.len()
    }
}

/// A `fn` that is `const` except under loom, whose atomics can't be made at compile time.
#[macro_export]
#[doc(hidden)]
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => {
        #[cfg(not(relativist_loom))]
        $(#[$meta])*
        $vis const fn $($rest)*

        #[cfg(relativist_loom)]
        $(#[$meta])*
        $vis fn $($rest)*
    };
}

/// Thread-local variables that are initialised at compile time, so that reading one that has no
/// destructor costs a load.
#[macro_export]
#[doc(hidden)]
macro_rules! local {
    ($($(#[$meta:meta])* static $name:ident: $type:ty = $value:expr;)*) => {
        #[cfg(not(relativist_loom))]
        ::std::thread_local! {
            $($(#[$meta])* static $name: $type = const { $value };)*
        }

        #[cfg(relativist_loom)]
        $crate::sync::loom::thread_local! {
            $($(#[$meta])* static $name: $type = $value;)*
        }
    };
}

/// `static NAME: Type = value;`, created anew for each execution of a model. Defines
/// `fn name() -> &'static Type`.
#[macro_export]
#[doc(hidden)]
macro_rules! global {
    ($(#[$meta:meta])* fn $name:ident() -> $type:ty = $value:expr;) => {
        $(#[$meta])*
        #[cfg(not(relativist_loom))]
        #[inline(always)]
        pub(crate) const fn $name() -> &'static $type {
            static GLOBAL: $type = $value;
            &GLOBAL
        }

        $(#[$meta])*
        #[cfg(relativist_loom)]
        pub(crate) fn $name() -> &'static $type {
            $crate::sync::loom::lazy_static! {
                static ref GLOBAL: $type = $value;
            }
            &GLOBAL
        }
    };
}

pub use {const_fn, global, local};

/// Waits for another thread: first spins, then yields the processor, then sleeps up to a
/// millisecond.
///
/// Readers never wake other threads, which would slow them down. So a thread that waits for one has
/// to poll.
#[cfg(not(relativist_loom))]
#[derive(Default)]
pub struct Backoff {
    step: u32,
}

#[cfg(not(relativist_loom))]
impl Backoff {
    const SPINS: u32 = 6;
    const YIELDS: u32 = 16;
    const MAX_SLEEP_US: u64 = 1000;

    /// Creates one that has not waited yet.
    pub fn new() -> Self {
        Self { step: 0 }
    }

    /// Waits for longer with each call.
    pub fn wait(&mut self) {
        if self.step < Self::SPINS {
            (0..1 << self.step).for_each(|_| std::hint::spin_loop());
        } else if self.step < Self::YIELDS {
            yield_now();
        } else {
            let sleep = (20u64 << (self.step - Self::YIELDS).min(6)).min(Self::MAX_SLEEP_US);
            std::thread::sleep(std::time::Duration::from_micros(sleep));
        }
        self.step = self.step.saturating_add(1);
    }
}

/// Models have no time, so this lets another thread run.
#[cfg(relativist_loom)]
pub struct Backoff;

#[cfg(relativist_loom)]
impl Backoff {
    /// Creates one.
    pub fn new() -> Self {
        Self
    }

    /// Lets another thread run.
    pub fn wait(&mut self) {
        yield_now();
    }
}

/// What ThreadSanitizer would misunderstand.
#[cfg(all(not(relativist_loom), relativist_sanitizer = "thread"))]
mod sanitized {
    use std::arch::asm;
    use std::sync::atomic::{AtomicU8, Ordering};

    /// An atomic byte whose failed exchanges are loads, as they are in Rust. ThreadSanitizer takes
    /// them for writes, which would race with a thread that copies the byte, after it has changed
    /// it so that exchanges fail.
    pub struct AtomicByte(AtomicU8);

    impl AtomicByte {
        /// Creates one.
        pub fn new(byte: u8) -> Self {
            Self(AtomicU8::new(byte))
        }

        /// As that of [`AtomicU8`].
        ///
        /// # Errors
        ///
        /// Returns the value, if it is another one.
        pub fn compare_exchange(&self, current: u8, new: u8, ok: Ordering, err: Ordering) -> Result<u8, u8> {
            let found: u8;
            // SAFETY: the instruction is an exchange. The sanitizer does not see it.
            unsafe {
                asm!(
                    "lock cmpxchg byte ptr [{byte}], {new}",
                    byte = in(reg) self.0.as_ptr(),
                    new = in(reg_byte) new,
                    inout("al") current => found,
                    options(nostack),
                );
            }
            // It sees this load, and so what happened before.
            self.0.load(if found == current { ok } else { err });
            if found == current { Ok(found) } else { Err(found) }
        }
    }

    impl std::ops::Deref for AtomicByte {
        type Target = AtomicU8;

        fn deref(&self) -> &AtomicU8 {
            &self.0
        }
    }
}

#[cfg(relativist_loom)]
mod tracked {
    use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    loom::lazy_static! {
        static ref ACCESSES: AtomicUsize = AtomicUsize::new(0);
    }

    /// Loom's atomic, with two differences.
    ///
    /// First, each access conflicts with every other. Loom only tries orders of accesses that can
    /// make a difference. It assumes that the order of a load and a later exchange by another
    /// thread makes none, if that other thread has itself loaded in between, as each lock here
    /// does.
    ///
    /// Second, dropping it fails the model unless all accesses happened before, because links and
    /// heads may be reclaimed only when all readers have left.
    #[derive(Debug)]
    pub struct Tracked<A: Exclusive>(A);

    /// Loom's `AtomicPtr`, tracked.
    pub type AtomicPtr<T> = Tracked<loom::sync::atomic::AtomicPtr<T>>;
    /// Loom's `AtomicU64`, tracked.
    pub type AtomicBits = Tracked<loom::sync::atomic::AtomicU64>;
    /// Loom's `AtomicU8`, tracked.
    pub type AtomicByte = Tracked<loom::sync::atomic::AtomicU8>;

    impl<T> AtomicPtr<T> {
        /// Creates one.
        pub fn new(pointer: *mut T) -> Self {
            Self(loom::sync::atomic::AtomicPtr::new(pointer))
        }
    }

    impl AtomicBits {
        /// Creates one.
        pub fn new(bits: u64) -> Self {
            Self(loom::sync::atomic::AtomicU64::new(bits))
        }
    }

    impl AtomicByte {
        /// Creates one.
        pub fn new(byte: u8) -> Self {
            Self(loom::sync::atomic::AtomicU8::new(byte))
        }
    }

    impl<A: Exclusive> std::ops::Deref for Tracked<A> {
        type Target = A;

        fn deref(&self) -> &A {
            // Relaxed: conflicts, but orders nothing.
            ACCESSES.fetch_add(1, Relaxed);
            &self.0
        }
    }

    impl<A: Exclusive> Drop for Tracked<A> {
        fn drop(&mut self) {
            self.0.check();
        }
    }

    /// An object for which a model can check that no other thread uses it.
    pub trait Exclusive {
        /// Fails the model unless all accesses happened before.
        fn check(&mut self);
    }

    impl<T> Exclusive for loom::sync::atomic::AtomicPtr<T> {
        fn check(&mut self) {
            self.with_mut(|_| ());
        }
    }

    impl Exclusive for loom::sync::atomic::AtomicU64 {
        fn check(&mut self) {
            self.with_mut(|_| ());
        }
    }

    impl Exclusive for loom::sync::atomic::AtomicU8 {
        fn check(&mut self) {
            self.with_mut(|_| ());
        }
    }
}
