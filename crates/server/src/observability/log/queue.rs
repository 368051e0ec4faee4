//! The queue between the threads that log and the one that writes.
//!
//! Nobody may read what the process logs, or not fast enough. So threads that serve clients do not
//! write messages, but put them into a queue of limited size. A message for which there is no room
//! is dropped and counted.

use std::io::{self, Write};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of bytes of the messages in the queue.
const MAX_BYTES: usize = 256 << 10;

/// A queue of messages.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Notified when a message arrives, and when messages have been written.
    changed: Condvar,
    dropped: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// Whether there is a thread that writes.
    is_open: bool,
    messages: Vec<u8>,
    /// Messages dropped that the log has not reported yet.
    unreported: u64,
    /// Whether messages that were taken out are being written.
    is_writing: bool,
}

impl Queue {
    pub(super) const fn new() -> Queue {
        let state = State { is_open: false, messages: Vec::new(), unreported: 0, is_writing: false };
        Queue { state: Mutex::new(state), changed: Condvar::new(), dropped: AtomicU64::new(0) }
    }

    /// Accepts messages from now on: there is a thread that writes them.
    pub(super) fn open(&self) {
        self.lock().is_open = true;
    }

    /// Adds a message, or drops it if there is no room. Returns false if nothing writes it.
    pub(super) fn push(&self, message: &[u8]) -> bool {
        let mut state = self.lock();
        if !state.is_open {
            return false;
        }
        if state.messages.len() + message.len() > MAX_BYTES {
            state.unreported += 1;
            // Relaxed: a count.
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            state.messages.extend_from_slice(message);
            self.changed.notify_all();
        }
        true
    }

    /// How many messages were dropped.
    pub(super) fn dropped(&self) -> u64 {
        // Relaxed: as above.
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits for messages, and writes them. Returns the number of messages dropped that should have
    /// followed them. Errors are ignored: they could only be logged.
    pub(super) fn write_next(&self, out: &mut impl Write) -> u64 {
        let state = self.lock();
        let mut state =
            self.changed.wait_while(state, |it| it.messages.is_empty()).unwrap_or_else(PoisonError::into_inner);
        let (messages, dropped) = (mem::take(&mut state.messages), mem::take(&mut state.unreported));
        state.is_writing = true;
        drop(state);
        let _: io::Result<()> = out.write_all(&messages);
        self.lock().is_writing = false;
        self.changed.notify_all();
        dropped
    }

    /// Waits until all messages were written, but not longer than `patience`.
    pub(super) fn flush(&self, patience: Duration) {
        let is_busy = |state: &mut State| state.is_writing || !state.messages.is_empty();
        // Whatever the outcome is, the caller goes on.
        drop(self.changed.wait_timeout_while(self.lock(), patience, is_busy));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_without_room_are_dropped_and_counted() {
        let queue = Queue::new();
        assert!(!queue.push(b"too early"));
        queue.open();
        let message = [b'm'; 1000];
        let fit = MAX_BYTES / message.len();
        (0..fit + 3).for_each(|_| assert!(queue.push(&message)));
        let mut out = Vec::new();
        assert_eq!((queue.dropped(), queue.write_next(&mut out), out.len()), (3, 3, fit * message.len()));
        queue.push(b"next");
        out.clear();
        assert_eq!((queue.write_next(&mut out), out.as_slice()), (0, &b"next"[..]));
        queue.flush(Duration::from_secs(1000));
        assert_eq!(queue.dropped(), 3);
    }

    #[test]
    fn the_end_does_not_wait_for_long() {
        let queue = Queue::new();
        queue.open();
        queue.push(b"nobody writes this");
        queue.flush(Duration::ZERO);
    }
}
