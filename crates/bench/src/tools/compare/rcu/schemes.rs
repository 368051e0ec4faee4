//! The reclamation schemes, as tables of functions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};
use std::sync::{Arc, LazyLock};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use crossbeam_epoch::{Owned, pin};
use relativist_rcu::{Domain, barrier, defer_drop, read, wait_for_readers};
use seize::{Collector, Guard, reclaim};

/// A reclamation scheme: it lets readers read objects that other threads unlink and free.
#[derive(Debug)]
pub struct Scheme {
    /// Enters and leaves this many sections, one after the other.
    pub sections: fn(u64),
    /// Enters and leaves this many sections inside an outer section.
    pub nested: fn(u64),
    /// Waits until all sections that have begun are over, if the scheme has such a function.
    pub wait: Option<fn()>,
    /// Allocates and retires this many objects, then waits until all of them have been freed. The
    /// counter counts them.
    pub reclaim: fn(u64, Option<&'static AtomicU64>) -> ReclaimTimes,
}

/// The times that [`Scheme::reclaim`] took, from its beginning.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimTimes {
    /// The time until all objects had been retired.
    pub retired: Duration,
    /// The time until all objects had been freed.
    pub freed: Duration,
}

/// Times `retire` alone, and `retire` and `drain` together.
pub fn time_reclaim(retire: impl FnOnce(), drain: impl FnOnce()) -> ReclaimTimes {
    let began = Instant::now();
    retire();
    let retired = began.elapsed();
    drain();
    ReclaimTimes { retired, freed: began.elapsed() }
}

/// The retired object. It has 32 bytes. Schemes that need a header in the object may use sixteen of
/// them.
#[repr(C)]
#[derive(Debug)]
pub struct Object {
    /// The first field, because liburcu's loop in C expects the header there.
    header: [usize; 2],
    content: u64,
    freed: Option<&'static AtomicU64>,
}

impl Object {
    /// Makes an object that counts itself in `freed` when it is dropped.
    pub fn new(content: u64, freed: Option<&'static AtomicU64>) -> Self {
        Self { header: [0; 2], content, freed }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Some(freed) = self.freed {
            // Release: pairs with the load of the counting thread, so that a counted drop has
            // happened.
            freed.fetch_add(1, Ordering::Release);
        }
    }
}

/// Enters and leaves `count` sections. `enter` returns a guard that leaves the section when it is
/// dropped.
///
/// This is inlined into a separate function for each scheme. The fence keeps the compiler from
/// merging adjacent sections.
#[inline(always)]
fn enter_and_leave<G>(count: u64, mut enter: impl FnMut() -> G) {
    for _ in 0..count {
        let guard = enter();
        // SeqCst: stands for the accesses in a section, which the compiler must not move out. It
        // compiles to no instruction.
        compiler_fence(Ordering::SeqCst);
        drop(guard);
    }
}

/// relativist-rcu's domain of the process.
pub const RELATIVIST: Scheme = Scheme {
    sections: |count| enter_and_leave(count, read),
    nested: |count| {
        let _outer = read();
        enter_and_leave(count, read);
    },
    wait: Some(wait_for_readers),
    reclaim: |count, freed| {
        let retire = || (0..count).for_each(|content| defer_drop(Box::new(Object::new(content, freed))));
        time_reclaim(retire, barrier)
    },
};

static DOMAIN: LazyLock<Domain> = LazyLock::new(Domain::new);

/// A private domain of relativist-rcu.
pub const PRIVATE: Scheme = Scheme {
    sections: |count| {
        let domain = &*DOMAIN;
        enter_and_leave(count, || domain.read());
    },
    nested: |count| {
        let domain = &*DOMAIN;
        let _outer = domain.read();
        enter_and_leave(count, || domain.read());
    },
    wait: None,
    reclaim: |count, freed| {
        let domain = Domain::new();
        let retire = || (0..count).for_each(|content| domain.defer_drop(Box::new(Object::new(content, freed))));
        time_reclaim(retire, || domain.barrier())
    },
};

/// crossbeam-epoch's collector of the process.
pub const CROSSBEAM: Scheme = Scheme {
    sections: |count| enter_and_leave(count, pin),
    nested: |count| {
        let _outer = pin();
        enter_and_leave(count, pin);
    },
    wait: None,
    reclaim: |count, freed| {
        let retire = || {
            for content in 0..count {
                let guard = pin();
                let object = Owned::new(Object::new(content, freed)).into_shared(&guard);
                // SAFETY: the object was never shared, so no reader can hold it, and it is retired
                // once.
                unsafe { guard.defer_destroy(object) };
            }
        };
        time_reclaim(retire, drain_crossbeam)
    },
};

/// Waits until everything that this thread has retired has been freed.
///
/// crossbeam-epoch has no such function. But a thread's garbage goes through one first-in,
/// first-out queue, so all of it has been freed once a function that was deferred later has been
/// called.
fn drain_crossbeam() {
    /// The number of attempts to advance the epoch, which take tens of seconds.
    const ATTEMPTS: u32 = 10_000_000;
    let last = Arc::new(AtomicBool::new(false));
    let reached = Arc::clone(&last);
    // Release: pairs with the load below, so that everything freed before this is visible as freed.
    pin().defer(move || reached.store(true, Ordering::Release));
    for _ in 0..ATTEMPTS {
        pin().flush();
        // Acquire: pairs with the store above.
        if last.load(Ordering::Acquire) {
            return;
        }
        yield_now();
    }
    panic!("crossbeam-epoch has not freed its garbage: a thread is stuck while pinned");
}

static COLLECTOR: LazyLock<Collector> = LazyLock::new(Collector::new);

/// seize, with one collector for sections and one for each measurement of reclamation.
pub const SEIZE: Scheme = Scheme {
    sections: |count| {
        let collector = &*COLLECTOR;
        enter_and_leave(count, || collector.enter());
    },
    nested: |count| {
        let collector = &*COLLECTOR;
        let _outer = collector.enter();
        enter_and_leave(count, || collector.enter());
    },
    wait: None,
    reclaim: |count, freed| {
        let collector = Collector::new();
        let retire = || {
            for content in 0..count {
                let guard = collector.enter();
                let object = Box::into_raw(Box::new(Object::new(content, freed)));
                // SAFETY: the object was never shared, so no reader can hold it. It is retired
                // once, and was allocated by a `Box`.
                unsafe { guard.defer_retire(object, reclaim::boxed) };
            }
        };
        // SAFETY: no other thread uses this collector, and this thread holds no guard of it.
        time_reclaim(retire, || unsafe { collector.reclaim_all() })
    },
};
