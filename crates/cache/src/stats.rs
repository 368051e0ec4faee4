//! Statistics: counts of hits and misses, which no two threads write on the same cache line.

use std::time::Duration;

use relativist_rcu::Guard;

use relativist_core::sync::{AtomicU64, Relaxed};

/// The number of threads that count on a line of their own.
const OWN: usize = 64;

/// Statistics of a [`Cache`](super::Cache); see [`Cache::stats`](super::Cache::stats).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Lookups that found their key: a call of `get`, `get_ref`, or one of the functions that load.
    /// 0 without [`Builder::record_stats`](super::Builder::record_stats).
    pub hits: u64,
    /// Lookups that did not find their key, or found an entry that had expired. 0 without
    /// [`Builder::record_stats`](super::Builder::record_stats).
    pub misses: u64,
    /// Entries that were removed to make room.
    pub evictions: u64,
    /// Entries that were removed because they had expired.
    pub expirations: u64,
    /// Calls of loaders that returned a value.
    pub loads: u64,
    /// Calls of loaders that returned an error, panicked or were cancelled.
    pub failed_loads: u64,
    /// The time that all these loaders took.
    pub load_time: Duration,
    /// Calls that waited for the loader of another caller. They count as misses, too.
    pub waits: u64,
    /// Updates that waited for readers, because the removed entries that readers may still have
    /// were too heavy.
    pub stalls: u64,
}

impl Stats {
    /// Returns the part of the lookups that were hits; 0 if there were no lookups.
    pub fn hit_ratio(&self) -> f64 {
        match self.hits + self.misses {
            0 => 0.0,
            lookups => self.hits as f64 / lookups as f64,
        }
    }
}

/// Two cache lines, because processors fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Line {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Counts lookups. Each of the first [`OWN`] threads has a line of its own; the others share one.
pub(super) struct Recorder {
    lines: Box<[Line]>,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self { lines: (0..=OWN).map(|_| Line::default()).collect() }
    }

    #[inline]
    pub(super) fn record(&self, hit: bool, guard: &Guard) {
        let index = guard.thread_index();
        let line = &self.lines[index.min(OWN)];
        let count = if hit { &line.hits } else { &line.misses };
        // Relaxed, all: a count orders nothing. A thread's own line has one writer at a time, and
        // the next owner sees what the previous one wrote (`Guard::thread_index`).
        if index < OWN {
            count.store(count.load(Relaxed) + 1, Relaxed);
        } else {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Returns the numbers of hits and misses.
    pub(super) fn sums(&self) -> (u64, u64) {
        // Relaxed: as above.
        let sum = |count: fn(&Line) -> &AtomicU64| self.lines.iter().map(|line| count(line).load(Relaxed)).sum();
        (sum(|line| &line.hits), sum(|line| &line.misses))
    }
}

/// Counts loads. They take much longer than to count them in one place.
#[derive(Default)]
pub(super) struct LoadCounts {
    loads: AtomicU64,
    failed: AtomicU64,
    nanoseconds: AtomicU64,
    waits: AtomicU64,
}

impl LoadCounts {
    pub(super) fn record(&self, succeeded: bool, time: Duration) {
        // Relaxed, both: counts order nothing.
        if succeeded { &self.loads } else { &self.failed }.fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(super) fn record_wait(&self) {
        // Relaxed: as above.
        self.waits.fetch_add(1, Relaxed);
    }

    pub(super) fn add_to(&self, stats: &mut Stats) {
        // Relaxed, all: as above.
        stats.loads = self.loads.load(Relaxed);
        stats.waits = self.waits.load(Relaxed);
        stats.failed_loads = self.failed.load(Relaxed);
        stats.load_time = Duration::from_nanos(self.nanoseconds.load(Relaxed));
    }
}
