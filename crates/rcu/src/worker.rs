//! The background thread that runs the deferred functions of threads that have exited, or that no
//! longer use RCU.
//!
//! It runs only while functions are pending, and for a second afterwards. It waits for no lock that
//! a fork could leave locked.

#[cfg(relativist_loom)]
pub(crate) fn wake() {}

#[cfg(relativist_loom)]
pub(crate) fn hurry() {}

#[cfg(not(relativist_loom))]
pub(crate) use background::{hurry, wake};

#[cfg(all(unix, not(relativist_loom)))]
pub(crate) use background::reset_in_child;

#[cfg(any(not(relativist_loom), test))]
mod presence {
    use crate::barrier::{heavy, light};
    use crate::domain::domain;
    use relativist_core::sync::atomic::{
        AtomicBool,
        Ordering::{Relaxed, SeqCst},
    };
    use relativist_core::sync::const_fn;

    /// Whether there is a worker. A worker that leaves must not miss a push whose producer still
    /// relies on it.
    pub(super) struct Presence(AtomicBool);

    impl Presence {
        const_fn! {
            pub(super) fn new() -> Self {
                Self(AtomicBool::new(false))
            }
        }

        /// Called after a push. If it returns true, the caller must start a worker.
        #[inline]
        pub(super) fn is_missing(&self) -> bool {
            // Orders the push before the load; pairs with `heavy` in `try_leave`.
            // litmus: worker-leaves, worker-membarrier-before-push
            light(domain().fenced(Relaxed));
            // Relaxed: ordered by `light`. SeqCst: this happens once per start, so its cost does
            // not matter. One thread gets `false` from the swap, and starts the worker.
            // litmus: worker-started-once
            !self.0.load(Relaxed) && !self.0.swap(true, SeqCst)
        }

        /// Called by a worker that has nothing to do. If it returns false, the worker must stay.
        pub(super) fn try_leave(&self, is_work_left: impl FnOnce() -> bool) -> bool {
            self.leave();
            // Pairs with `light` in `is_missing`: either the producer sees that the worker has
            // left, or the worker sees the push.
            // litmus: worker-leaves, worker-membarrier-before-look, worker-membarrier-after-look
            heavy();
            // Stays if there is work, unless another worker has been started.
            // litmus: worker-started-once
            !is_work_left() || self.0.swap(true, SeqCst)
        }

        /// Runs `work`, the worker. If it unwinds, the next push starts another worker.
        #[cfg_attr(relativist_loom, expect(dead_code, reason = "the worker's, of which loom has none"))]
        pub(super) fn during(&self, work: impl FnOnce()) {
            struct Leaves<'p>(&'p Presence);
            impl Drop for Leaves<'_> {
                fn drop(&mut self) {
                    self.0.leave();
                }
            }
            let leaves = Leaves(self);
            work();
            // `work` has left by itself, and another worker may have been started.
            std::mem::forget(leaves);
        }

        /// Records that there is no worker any more, or that it could not be started.
        pub(super) fn leave(&self) {
            // SeqCst: this seldom happens, so its cost does not matter.
            // litmus: worker-leaves, stronger than needed
            self.0.store(false, SeqCst);
        }
    }
}

#[cfg(not(relativist_loom))]
mod background {
    use std::sync::Mutex;
    use std::thread::{self, Thread};
    use std::time::{Duration, Instant};

    use super::presence::Presence;
    use crate::defer::Reclaiming;
    use crate::domain::domain;
    use crate::guard::{is_reading, read};
    use crate::queue::everything;

    /// The interval between two passes of the worker. It runs functions that have been pending for
    /// one to two intervals, if readers permit.
    const TICK: Duration = Duration::from_millis(10);
    /// The number of ticks without work for which the worker stays.
    const LINGER: u32 = 100;

    /// The first pause between two passes over the queues that have urgent functions. It doubles
    /// with each pass, up to a tick.
    const MIN_PAUSE: Duration = Duration::from_micros(50);

    static PRESENCE: Presence = Presence::new();
    /// The worker, which [`hurry`] wakes. No thread waits for this lock. A fork may leave it
    /// locked. Then no thread wakes the worker of the child, which runs urgent functions with the
    /// others.
    static WORKER: Mutex<Option<Thread>> = Mutex::new(None);

    /// Makes the worker run what this thread has deferred so far as soon as readers permit.
    pub(crate) fn hurry() {
        read().slot().queue.set_urgent();
        let Ok(worker) = WORKER.try_lock() else { return };
        if let Some(worker) = &*worker {
            worker.unpark();
        }
    }

