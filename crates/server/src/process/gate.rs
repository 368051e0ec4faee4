//! The gate at which the threads wait that execute requests or accept connections, while the items
//! are handed over.

use super::inherited::Passed;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long [`Gate::close`] waits for a thread: longer than any turn takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often this wait is interrupted to look whether the server is stopping.
const TICK: Duration = Duration::from_millis(100);

/// A gate that is usually open.
#[derive(Default)]
pub(crate) struct Gate {
    /// Whether the phase is not `Open`.
    is_shut: AtomicBool,
    state: Mutex<State>,
    /// Notified when a thread waits, and when the phase changes.
    changed: Condvar,
    /// The listening sockets to hand over; none if no successor is expected.
    sockets: Mutex<Passed>,
}

#[derive(Default)]
struct State {
    /// Wakes each of the threads that pass the gate.
    wakers: Vec<Box<dyn Fn() + Send>>,
    waiting: usize,
    phase: Phase,
}

#[derive(Clone, Copy, Default, Eq, PartialEq)]
enum Phase {
    #[default]
    Open,
    Closed,
    /// Another process serves, so no thread may execute a request any more.
    HandedOver,
}

/// All threads wait while this exists.
pub(crate) struct Closed<'g>(&'g Gate);

impl Closed<'_> {
    /// Lets all threads end.
    pub(crate) fn hand_over(self) {
        self.0.set(Phase::HandedOver);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        if self.0.lock().phase == Phase::Closed {
            self.0.set(Phase::Open);
        }
    }
}

impl Gate {
    /// An open gate, with the sockets for a successor.
    pub(crate) fn new(sockets: Passed) -> Gate {
        Gate { sockets: Mutex::new(sockets), ..Gate::default() }
    }

    /// Adds a thread that will pass the gate again and again, and at once when `wake` is called.
    pub(crate) fn add(&self, wake: impl Fn() + Send + 'static) {
        self.lock().wakers.push(Box::new(wake));
    }

    /// Waits while the gate is closed. Returns false if the thread must end instead.
    pub(crate) fn pass(&self) -> bool {
        // Acquire: pairs with the Release in `set`. A thread that misses a change sees it at its
        // next turn, to which `close` wakes it.
        if !self.is_shut.load(Ordering::Acquire) {
            return true;
        }
        let mut state = self.lock();
        state.waiting += 1;
        self.changed.notify_all();
        while state.phase == Phase::Closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        state.phase == Phase::Open
    }

    /// Closes the gate, and waits until all threads wait there. None if one of them does not come
    /// in time, or if the server `is_stopping`: then some may not come any more.
    pub(crate) fn close(&self, is_stopping: impl Fn() -> bool) -> Option<Closed<'_>> {
        self.set(Phase::Closed);
        // Opens the gate again when this returns nothing. Declared before the lock, to be dropped
        // after it.
        let closed = Closed(self);
        let mut state = self.lock();
        state.wakers.iter().for_each(|wake| wake());
        let end = Instant::now() + PATIENCE;
        while state.waiting < state.wakers.len() {
            if is_stopping() || Instant::now() > end {
                return None;
            }
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        Some(closed)
    }

    /// Whether another process serves.
    pub(crate) fn is_handed_over(&self) -> bool {
        // Acquire: as in `pass`.
        self.is_shut.load(Ordering::Acquire) && self.lock().phase == Phase::HandedOver
    }

    /// The sockets for a successor. The server takes them away when it is stopping: clients are
    /// refused from then on.
    pub(crate) fn sockets(&self) -> MutexGuard<'_, Passed> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = phase;
        // Release: pairs with the Acquire in `pass`.
        self.is_shut.store(phase != Phase::Open, Ordering::Release);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    #[test]
    fn threads_stand_still_while_the_gate_is_closed() {
        let (gate, turns) = (Gate::default(), AtomicUsize::new(0));
        thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    gate.add(|| ());
                    scope.spawn(|| {
                        // Relaxed: a count.
                        while gate.pass() {
                            turns.fetch_add(1, Ordering::Relaxed);
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            for _ in 0..100 {
                let closed = gate.close(|| false).unwrap();
                // Relaxed: the gate's lock orders this after all turns.
                let before = turns.load(Ordering::Relaxed);
                thread::yield_now();
                assert_eq!(turns.load(Ordering::Relaxed), before);
                assert!(!gate.is_handed_over());
                drop(closed);
            }
            gate.add(|| ());
            assert!(gate.close(|| true).is_none(), "one does not come");
            gate.lock().wakers.pop();
            gate.close(|| false).unwrap().hand_over();
            assert!(gate.is_handed_over());
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
