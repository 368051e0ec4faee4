//! The only source of atomics, so that loom can replace them (`--cfg relativist_loom`), or shuttle
//! (`--cfg relativist_loom --cfg relativist_shuttle`: code that is left out under loom is left out
//! under shuttle, too).

#[cfg(not(relativist_loom))]
pub(crate) use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicPtr, AtomicU64 as AtomicBits},
    },
    thread::yield_now,
};

#[cfg(all(relativist_loom, not(relativist_shuttle)))]
pub(crate) use {
    loom::cell::UnsafeCell,
    loom::sync::{Mutex, MutexGuard},
    loom::thread::yield_now,
    tracked::{AtomicBits, AtomicPtr},
};

#[cfg(relativist_shuttle)]
pub(crate) use shuttle::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicPtr, AtomicU64 as AtomicBits},
    },
    thread::yield_now,
};

// Loom need not explore statistics and counters. Where one orders something, as the count of a
// cache's loads does, a litmus test covers it.
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicPtr as UntrackedPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// [`std::cell::UnsafeCell`] with the interface of loom's, which fails models with a data race.
#[cfg(any(not(relativist_loom), relativist_shuttle))]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(any(not(relativist_loom), relativist_shuttle))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Makes an exchange before it a full barrier. On x86-64 the exchange is one already.
#[inline(always)]
#[cfg_attr(relativist_loom, allow(dead_code, reason = "models of the whole table wait without sleeping"))]
pub(crate) fn fence_after_exchange() {
    // litmus: update-then-lookup, update-then-lookup-grown, flat-update-then-lookup
    // litmus: insert-then-lookup, flight-begun
    #[cfg(not(any(target_arch = "x86_64", relativist_loom)))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    // The exchange orders accesses in the processor. This keeps the compiler from moving later
    // loads before it.
    #[cfg(all(target_arch = "x86_64", not(relativist_loom)))]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(all(relativist_loom, not(relativist_shuttle)))]
    loom::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Prevents the processor from executing later loads before earlier stores. (Shuttle does not
/// reorder.)
#[inline(always)]
pub(crate) fn full_fence() {
    // litmus: sleep, unlink-then-lookup, flight-begun
    #[cfg(not(relativist_loom))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(all(relativist_loom, not(relativist_shuttle)))]
    loom::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Lets threads sleep until another thread unlocks something at an address.
#[cfg(not(relativist_loom))]
pub(crate) mod parking {
    pub(crate) use std::sync::atomic::AtomicUsize as AtomicCount;

    use parking_lot_core::{DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN};

    /// Sleeps at `key`, an address that no other code parks at, unless `is_locked` returns false.
    /// `is_locked` must neither panic nor park.
    pub(crate) fn park(key: usize, is_locked: impl Fn() -> bool) {
        // SAFETY: guaranteed by the callers; the other callbacks do nothing.
        unsafe { parking_lot_core::park(key, is_locked, || {}, |_, _| {}, DEFAULT_PARK_TOKEN, None) };
    }

    /// Wakes all threads that sleep at `key`.
    #[cold]
    pub(crate) fn unpark_all(key: usize) {
        // SAFETY: an address that no other code parks at.
        unsafe { parking_lot_core::unpark_all(key, DEFAULT_UNPARK_TOKEN) };
    }
}

/// The replacement for models, with one queue for all addresses.
#[cfg(all(test, relativist_loom, not(relativist_shuttle)))]
pub(crate) mod parking {
    pub(crate) use loom::sync::atomic::AtomicUsize as AtomicCount;
    use loom::sync::{Condvar, Mutex};

    loom::lazy_static! {
        static ref QUEUE: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    pub(crate) fn park(_: usize, is_locked: impl Fn() -> bool) {
        let queue = QUEUE.0.lock().unwrap();
        if is_locked() {
            drop(QUEUE.1.wait(queue).unwrap());
        }
    }

    pub(crate) fn unpark_all(_: usize) {
        let _queue = QUEUE.0.lock().unwrap();
        QUEUE.1.notify_all();
    }
}

/// Thread-local variables that are initialised at compile time and need no destructor, so that
/// reading one costs a load.
macro_rules! local {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(relativist_loom))]
        std::thread_local!($(#[$meta])* static $name: $type = const { $value });

        #[cfg(all(relativist_loom, not(relativist_shuttle)))]
        loom::thread_local!($(#[$meta])* static $name: $type = $value);

        #[cfg(relativist_shuttle)]
        shuttle::thread_local!($(#[$meta])* static $name: $type = $value);
    };
}

pub(crate) use local;

#[cfg(all(relativist_loom, not(relativist_shuttle)))]
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
    pub(crate) struct Tracked<A: Exclusive>(A);

    pub(crate) type AtomicPtr<T> = Tracked<loom::sync::atomic::AtomicPtr<T>>;
    pub(crate) type AtomicBits = Tracked<loom::sync::atomic::AtomicU64>;

    impl<T> AtomicPtr<T> {
        pub(crate) fn new(pointer: *mut T) -> Self {
            Self(loom::sync::atomic::AtomicPtr::new(pointer))
        }
    }

    impl AtomicBits {
        pub(crate) fn new(bits: u64) -> Self {
            Self(loom::sync::atomic::AtomicU64::new(bits))
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
    pub(crate) trait Exclusive {
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
}
