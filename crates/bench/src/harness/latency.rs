//! Latencies of single operations, and the part of them that the scheduler causes.
//!
//! Each operation is timed by itself, which adds about 25 ns. After an operation of more than 10 µs
//! the thread asks Linux how long it has been runnable without a CPU (the second number of
//! `/proc/thread-self/schedstat`), and subtracts the increase since it last asked. Time asleep in a
//! lock is not subtracted. Time taken by a hypervisor is not subtracted either; the row "harness
//! alone" shows how much that is.

use std::fs::File;
use std::hint::black_box;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// An operation that takes longer may have been interrupted by the scheduler.
const SUSPICIOUS: Duration = Duration::from_micros(10);

/// The latencies of one thread, or of several together.
#[derive(Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    longest: Duration,
    longest_scheduled: Option<Duration>,
    scheduler: Option<Scheduler>,
}

/// Percentiles of latencies, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The 99.99th percentile.
    #[serde(default)]
    pub p9999: f64,
    pub longest: f64,
    /// The maximum after the time that the thread waited for a CPU is subtracted from each latency;
    /// `None` if the system does not report that time.
    pub longest_scheduled: Option<f64>,
}

impl Latencies {
    /// Makes an empty histogram. The calling thread must be the one that is timed.
    pub fn new() -> Self {
        let scheduler = Scheduler::of_this_thread();
        Self {
            // Up to a minute, with three digits.
            histogram: Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("these bounds are valid"),
            longest: Duration::ZERO,
            longest_scheduled: scheduler.is_some().then_some(Duration::ZERO),
            scheduler,
        }
    }

    #[inline(always)]
    pub fn time(&mut self, operation: impl FnOnce()) {
        let began = Instant::now();
        operation();
        self.record(began.elapsed());
    }

    #[inline(always)]
    fn record(&mut self, taken: Duration) {
        self.histogram.saturating_record(taken.as_nanos() as u64);
        if taken > SUSPICIOUS {
            self.examine(taken);
        }
    }

    #[cold]
    fn examine(&mut self, taken: Duration) {
        self.longest = self.longest.max(taken);
        let waited = self.scheduler.as_mut().and_then(Scheduler::waited_since);
        let scheduled = waited.map(|waited| taken.saturating_sub(waited));
        self.longest_scheduled = self.longest_scheduled.zip(scheduled).map(|(longest, this)| longest.max(this));
    }

    pub fn add(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("the bounds are the same");
        self.longest = self.longest.max(other.longest);
        let both = self.longest_scheduled.zip(other.longest_scheduled);
        self.longest_scheduled = both.map(|(one, other)| one.max(other));
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.histogram.value_at_quantile(quantile) as f64;
        // `examine` is not called for shorter operations, so `longest` does not cover them.
        let short = self.histogram.iter_recorded().map(|step| step.value_iterated_to()).map(Duration::from_nanos);
        let unexamined = short.take_while(|&taken| taken <= SUSPICIOUS).last().unwrap_or_default();
        let longest = |examined: Duration| examined.max(unexamined).as_nanos() as f64;
        Percentiles {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            longest: longest(self.longest),
            longest_scheduled: self.longest_scheduled.map(longest),
        }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// Times `count` empty operations: the cost of the harness itself.
pub fn time_nothing(count: u64, latencies: &mut Latencies) {
    for number in 0..count {
        latencies.time(|| {
            black_box(number);
        });
    }
}

/// Reads the scheduler's statistics of the thread that created it.
#[derive(Debug)]
struct Scheduler {
    file: File,
    waited: Duration,
}

impl Scheduler {
    #[cfg(target_os = "linux")]
    fn of_this_thread() -> Option<Self> {
        let mut scheduler = Self { file: File::open("/proc/thread-self/schedstat").ok()?, waited: Duration::ZERO };
        scheduler.waited_since()?;
        Some(scheduler)
    }

    #[cfg(not(target_os = "linux"))]
    fn of_this_thread() -> Option<Self> {
        None
    }

    /// Returns the time that the thread has waited for a CPU since the last call.
    fn waited_since(&mut self) -> Option<Duration> {
        let waited = self.waited_so_far()?;
        Some(waited.saturating_sub(std::mem::replace(&mut self.waited, waited)))
    }

    #[cfg(unix)]
    fn waited_so_far(&self) -> Option<Duration> {
        use std::os::unix::fs::FileExt;
        let mut text = [0; 96];
        let length = self.file.read_at(&mut text, 0).ok()?;
        parse_waited(std::str::from_utf8(&text[..length]).ok()?)
    }

    #[cfg(not(unix))]
    fn waited_so_far(&self) -> Option<Duration> {
        None
    }
}

/// Parses the second number of `schedstat`: nanoseconds on a run queue.
fn parse_waited(text: &str) -> Option<Duration> {
    text.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_scheduler() -> Latencies {
        Latencies { scheduler: None, longest_scheduled: None, ..Latencies::new() }
    }

    #[test]
    fn percentiles_are_of_what_was_recorded() {
        let mut latencies = without_scheduler();
        (1..=1000).for_each(|micros| latencies.record(Duration::from_micros(micros)));
        let Percentiles { p50, p99, p999, p9999, longest, longest_scheduled } = latencies.percentiles();
        for (found, expected) in [(p50, 500e3), (p99, 990e3), (p999, 999e3), (p9999, 1e6)] {
            assert!((found / expected - 1.0).abs() < 0.002, "{found} instead of {expected}");
        }
        assert_eq!((longest, longest_scheduled), (1e6, None));
    }

    #[test]
    fn short_operations_have_a_longest_too() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_nanos(70));
        latencies.record(Duration::from_nanos(50));
        assert_eq!(latencies.percentiles().longest, 70.0);
    }

    #[test]
    fn what_the_scheduler_took_is_left_out() {
        let mut latencies = without_scheduler();
        latencies.longest_scheduled = Some(Duration::ZERO);
        latencies.record(Duration::from_nanos(80));
        latencies.histogram.record(5_000_000).unwrap();
        latencies.longest = Duration::from_millis(5);
        let Percentiles { longest, longest_scheduled, .. } = latencies.percentiles();
        assert_eq!((longest, longest_scheduled), (5e6, Some(80.0)));
    }

    #[test]
    fn threads_add_up() {
        let (mut one, mut other) = (without_scheduler(), without_scheduler());
        one.record(Duration::from_micros(20));
        other.record(Duration::from_micros(30));
        one.add(&other);
        assert_eq!((one.histogram.len(), one.percentiles().longest), (2, 30e3));
    }

    #[test]
    fn waiting_is_the_second_number() {
        assert_eq!(parse_waited("123 456 789\n"), Some(Duration::from_nanos(456)));
        assert_eq!(parse_waited(""), None);
    }

    #[test]
    fn apart_from_scheduling_is_at_most_the_whole() {
        let mut latencies = Latencies::new();
        for _ in 0..3 {
            latencies.time(std::thread::yield_now);
            latencies.record(Duration::from_millis(1));
        }
        let Percentiles { longest, longest_scheduled, .. } = latencies.percentiles();
        assert!(longest_scheduled.is_none_or(|scheduled| scheduled <= longest));
    }
}
