//! Threads that sleep until a bucket is unlocked. A thread that unlocks a bucket checks by one load
//! whether any thread sleeps.

use crate::sync::parking::{AtomicCount, park, unpark_all};
use crate::sync::{Relaxed, fence_after_exchange, full_fence};

/// The number of threads that sleep, or are about to sleep, until some bucket is unlocked. Without
/// contention for locks, updates only read the number.
///
/// The number has two cache lines to itself, because processors fetch lines in pairs.
#[repr(align(128))]
pub struct Sleepers(AtomicCount);

impl Default for Sleepers {
    fn default() -> Self {
        Self::new()
    }
}

impl Sleepers {
    #[cfg(not(relativist_loom))]
    /// Creates a count of no sleepers.
    pub const fn new() -> Self {
        Self(AtomicCount::new(0))
    }

    #[cfg(relativist_loom)]
    /// Creates a count of no sleepers.
    pub fn new() -> Self {
        Self(AtomicCount::new(0))
    }

    /// The number of times that a thread checks a lock before it sleeps.
    #[cfg(not(relativist_loom))]
    const SPINS: u32 = 64;

    /// Waits while `is_locked` returns true: spins in the first calls, then sleeps at `key`.
    /// `spins` counts the calls. May return while the lock is still held. `is_locked` must neither
    /// panic nor park.
    #[cfg(not(relativist_loom))]
    pub fn wait(&self, spins: &mut u32, key: usize, is_locked: impl Fn() -> bool) {
        if *spins < Self::SPINS {
            *spins += 1;
            std::hint::spin_loop();
        } else {
            self.sleep(key, is_locked);
        }
    }

    /// Sleeps at `key` while `is_locked` returns true. May return while the lock is still held.
    /// `is_locked` must neither panic nor park.
    pub fn sleep(&self, key: usize, is_locked: impl Fn() -> bool) {
        // Relaxed: ordered by the fence.
        self.0.fetch_add(1, Relaxed);
        // Pairs with the fence in `wake`: either `wake` sees the new number, or `park` sees
        // that the bucket is unlocked. (`park` and `unpark_all` exclude each other.)
        // litmus: sleep
        full_fence();
        park(key, is_locked);
        // Relaxed: while the number is too high, unlocking threads call `unpark_all` needlessly.
        self.0.fetch_sub(1, Relaxed);
    }

    /// Returns whether a thread may sleep. The caller has executed a full fence since it has
    /// unlocked a bucket.
    pub fn any(&self) -> bool {
        // Relaxed: ordered by the fence, which pairs with the one in `sleep`.
        self.0.load(Relaxed) != 0
    }

    /// Called after the exchange that has unlocked the bucket at `key`, or one after that. Makes
    /// the exchange a full barrier, and wakes the threads that sleep at `key`.
    #[inline(always)]
    pub fn wake(&self, key: usize) {
        // litmus: sleep
        fence_after_exchange();
        // Relaxed: ordered by the fence, which pairs with the one in `sleep`.
        if self.0.load(Relaxed) != 0 {
            unpark_all(key);
        }
    }
}

#[cfg(all(test, relativist_loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    use super::*;
    use crate::sync::{AcqRel, Acquire};

    /// T4: a thread that waits for a bucket continues when it is unlocked. Loom reports threads
    /// that sleep for ever.
    #[test]
    fn no_sleeper_is_left_behind() {
        loom::model(|| {
            let shared = Arc::new((Sleepers::new(), AtomicBool::new(true)));
            let waiter = Arc::clone(&shared);
            let waiting = thread::spawn(move || {
                let (sleepers, locked) = &*waiter;
                while locked.load(Acquire) {
                    sleepers.sleep(0, || locked.load(Acquire));
                }
            });
            let (sleepers, locked) = &*shared;
            locked.swap(false, AcqRel);
            sleepers.wake(0);
            waiting.join().unwrap();
        });
    }
}
