//! The only source of atomics, cells and threads, so that loom can replace them
//! (`--cfg relativist_loom`), or shuttle (`--cfg relativist_loom --cfg relativist_shuttle`: code
//! that is left out under loom is left out under shuttle, too).

#[cfg(not(relativist_loom))]
pub(crate) use std::{
    cell::Cell,
    sync::atomic::{self, compiler_fence},
    thread::yield_now,
};

/// Statistics order nothing, so loom needn't explore them.
#[cfg(feature = "contention")]
pub(crate) use std::sync::atomic as statistics;

/// Shuttle runs one thread at a time, with sequentially consistent memory, so plain cells suffice.
#[cfg(relativist_shuttle)]
pub(crate) use {
    shuttle::sync::atomic::{self, compiler_fence},
    shuttle::thread::yield_now,
    std::cell::Cell,
};

/// Loom's cells detect accesses that are not ordered.
#[cfg(all(relativist_loom, not(relativist_shuttle)))]
pub(crate) use loom::{
    cell::{Cell, UnsafeCell},
    sync::atomic,
    thread::yield_now,
};

/// Does nothing: loom explores all orders that the memory model allows, so it needs no compiler
/// fence.
#[cfg(all(relativist_loom, not(relativist_shuttle)))]
pub(crate) fn compiler_fence(_: atomic::Ordering) {}

/// [`std::cell::UnsafeCell`] with the interface of loom's, which sees each access begin and end.
#[cfg(any(not(relativist_loom), relativist_shuttle))]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(any(not(relativist_loom), relativist_shuttle))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// A `fn` that is `const` except under loom, whose atomics can't be made at compile time.
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
macro_rules! local {
    ($($(#[$meta:meta])* static $name:ident: $type:ty = $value:expr;)*) => {
        #[cfg(not(relativist_loom))]
        std::thread_local! {
            $($(#[$meta])* static $name: $type = const { $value };)*
        }

        #[cfg(all(relativist_loom, not(relativist_shuttle)))]
        loom::thread_local! {
            $($(#[$meta])* static $name: $type = $value;)*
        }

        #[cfg(relativist_shuttle)]
        shuttle::thread_local! {
            $($(#[$meta])* static $name: $type = $value;)*
        }
    };
}

/// `static NAME: Type = value;`, created anew for each execution of a model. Defines
/// `fn name() -> &'static Type`.
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
            #[cfg(relativist_shuttle)]
            use shuttle::lazy_static;
            #[cfg(not(relativist_shuttle))]
            use loom::lazy_static;
            lazy_static! {
                static ref GLOBAL: $type = $value;
            }
            &GLOBAL
        }
    };
}

pub(crate) use {const_fn, global, local};

/// Waits for another thread: first spins, then yields the processor, then sleeps up to a
/// millisecond.
///
/// Readers never wake other threads, which would slow them down. So a thread that waits for one has
/// to poll.
#[cfg(not(relativist_loom))]
pub(crate) struct Backoff {
    step: u32,
}

#[cfg(not(relativist_loom))]
impl Backoff {
    const SPINS: u32 = 6;
    const YIELDS: u32 = 16;
    const MAX_SLEEP_US: u64 = 1000;

    pub(crate) fn new() -> Self {
        Self { step: 0 }
    }

    pub(crate) fn wait(&mut self) {
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
pub(crate) struct Backoff;

#[cfg(relativist_loom)]
impl Backoff {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn wait(&mut self) {
        yield_now();
    }
}
