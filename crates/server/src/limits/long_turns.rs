//! How many workers may be within commands that take long.
//!
//! Where all processors are busy with such commands, a worker with short ones waits for a
//! processor, or for a lock whose holder waits for one: for milliseconds, which are the kernel's
//! time slices. So long commands leave a processor to others, unless there is only one. Workers
//! take turns in the order in which they have asked.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

/// The workers that are within long commands, or wait to be.
#[derive(Debug)]
pub struct LongTurns(Mutex<State>);

struct State {
    /// The number of workers that may begin.
    free: usize,
    waiting: VecDeque<usize>,
    /// Wakes each worker.
    wake: Vec<Box<dyn Fn() + Send>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { free, waiting, .. } = self;
        f.debug_struct("State").field("free", free).field("waiting", waiting).finish_non_exhaustive()
    }
}

impl Default for LongTurns {
    fn default() -> LongTurns {
        LongTurns::new(available_parallelism().map_or(1, |processors| processors.get() - 1))
    }
}

impl LongTurns {
    fn new(free: usize) -> LongTurns {
        LongTurns(Mutex::new(State { free: free.max(1), waiting: VecDeque::new(), wake: Vec::new() }))
    }

    /// Adds a worker, which `wake` wakes, and returns its number.
    pub(crate) fn add(&self, wake: impl Fn() + Send + 'static) -> usize {
        let mut state = self.lock();
        state.wake.push(Box::new(wake));
        state.wake.len() - 1
    }

    /// Whether the worker may be within long commands now. Then it calls [`end`](Self::end).
    /// Otherwise it is woken when it may, and [leaves](Self::leave) if it has none by then.
    pub(crate) fn begin(&self, worker: usize) -> bool {
        let mut state = self.lock();
        let is_next = state.waiting.front().is_none_or(|&next| next == worker);
        if state.free == 0 || !is_next {
            if !state.waiting.contains(&worker) {
                state.waiting.push_back(worker);
            }
            return false;
        }
        state.free -= 1;
        state.waiting.pop_front();
        state.wake_next();
        true
    }

    /// Ends what [`begin`](Self::begin) has begun.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.free += 1;
        state.wake_next();
    }

    /// Makes room in the line for the workers behind this one.
    pub(crate) fn leave(&self, worker: usize) {
        let mut state = self.lock();
        state.waiting.retain(|&waiting| waiting != worker);
        state.wake_next();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake_next(&self) {
        if let Some(&next) = self.waiting.front().filter(|_| self.free > 0) {
            (self.wake[next])();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn workers_take_turns_in_the_order_in_which_they_asked() {
        let turns = LongTurns::new(1);
        let woken = Arc::new([const { AtomicUsize::new(0) }; 3]);
        for worker in 0..3 {
            let woken = Arc::clone(&woken);
            // SeqCst: the simplest choice in a test.
            assert_eq!(turns.add(move || _ = woken[worker].fetch_add(1, Ordering::SeqCst)), worker);
        }
        let woken = || [0, 1, 2].map(|worker: usize| woken[worker].load(Ordering::SeqCst));
        assert!(turns.begin(0) && !turns.begin(1) && !turns.begin(2) && !turns.begin(1));
        assert_eq!(woken(), [0, 0, 0]);
        turns.end();
        assert_eq!(woken(), [0, 1, 0]);
        assert!(!turns.begin(0) && !turns.begin(2), "it is the turn of the first that waits");
        assert!(turns.begin(1));
        turns.end();
        assert_eq!(woken(), [0, 1, 1]);
        turns.leave(2);
        assert_eq!(woken(), [1, 1, 1]);
        assert!(turns.begin(0));
    }
}
