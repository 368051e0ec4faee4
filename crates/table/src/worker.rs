//! The background thread that resizes automatic tables, one per process, started by the first table
//! that needs it.

/// A table that the worker resizes.
pub trait Resize: Send + Sync {
    /// Resizes to what the entries need, as far as that is possible without waiting, and returns
    /// what is left.
    fn advance_resize(&self) -> Progress;
}

/// How far a resize has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is left until the next request.
    Done,
    /// The rest has to wait for those that are in read sections now.
    WaitsForReaders,
    /// The rest is possible soon: another thread is resizing the table or holds a lock, or the last
    /// growth was a moment ago.
    WaitsBriefly,
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
    use std::collections::{HashMap, VecDeque};
    use std::sync::{Condvar, Mutex, PoisonError, Weak};
    use std::time::Duration;

    use relativist_core::unwind::contain;
    use relativist_rcu::{GracePeriod, is_reading};

    use super::{Progress, Resize};

    /// The requests. A table makes none while one of its own is in the queue, so the number of
    /// tables bounds its size.
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

    fn run() {
        let mut waiting = Waiting::default();
        let mut pause = Pause::default();
        // A destructor may leave a read section open on this thread, by leaking the guard or
        // putting it into a thread-local variable. No chain would be cut before that section ends,
        // so another thread takes over.
        while !is_reading() {
            let requested = requested_tables(&waiting, &pause);
            pause = if requested.is_empty() { pause.next() } else { Pause::default() };
            waiting.advance(requested);
        }
        let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        queue.tables.extend(waiting.into_tables());
        queue.start_worker();
    }

    /// Tables by address: one that waits may be requested again.
    type Tables = HashMap<*const (), Weak<dyn Resize>>;

    /// The tables whose resize is not done.
    ///
    /// There may be many that wait for one reader. So they are not tried before a grace period has
    /// passed, which those share that began to wait at the same time.
    #[derive(Default)]
    struct Waiting {
        /// Those that are tried in each pass.
        briefly: Tables,
        /// Those that wait for readers, in the order of their grace periods. There are few groups,
        /// because a reader that stays ends no grace period.
        for_readers: VecDeque<Group>,
        /// Those whose readers have left.
        ready: Vec<Weak<dyn Resize>>,
    }

    /// Tables that wait for the same grace period.
    struct Group {
        readers: GracePeriod,
        tables: Tables,
    }

    impl Waiting {
        /// The number of ready tables in a pass, after which others may have been requested.
        const READY: usize = 64;

        fn is_empty(&self) -> bool {
            self.briefly.is_empty() && self.for_readers.is_empty() && self.ready.is_empty()
        }

        /// Performs a pass: tries each table that may get further.
        fn advance(&mut self, requested: Vec<Weak<dyn Resize>>) {
            while self.for_readers.front().is_some_and(|group| group.readers.has_passed()) {
                let group = self.for_readers.pop_front().expect("it was there");
                self.ready.extend(group.tables.into_values());
            }
            let ready = self.ready.split_off(self.ready.len().saturating_sub(Self::READY));
            let mut tables = std::mem::take(&mut self.briefly);
            tables.extend(requested.into_iter().chain(ready).map(|table| (table.as_ptr().cast(), table)));
            let mut for_readers = Tables::new();
            for (address, table) in tables {
                match advance(&table) {
                    Progress::Done => {}
                    Progress::WaitsBriefly => _ = self.briefly.insert(address, table),
                    Progress::WaitsForReaders => _ = for_readers.insert(address, table),
                }
            }
            if !for_readers.is_empty() {
                self.wait_for_readers(for_readers);
            }
        }

        fn wait_for_readers(&mut self, tables: Tables) {
            let readers = GracePeriod::start();
            match self.for_readers.back_mut().filter(|group| group.readers == readers) {
                Some(group) => group.tables.extend(tables),
                None => self.for_readers.push_back(Group { readers, tables }),
            }
        }

        fn into_tables(self) -> impl Iterator<Item = Weak<dyn Resize>> {
            let for_readers = self.for_readers.into_iter().flat_map(|group| group.tables.into_values());
            self.briefly.into_values().chain(self.ready).chain(for_readers)
        }
    }

    /// Continues the resize of a table, without waiting, so that no table delays another.
    fn advance(table: &Weak<dyn Resize>) -> Progress {
        let mut progress = Progress::Done;
        // If the map has been dropped, this is the last owner, and the destructors of keys and
        // values run here. A panic in one of them must not end the worker.
        contain(|| {
            if let Some(table) = table.upgrade() {
                progress = table.advance_resize();
            }
        });
        progress
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

    /// Returns the requested tables. If there are none, waits for a request: not at all if a table
    /// is ready, as long as the pause if some wait, and otherwise without limit.
    fn requested_tables(waiting: &Waiting, pause: &Pause) -> Vec<Weak<dyn Resize>> {
        let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        while queue.tables.is_empty() && waiting.is_empty() {
            queue = NOT_EMPTY.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.tables.is_empty() && waiting.ready.is_empty() {
            match pause.duration() {
                Some(pause) => queue = NOT_EMPTY.wait_timeout(queue, pause).unwrap_or_else(PoisonError::into_inner).0,
                None => {
                    drop(queue);
                    std::thread::yield_now();
                    queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        std::mem::take(&mut queue.tables)
    }
}
