//! The background thread that resizes automatic tables, one per process, started by the first table
//! that needs it.

/// A table that the worker resizes.
pub trait Resize: Send + Sync {
    /// Resizes to what the entries need, as far as that is possible without waiting. Returns
    /// whether to call it again soon, when readers or other threads may have left.
    fn advance_resize(&self) -> bool;
}

/// Does nothing: models have no worker.
#[cfg(relativist_loom)]
#[must_use]
pub fn request(_: std::sync::Weak<dyn Resize>) -> bool {
    false
}

#[cfg(not(relativist_loom))]
pub use background::request;

#[cfg(not(relativist_loom))]
mod background {
    use std::collections::HashMap;
    use std::sync::{Condvar, Mutex, PoisonError, Weak};
    use std::time::Duration;

    use relativist_core::unwind::contain;
    use relativist_rcu::is_reading;

    use super::Resize;

    /// The tables to check. Each is in the queue at most once, so the number of tables bounds its
    /// size.
    static QUEUE: Mutex<Queue> = Mutex::new(Queue { tables: Vec::new(), worker: None });
    static NOT_EMPTY: Condvar = Condvar::new();

    struct Queue {
        tables: Vec<Weak<dyn Resize>>,
        /// The process that started the worker. A forked child has no worker, but finds its
        /// parent's number here. It starts its own worker for the next request. That alone does not
        /// make maps fork-safe: the mutex around this may stay locked for ever in the child (see
        /// [`HashMap`](crate::HashMap), "Fork").
        worker: Option<u32>,
    }

    /// Asks the worker to check a table soon. The worker skips a table that has been dropped.
    /// Returns false when there is no memory for the request, or no worker and no thread could be
    /// started. Then the caller may ask again later.
    #[must_use]
    pub fn request(table: Weak<dyn Resize>) -> bool {
        let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.tables.try_reserve(1).is_err() {
            return false;
        }
        if queue.worker != Some(std::process::id()) && !queue.start_worker() {
            return false;
        }
        queue.tables.push(table);
        NOT_EMPTY.notify_one();
        true
    }

    impl Queue {
        /// Returns whether there is a worker now.
        fn start_worker(&mut self) -> bool {
            let started = std::thread::Builder::new().name("relativist-resize".into()).spawn(run).is_ok();
            self.worker = started.then(std::process::id);
            started
        }
    }

    /// The tables whose resize waits for readers, by address.
    type Waiting = HashMap<*const (), Weak<dyn Resize>>;

    fn run() {
        let mut waiting = Waiting::new();
        let mut pause = Pause::default();
        // A destructor may leave a read section open on this thread, by leaking the guard or
        // putting it into a thread-local variable. No chain would be cut before that section ends,
        // so another thread takes over.
        while !is_reading() {
            let requested = requested_tables(&mut waiting, &pause);
            pause = if requested { Pause::default() } else { pause.next() };
            waiting.retain(|_, table| still_waits(table));
        }
        let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        queue.tables.extend(waiting.into_values());
        queue.start_worker();
    }

    /// Continues the resize of a table, without waiting for readers, so that no table delays
    /// another. Returns whether the table still waits for readers.
    fn still_waits(table: &Weak<dyn Resize>) -> bool {
        let mut again = false;
        // If the map has been dropped, this is the last owner, and the destructors of keys and
        // values run here. A panic in one of them must not end the worker.
        contain(|| {
            if let Some(table) = table.upgrade() {
                again = table.advance_resize();
            }
        });
        again
    }

    /// The time to wait before the next attempt, which grows with each attempt.
    #[derive(Default)]
    struct Pause(u32);

    impl Pause {
        const YIELDS: u32 = 16;
        const DOUBLINGS: u32 = 10;

        fn next(self) -> Self {
            Self((self.0 + 1).min(Self::YIELDS + Self::DOUBLINGS))
        }

        /// Returns `None` for the first attempts, because most readers leave soon, and 20 ms at
        /// most.
        fn duration(&self) -> Option<Duration> {
            self.0.checked_sub(Self::YIELDS).map(|doublings| Duration::from_micros(20 << doublings))
        }
    }

    /// Adds the requested tables to those that wait, and returns whether there were any. If there
    /// are none, waits for a request: as long as the pause, or without limit if no table waits.
    fn requested_tables(waiting: &mut Waiting, pause: &Pause) -> bool {
        let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        while queue.tables.is_empty() && waiting.is_empty() {
            queue = NOT_EMPTY.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.tables.is_empty() {
            match pause.duration() {
                Some(pause) => queue = NOT_EMPTY.wait_timeout(queue, pause).unwrap_or_else(PoisonError::into_inner).0,
                None => {
                    drop(queue);
                    std::thread::yield_now();
                    queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        let requested = std::mem::take(&mut queue.tables);
        drop(queue);
        let found = !requested.is_empty();
        waiting.extend(requested.into_iter().map(|table| (table.as_ptr().cast(), table)));
        found
    }
}
