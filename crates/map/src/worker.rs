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
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Condvar, Mutex, PoisonError, Weak};

    use crate::raw::Core;

    /// The tables to look at. Each is in here at most once, so their number is the bound.
    static QUEUE: Mutex<Queue> = Mutex::new(Queue { tables: VecDeque::new(), worker: None });
    static NOT_EMPTY: Condvar = Condvar::new();

    struct Queue {
        tables: VecDeque<Weak<Core>>,
        /// The process that has a worker. The child of a fork has none, though it finds a number here; it starts one for the
        /// next table that asks.
        worker: Option<u32>,
    }

    /// Asks the worker to look at a table soon. A table dropped meanwhile is passed over. False when there is no worker and
    /// no thread to be had for one: then the caller may ask again later.
    #[must_use]
    pub(crate) fn request(table: Weak<Core>) -> bool {
        let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if queue.worker != Some(process) {
            if std::thread::Builder::new().name("relativist-resize".into()).spawn(run).is_err() {
                return false;
            }
            queue.worker = Some(process);
        }
        queue.tables.push_back(table);
        NOT_EMPTY.notify_one();
        true
    }

    fn run() {
        loop {
            let table = next();
            // The last owner may be gone by the time that we are done: then its objects are disposed of here, and a panic in
            // their destructors, which the panic hook has reported, must not end the worker.
            let resize = || {
                if let Some(table) = table.upgrade() {
                    table.resize_as_wanted();
                }
            };
            let _ = catch_unwind(AssertUnwindSafe(resize));
        }
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
