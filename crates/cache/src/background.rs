//! The background thread that frees expired entries, one per process. It runs while there are
//! entries that can expire. A cache without such entries is not in the schedule, and costs nothing.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use relativist_core::unwind::contain;
use relativist_rcu::is_reading;

use super::expiry::Sweep;

/// After a sweep the thread rests for at least this many times as long as it took.
const REST: u32 = 19;

static SCHEDULE: Mutex<Schedule> = Mutex::new(Schedule { caches: BTreeMap::new(), added: 0, thread: None });
static CHANGED: Condvar = Condvar::new();

struct Schedule {
    /// By the time of the next sweep, and a number that makes it unique.
    caches: BTreeMap<(Instant, u64), Scheduled>,
    added: u64,
    /// The process that started the thread. A forked child has no thread, but finds its parent's
    /// number here.
    thread: Option<u32>,
}

struct Scheduled {
    cache: Weak<dyn Sweep>,
    interval: Duration,
}

/// Sweeps a cache from now on, in this interval, until it has no entries that can expire, or was
/// dropped. If no thread can be started, nothing sweeps it until another cache is added.
pub(super) fn add(cache: Weak<dyn Sweep>, interval: Duration) {
    let mut schedule = SCHEDULE.lock().unwrap_or_else(PoisonError::into_inner);
    let is_first = schedule.insert(Scheduled { cache, interval }, interval);
    if schedule.thread != Some(std::process::id()) {
        schedule.start_thread();
    } else if is_first {
        CHANGED.notify_one();
    }
}

impl Schedule {
    /// Returns whether the cache is the next one to sweep.
    fn insert(&mut self, cache: Scheduled, pause: Duration) -> bool {
        self.added += 1;
        let due = (Instant::now() + pause, self.added);
        self.caches.insert(due, cache);
        self.caches.first_key_value().is_some_and(|(first, _)| *first == due)
    }

    fn start_thread(&mut self) {
        let started = std::thread::Builder::new().name("relativist-expire".into()).spawn(run).is_ok();
        self.thread = started.then(std::process::id);
    }
}

fn run() {
    while let Some(Scheduled { cache, interval }) = next() {
        let start = Instant::now();
        // If the cache has been dropped meanwhile, this is its last owner. A panic in its clock or
        // in a destructor must not end the thread.
        let mut again = true;
        contain(|| again = cache.upgrade().is_some_and(|cache| cache.sweep()));
        let mut schedule = SCHEDULE.lock().unwrap_or_else(PoisonError::into_inner);
        if again {
            schedule.insert(Scheduled { cache, interval }, interval.max(start.elapsed() * REST));
        }
        if is_reading() {
            // Code of the user has left a read section open on this thread, by leaking the guard.
            // Nothing would be reclaimed before it ends, so another thread takes over.
            return schedule.start_thread();
        }
    }
}

/// Waits until a cache is due. Returns `None` when no cache is scheduled.
fn next() -> Option<Scheduled> {
    let mut schedule = SCHEDULE.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let now = Instant::now();
        let Some(first) = schedule.caches.first_entry() else {
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
