//! The background thread that resizes automatic tables, one per process, started by the first table that needs it.

#[cfg(relativist_loom)]
#[must_use]
pub(crate) fn request(_: std::sync::Weak<crate::raw::Core>) -> bool {
    false
}

#[cfg(not(relativist_loom))]
pub(crate) use background::request;

#[cfg(not(relativist_loom))]
mod background {
    use std::collections::VecDeque;
    use std::sync::{Condvar, Mutex, PoisonError, Weak};

    use relativist_rcu::is_reading;
    use relativist_rcu::unwind::contain;

    use crate::raw::Core;

    /// The tables to look at. Each is in here at most once, so their number is the bound.
    static QUEUE: Mutex<Queue> = Mutex::new(Queue { tables: VecDeque::new(), worker: None });
    static NOT_EMPTY: Condvar = Condvar::new();

    struct Queue {
        tables: VecDeque<Weak<Core>>,
        /// The process that started the worker. A forked child has no worker, though it finds its
        /// parent's number here; it starts one of its own for the next request. That alone does not
        /// make maps fork-safe: the mutex around this may be locked for ever in the child (see
        /// [`HashMap`](crate::HashMap), "Fork").
        worker: Option<u32>,
    }

    /// Asks the worker to look at a table soon. A table dropped meanwhile is passed over. Returns
    /// false when there is no worker and no thread could be started: then the caller may ask again
    /// later.
    #[must_use]
    pub(crate) fn request(table: Weak<Core>) -> bool {
        let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.worker != Some(std::process::id()) && !queue.start_worker() {
            return false;
        }
        queue.tables.push_back(table);
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

    fn run() {
        // A destructor may leave a read section open on this thread, by leaking the guard or
        // putting it into a thread-local variable. A resize here would wait for the end of that
        // section, so another thread takes over.
        while !is_reading() {
            let table = next();
            // If the map was dropped meanwhile, then this is the last owner, and the destructors of
            // keys and values run here. A panic in one of them must not end the worker.
            contain(|| {
                if let Some(table) = table.upgrade() {
                    table.resize_as_wanted();
                }
            });
        }
        QUEUE.lock().unwrap_or_else(PoisonError::into_inner).start_worker();
    }

    fn next() -> Weak<Core> {
        let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match queue.tables.pop_front() {
                Some(table) => return table,
                None => queue = NOT_EMPTY.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
