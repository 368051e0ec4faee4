//! Threads that do something again and again.

use crate::error::StartError;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A thread in the background. It ends after it was stopped or dropped.
pub(super) struct Background {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Background {
    /// Starts a thread that does its work after each `period`.
    pub(super) fn start(
        name: &str,
        period: Duration,
        mut work: impl FnMut() + Send + 'static,
    ) -> io::Result<Background> {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                work();
            }
        })?;
        Ok(Background { stop, thread })
    }

    /// Waits until the thread has ended.
    pub(super) fn stop(self) -> Result<(), StartError> {
        drop(self.stop);
        self.thread.join().map_err(|_panic| StartError::Crashed)
    }
}
