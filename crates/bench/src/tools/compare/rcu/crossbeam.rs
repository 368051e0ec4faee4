//! crossbeam-epoch, with its process-wide collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::yield_now;

use crossbeam_epoch::{Owned, pin};

use super::scheme::{Object, ReclaimTimes, Scheme, enter_and_leave, time_reclaim};

/// The number of attempts to advance the epoch before [`drain`] gives up. They take tens of
/// seconds.
const ATTEMPTS: u32 = 10_000_000;

pub struct CrossbeamEpoch;

impl Scheme for CrossbeamEpoch {
    #[inline(never)]
    fn sections(&self, count: u64) {
        enter_and_leave(count, pin);
    }

    #[inline(never)]
    fn nested_sections(&self, count: u64) {
        let _outer = pin();
        enter_and_leave(count, pin);
    }

    fn reclaim(&self, count: u64, freed: Option<&'static AtomicU64>) -> ReclaimTimes {
        let retire = || {
            for content in 0..count {
                let guard = pin();
                let object = Owned::new(Object::new(content, freed)).into_shared(&guard);
                // SAFETY: the object was never shared, so no reader can hold it, and it is retired
                // once.
                unsafe { guard.defer_destroy(object) };
            }
        };
        time_reclaim(retire, drain)
    }
}

/// Waits until everything that this thread has retired has been freed.
///
/// crossbeam-epoch has no such function. But a thread's garbage goes through one first-in,
/// first-out queue, so all of it has been freed once a function that was deferred later has been
/// called.
fn drain() {
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