    /// Called after a push: makes sure that there is a worker.
    #[inline]
    pub(crate) fn wake() {
        if PRESENCE.is_missing() {
            start();
        }
    }

    #[cold]
    fn start() {
        let worker = std::thread::Builder::new().name("rcu-reclaim".into());
        // Without a worker the owners still reclaim when they defer more functions, and the next
        // push tries again.
        if without_signals(|| worker.spawn(run)).is_err() {
            PRESENCE.leave();
        }
    }

    /// Calls `spawn` such that the new thread handles no signals: the program's own threads handle
    /// them.
    #[cfg(all(unix, not(miri)))]
    fn without_signals<R>(spawn: impl FnOnce() -> R) -> R {
        use std::mem::MaybeUninit;
        use std::ptr::null_mut;

        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both sets are local variables; `sigfillset` fills the one, `pthread_sigmask` the
        // other. Neither can fail with these arguments.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        }
        let result = spawn();
        // SAFETY: `before` was filled above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
        result
    }

    #[cfg(any(not(unix), miri))]
    fn without_signals<R>(spawn: impl FnOnce() -> R) -> R {
        spawn()
    }

    fn run() {
        PRESENCE.during(|| {
            // Never `None`: the thread is new.
            let Some(marked) = Reclaiming::mark() else { return };
            if let Ok(mut worker) = WORKER.try_lock() {
                *worker = Some(thread::current());
            }
            let (mut idle, mut pause) = (0, MIN_PAUSE);
            while idle < LINGER || !PRESENCE.try_leave(is_work_left) {
                pass_tick(&mut pause, &marked);
                idle = if sweep(&marked) { 0 } else { idle + 1 };
                if is_reading() {
                    // A deferred function has left a section open on this thread. If the guard is
                    // in a thread-local variable, the section ends with the thread. So this thread
                    // ends, and another one takes over.
                    PRESENCE.leave();
                    return wake();
                }
            }
        });
    }

    /// Sleeps for a tick, and meanwhile drains queues that have urgent functions. `pause` is the
    /// time to the next attempt if some are left.
    fn pass_tick(pause: &mut Duration, marked: &Reclaiming) {
        let end = Instant::now() + TICK;
        loop {
            let is_urgent =
                domain().registry.iter().fold(false, |left, slot| slot.queue.drain_if_urgent(domain(), marked) | left);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            if is_urgent {
                thread::park_timeout(left.min(*pause));
                *pause = (*pause * 2).min(TICK);
            } else {
                *pause = MIN_PAUSE;
                thread::park_timeout(left);
            }
        }
    }

    /// Drains all queues, and returns whether any entries are left in them.
    fn sweep(marked: &Reclaiming) -> bool {
        domain()
            .registry
            .iter()
            .fold(false, |left, slot| slot.queue.drain_if_stale(domain(), marked, everything) | left)
    }

    fn is_work_left() -> bool {
        domain().registry.iter().any(|slot| slot.queue.pending().0 > 0)
    }

    /// Records that the child of a fork has no worker, so that the next push starts one.
    #[cfg(unix)]
    pub(crate) fn reset_in_child() {
        PRESENCE.leave();
    }
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::presence::Presence;

    /// R10: if the worker ends by a panic, another one is started.
    #[test]
    fn a_worker_that_unwinds_is_replaced() {
        let presence = Presence::new();
        assert!(presence.is_missing() && !presence.is_missing(), "the first push starts the worker");
        catch_unwind(AssertUnwindSafe(|| presence.during(|| panic!("in the worker")))).unwrap_err();
        assert!(presence.is_missing(), "the next push starts no worker");
    }
}

#[cfg(all(test, relativist_loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::presence::Presence;

    /// R10: in any order, either the worker stays for a producer's push, or a new one is started.
    #[test]
    fn no_push_falls_between_two_workers() {
        loom::model(|| {
            crate::active_barrier();
            let presence = Arc::new(Presence::new());
            let pushed = Arc::new(AtomicUsize::new(0));
            assert!(presence.is_missing(), "the worker of this model has been started");
            let producer = {
                let (presence, pushed) = (presence.clone(), pushed.clone());
                loom::thread::spawn(move || {
                    pushed.store(1, Relaxed);
                    presence.is_missing()
                })
            };
            let stays = !presence.try_leave(|| pushed.load(Relaxed) > 0);
            let restarted = producer.join().unwrap();
            assert!(stays || restarted, "no worker handles the push");
            assert!(!(stays && restarted), "one worker is enough");
        });
    }
}
