//! Expiry: when entries expire, and the clock.
//!
//! Times are nanoseconds since the cache was built. A cache without expiry has none of this, and
//! reads no clock. An entry that cannot expire has the deadline [`NEVER`], so that a hit on it
//! reads no clock either.

use std::sync::Weak;
use std::time::{Duration, Instant};

use relativist_core::sync::{AtomicBool, Relaxed, full_fence};

use super::background::{self, Swept};
use super::node::{Lifespan, NEVER, Node, Times};

pub(super) type AfterCreate<K, V> = Box<dyn Fn(&K, &V) -> Option<Duration> + Send + Sync>;
/// Also gets the time that the entry has left.
pub(super) type AfterUse<K, V> = Box<dyn Fn(&K, &V, Option<Duration>) -> Option<Duration> + Send + Sync>;
pub(super) type Clock = Box<dyn Fn() -> Instant + Send + Sync>;

/// A hit moves the deadline of an entry only if it moves by this part of the time that is left
/// then. So hits on an entry that is used all the time write only now and then, and an entry may
/// expire earlier by this part.
pub(super) const STEPS: u64 = 64;

/// Why an entry is looked up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To use it. So it is no longer idle.
    Hit,
    /// To look at it, which leaves no trace.
    Peek,
}

pub(super) struct Expiry<K, V> {
    /// The time to live of all entries.
    pub(super) live: Option<Duration>,
    pub(super) idle: Option<Duration>,
    /// The time to live of an entry.
    pub(super) after_create: Option<AfterCreate<K, V>>,
    pub(super) after_read: Option<AfterUse<K, V>>,
    pub(super) after_update: Option<AfterUse<K, V>>,
    /// The age from which a load refreshes an entry.
    pub(super) refresh: Option<Duration>,
    pub(super) clock: Option<Clock>,
    pub(super) start: Instant,
    /// Whether the background thread is going to sweep the cache. It does so only while there are
    /// entries that can expire, so that it need not look at idle caches.
    is_scheduled: AtomicBool,
}

impl<K, V> Expiry<K, V> {
    pub(super) fn new() -> Self {
        Self {
            live: None,
            idle: None,
            after_create: None,
            after_read: None,
            after_update: None,
            refresh: None,
            clock: None,
            start: Instant::now(),
            is_scheduled: AtomicBool::new(false),
        }
    }

    /// Returns whether entries can expire, or be refreshed.
    pub(super) fn is_limited(&self) -> bool {
        [self.live, self.idle, self.refresh].iter().any(Option::is_some) || self.has_own_lifetimes()
    }

    fn has_own_lifetimes(&self) -> bool {
        self.after_create.is_some() || self.after_read.is_some() || self.after_update.is_some()
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
        let unknown = self.has_own_lifetimes().then_some(UNKNOWN_LIFE);
        let life = [self.live, self.idle, unknown].into_iter().flatten().min().unwrap_or_default();
        (life / 4).clamp(MIN, MAX)
    }

    /// Schedules a sweep of the cache, if there is none. The caller has just inserted an entry that
    /// can expire.
    #[inline]
    pub(super) fn schedule(&self, cache: impl FnOnce() -> Option<Weak<dyn Swept>>) {
        // Relaxed: the update that has inserted the entry is a full barrier. Pairs with the fence
        // in `begin_sweep`: either this sees that no sweep will come, or the sweep sees the entry.
        if !self.is_scheduled.load(Relaxed) && self.reschedule() {
            if let Some(cache) = cache() {
                background::sweep(cache, self.interval());
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

    /// Returns whether an entry has not expired. A hit may move its deadline.
    #[inline]
    pub(super) fn is_alive<L: Lifespan>(&self, node: &Node<K, V, L>, purpose: Purpose) -> bool {
        let deadline = node.lifespan.deadline();
        // A function may end the life of an entry that never expires.
        let is_fixed = deadline == NEVER && (self.after_read.is_none() || purpose == Purpose::Peek);
        is_fixed || self.is_alive_now(node, deadline, purpose)
    }

    fn is_alive_now<L: Lifespan>(&self, node: &Node<K, V, L>, deadline: u64, purpose: Purpose) -> bool {
        let now = self.now();
        if now >= deadline {
            return false;
        }
        if purpose == Purpose::Hit && (self.idle.is_some() || self.after_read.is_some()) {
            let left = time_left(deadline, now);
            let own = self.after_read.as_ref().map(|after| after(&node.key, &node.value, left));
            let next = after(now, self.idle).min(after(now, own.flatten()));
            if deadline.abs_diff(next) > (next - now) / STEPS {
                node.lifespan.set_deadline(next);
            }
        }
        true
    }

    /// Returns how long an entry has left, if it expires.
    pub(super) fn time_left<L: Lifespan>(&self, node: &Node<K, V, L>) -> Option<Duration> {
        let deadline = node.lifespan.deadline();
        if deadline == NEVER { None } else { time_left(deadline, self.now()) }
    }

    /// Returns the times of a new entry. `replaced` is the time that the entry has left which it
    /// replaces, if there is one.
    pub(super) fn times(&self, key: &K, value: &V, replaced: Option<Option<Duration>>) -> Times {
        let own = match (&self.after_update, replaced) {
            (Some(after), Some(left)) => after(key, value, left),
            _ => self.after_create.as_ref().and_then(|after| after(key, value)),
        };
        if [own, self.live, self.idle, self.refresh].iter().all(Option::is_none) && self.after_read.is_none() {
            return Times::NEVER;
        }
        let now = self.now();
        let (live, own, idle) = (after(now, self.live), after(now, own), after(now, self.idle));
        Times {
            deadline: live.min(own).min(idle),
            last_deadline: if self.after_read.is_some() { live } else { live.min(own) },
            refresh: after(now, self.refresh),
        }
    }

    /// Claims the refresh of an entry that is old enough for it. If the refresh fails, another one
    /// may begin after the same time.
    pub(super) fn claim_refresh<L: Lifespan>(&self, node: &Node<K, V, L>) -> bool {
        let due = node.lifespan.refresh();
        if due == NEVER {
            return false;
        }
        let now = self.now();
        now >= due && node.lifespan.set_refresh(due, after(now, self.refresh))
    }
}

fn after(now: u64, time: Option<Duration>) -> u64 {
    time.map_or(NEVER, |time| now.saturating_add(nanoseconds(time)))
}

fn time_left(deadline: u64, now: u64) -> Option<Duration> {
    (deadline != NEVER).then(|| Duration::from_nanos(deadline.saturating_sub(now)))
}

/// Returns a duration in nanoseconds, which cover 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}
