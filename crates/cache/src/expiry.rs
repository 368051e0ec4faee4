//! Expiry: when entries expire, and the clock.
//!
//! Times are nanoseconds since the cache was built. A cache without expiry has none of this, and
//! reads no clock. An entry that cannot expire has the deadline [`NEVER`], so that a hit on it
//! reads no clock either.

use std::sync::{OnceLock, Weak};
use std::time::{Duration, Instant};

use relativist_core::sync::{AtomicBool, Relaxed, full_fence};

use super::entry::{Lifespan, NEVER};

pub(super) type After<K, V> = Box<dyn Fn(&K, &V) -> Option<Duration> + Send + Sync>;
pub(super) type Clock = Box<dyn Fn() -> Instant + Send + Sync>;

/// A hit postpones the deadline of an idle entry only if it moves by this part of the time to idle.
/// So hits on an entry that is used all the time write only now and then, and an entry may expire
/// earlier by this part.
pub(super) const IDLE_STEPS: u32 = 64;

/// Why an entry is looked up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To use it. So it is no longer idle.
    Hit,
    /// To look at it, which leaves no trace.
    Peek,
}

/// A cache whose entries expire.
pub(super) trait Sweep: Send + Sync {
    /// Frees the entries that have expired. Returns whether another sweep must be scheduled.
    fn sweep(&self) -> bool;
}

pub(super) struct Expiry<K, V> {
    /// The time to live of all entries.
    pub(super) live: Option<Duration>,
    pub(super) idle: Option<Duration>,
    /// The time to live of an entry.
    pub(super) after: Option<After<K, V>>,
    pub(super) clock: Option<Clock>,
    pub(super) start: Instant,
    /// The cache, set when it is built.
    pub(super) cache: OnceLock<Weak<dyn Sweep>>,
    /// Whether the background thread is going to sweep the cache. It does so only while there are
    /// entries that can expire, so that it need not look at idle caches.
    is_scheduled: AtomicBool,
}

impl<K, V> Expiry<K, V> {
    pub(super) fn new() -> Self {
        Self {
            live: None,
            idle: None,
            after: None,
            clock: None,
            start: Instant::now(),
            cache: OnceLock::new(),
            is_scheduled: AtomicBool::new(false),
        }
    }

    /// Returns whether entries can expire.
    pub(super) fn is_limited(&self) -> bool {
        self.live.is_some() || self.idle.is_some() || self.after.is_some()
    }

    /// Starts the clock. Returns `None` if no entry can expire.
    pub(super) fn started(mut self) -> Option<Self> {
        if !self.is_limited() {
            return None;
        }
        self.start = self.clock.as_ref().map_or_else(Instant::now, |clock| clock());
        Some(self)
    }

    /// Returns how often to look for expired entries: a few times in the life of an entry.
    pub(super) fn interval(&self) -> Duration {
        /// The time to live that is assumed if a function decides about it.
        const UNKNOWN_LIFE: Duration = Duration::from_secs(4);
        const MIN: Duration = Duration::from_millis(50);
        const MAX: Duration = Duration::from_secs(30);
        let unknown = self.after.as_ref().map(|_| UNKNOWN_LIFE);
        let life = [self.live, self.idle, unknown].into_iter().flatten().min().unwrap_or_default();
        (life / 4).clamp(MIN, MAX)
    }

    /// Schedules a sweep, if there is none. The caller has just inserted an entry that can expire.
    #[inline]
    pub(super) fn schedule(&self) {
        // Relaxed: the update that has inserted the entry is a full barrier. Pairs with the fence
        // in `begin_sweep`: either this sees that no sweep will come, or the sweep sees the entry.
        if !self.is_scheduled.load(Relaxed) {
            self.schedule_first();
        }
    }

    #[cold]
    fn schedule_first(&self) {
        if self.reschedule() {
            if let Some(cache) = self.cache.get() {
                super::background::add(Weak::clone(cache), self.interval());
            }
        }
    }

    /// Returns whether there was no sweep to come. Then the caller schedules one.
    pub(super) fn reschedule(&self) -> bool {
        // Relaxed: the lock of the schedule orders what follows.
        !self.is_scheduled.swap(true, Relaxed)
    }

    /// Begins the sweep that was scheduled. An insertion that this sweep may miss schedules
    /// another.
    pub(super) fn begin_sweep(&self) {
        // Relaxed: see `schedule`.
        self.is_scheduled.store(false, Relaxed);
        // litmus: sweep-scheduled
        full_fence();
    }

    pub(super) fn now(&self) -> u64 {
        let now = self.clock.as_ref().map_or_else(Instant::now, |clock| clock());
        // A clock that is centuries ahead must not make entries expire that never do.
        nanoseconds(now.saturating_duration_since(self.start)).min(NEVER - 1)
    }

    /// Returns whether an entry has not expired. A hit also postpones the deadline of an entry that
    /// may be idle only for some time.
    #[inline]
    pub(super) fn is_alive(&self, lifespan: &impl Lifespan, purpose: Purpose) -> bool {
        let deadline = lifespan.deadline();
        deadline == NEVER || self.is_alive_now(lifespan, deadline, purpose)
    }

    fn is_alive_now(&self, lifespan: &impl Lifespan, deadline: u64, purpose: Purpose) -> bool {
        let now = self.now();
        if now >= deadline {
            return false;
        }
        match (self.idle, purpose) {
            (Some(idle), Purpose::Hit) => {
                lifespan.postpone(now.saturating_add(nanoseconds(idle)), nanoseconds(idle / IDLE_STEPS));
            }
            (None, _) | (_, Purpose::Peek) => {}
        }
        true
    }

    /// Returns the deadline of a new entry, and the latest one to which hits may postpone it.
    pub(super) fn deadlines(&self, key: &K, value: &V) -> (u64, u64) {
        let own = self.after.as_ref().and_then(|after| after(key, value));
        let live = [self.live, own].into_iter().flatten().min();
        if live.is_none() && self.idle.is_none() {
            return (NEVER, NEVER);
        }
        let now = self.now();
        let after = |time: Option<Duration>| time.map_or(NEVER, |time| now.saturating_add(nanoseconds(time)));
        let last = after(live);
        (after(self.idle).min(last), last)
    }
}

/// Returns a duration in nanoseconds, which cover 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}
