//! Stopping the server.

use mio::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The phases of the server, in their order.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Phase {
    Draining = 1,
    Stopped = 2,
}

/// Stops a server from another thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    /// The latest [`Phase`] requested; 0 if none was.
    phase: Arc<AtomicU8>,
    waker: Arc<Waker>,
}

impl Stopper {
    /// A stopper of the server whose acceptor `waker` wakes.
    pub(crate) fn new(waker: Arc<Waker>) -> Stopper {
        Stopper { phase: Arc::default(), waker }
    }

    /// Makes the server close its connections and return. May be called more than once.
    pub fn stop(&self) {
        self.ask_for(Phase::Stopped);
    }

    /// Makes the server accept no more connections, and stop when all are closed, or after the time
    /// of `--drain`.
    pub fn drain(&self) {
        self.ask_for(Phase::Draining);
    }

    /// Whether the server was asked to stop, or to stop when it is drained.
    pub fn is_stopping(&self) -> bool {
        self.has_come(Phase::Draining)
    }

    /// Whether the server was asked to stop without draining first.
    pub(crate) fn is_stopped(&self) -> bool {
        self.has_come(Phase::Stopped)
    }

    fn ask_for(&self, phase: Phase) {
        // Release: pairs with the Acquire in `has_come`, so that the acceptor sees what the caller
        // did before.
        self.phase.fetch_max(phase as u8, Ordering::Release);
        // If the acceptor cannot be woken it wakes by itself for the next tick of the clock.
        let _ = self.waker.wake();
    }

    fn has_come(&self, phase: Phase) -> bool {
        // Acquire: pairs with the Release in `ask_for`.
        self.phase.load(Ordering::Acquire) >= phase as u8
    }
}
