//! The background thread, one per process. It frees expired entries and those that
//! [`invalidate_all`](crate::Cache::invalidate_all) has removed, and wakes tasks at a given time.
//! It runs while there is something to do. A cache without entries that can expire is not in the
//! schedule, and costs nothing.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Condvar, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use relativist_core::sync::local;
use relativist_core::unwind::contain;
use relativist_rcu::is_reading;

use super::cause::RemovalCause;

/// After a sweep the thread rests for at least this many times as long as it took.
const REST: u32 = 19;

static SCHEDULE: Mutex<Schedule> = Mutex::new(Schedule { jobs: BTreeMap::new(), added: 0, thread: None });
static CHANGED: Condvar = Condvar::new();

/// A cache, as the background thread sees it.
pub(super) trait Swept: Send + Sync {
    /// Frees the entries that have expired. Returns whether another sweep must be scheduled.
    fn sweep(&self) -> bool;

    /// Frees the entries that were removed all at once.
    fn free_detached(&self);

    /// Frees those entries of a shard that wait for readers no longer.
    fn drain(&self, shard: usize);

    /// Passes an entry that has left to the listener.
    ///
    /// # Safety
    ///
    /// The node is one of this cache, and alive.
    unsafe fn report(&self, node: NonNull<()>, cause: RemovalCause);
}

struct Schedule {
    /// By the time, and a number that makes it unique.
    jobs: BTreeMap<(Instant, u64), Job>,
    added: u64,
    /// The process that started the thread. A forked child has no thread, but finds its parent's
    /// number here.
    thread: Option<u32>,
}

enum Job {
    /// To sweep a cache in this interval, until it has no entries that can expire.
    Sweep(Weak<dyn Swept>, Duration),
    FreeDetached(Weak<dyn Swept>),
    Wake(Waker),
}

/// Sweeps a cache from now on, in this interval, until it has no entries that can expire, or was
/// dropped. If no thread can be started, nothing sweeps it until another job is added.
pub(super) fn sweep(cache: Weak<dyn Swept>, interval: Duration) {
    add(Job::Sweep(cache, interval), Instant::now() + interval);
}

/// Frees the detached entries of a cache soon.
pub(super) fn free_detached(cache: Weak<dyn Swept>) {
    add(Job::FreeDetached(cache), Instant::now());
}

/// Wakes a task at this time, or somewhat later.
pub(super) fn wake_at(time: Instant, waker: Waker) {
    add(Job::Wake(waker), time);
}

fn add(job: Job, time: Instant) {
    let mut schedule = SCHEDULE.lock().unwrap_or_else(PoisonError::into_inner);
    let is_first = schedule.insert(job, time);
    if schedule.thread != Some(std::process::id()) {
        schedule.start_thread();
    } else if is_first {
        CHANGED.notify_one();
    }
}

impl Schedule {
    /// Returns whether the job is the next one.
    fn insert(&mut self, job: Job, time: Instant) -> bool {
        self.added += 1;
        let due = (time, self.added);
        self.jobs.insert(due, job);
        self.jobs.first_key_value().is_some_and(|(first, _)| *first == due)
    }

    fn start_thread(&mut self) {
        let started = std::thread::Builder::new().name("relativist-expire".into()).spawn(run).is_ok();
        self.thread = started.then(std::process::id);
    }
}

local! {
    static IS_CURRENT: Cell<bool> = Cell::new(false);
}

/// Returns whether this is the background thread. It must not wait for readers: one that stays
/// would keep the entries of all caches.
pub(super) fn is_current() -> bool {
    IS_CURRENT.with(Cell::get)
}

fn run() {
    IS_CURRENT.with(|is_current| is_current.set(true));
    while let Some(job) = next() {
        let again = run_job(job);
        let mut schedule = SCHEDULE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((job, time)) = again {
            schedule.insert(job, time);
        }
        if is_reading() {
            // Code of the user has left a read section open on this thread, by leaking the guard.
            // Nothing would be reclaimed before it ends, so another thread takes over.
            return schedule.start_thread();
        }
    }
}

/// Runs a job. Returns when to run it again.
fn run_job(job: Job) -> Option<(Job, Instant)> {
    // If the cache has been dropped meanwhile, this is its last owner. A panic in its clock or in a
    // destructor must not end the thread.
    match job {
        Job::Sweep(cache, interval) => {
            let start = Instant::now();
            let mut again = true;
            contain(|| again = cache.upgrade().is_some_and(|cache| cache.sweep()));
            let pause = interval.max(start.elapsed() * REST);
            again.then(|| (Job::Sweep(cache, interval), Instant::now() + pause))
        }
        Job::FreeDetached(cache) => {
            contain(|| {
                if let Some(cache) = cache.upgrade() {
                    cache.free_detached();
                }
            });
            None
        }
        Job::Wake(waker) => {
            contain(|| waker.wake());
            None
        }
    }
}

/// Waits until a job is due. Returns `None` when there is none.
fn next() -> Option<Job> {
    let mut schedule = SCHEDULE.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let now = Instant::now();
        let Some(first) = schedule.jobs.first_entry() else {
            schedule.thread = None;
            return None;
        };
        let due = first.key().0;
        if due <= now {
            return Some(first.remove());
        }
        schedule = CHANGED.wait_timeout(schedule, due - now).unwrap_or_else(PoisonError::into_inner).0;
    }
}
