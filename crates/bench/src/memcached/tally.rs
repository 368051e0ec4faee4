//! Counters and latencies of a measurement.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longer latencies are recorded as this one.
const MAX_NANOSECONDS: u64 = 600_000_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// When the first requests are due. Until `from`, servers and caches warm up.
    pub begin: Instant,
    pub from: Instant,
    /// When the window closes. Requests that are due later are not sent.
    pub until: Instant,
}

impl Window {
    /// Makes a window that opens after `warm_up`.
    pub fn after(warm_up: Duration, measured: Duration) -> Self {
        let begin = Instant::now();
        let from = begin + warm_up;
        Self { begin, from, until: from + measured }
    }

    /// Makes a window that never opens.
    pub fn never() -> Self {
        let begin = Instant::now();
        let never = begin + Duration::from_secs(1 << 30);
        Self { begin, from: never, until: never }
    }

    /// Returns whether the window is open at `time`.
    #[inline]
    pub fn has(&self, time: Instant) -> bool {
        self.from <= time && time < self.until
    }

    pub fn length(&self) -> Duration {
        self.until - self.from
    }
}

/// The counts of a thread, or of all of them.
///
/// Rates count replies that arrived while the window was open. Latencies count requests that were
/// sent or due in it. Everything else is always counted.
#[derive(Debug)]
pub struct Tally {
    /// Requests that were answered in the window.
    pub answered: u64,
    pub asked: u64,
    /// The number of requested keys that were found.
    pub found: u64,
    /// The number of requests that the server refused.
    pub refused: u64,
    /// The reply to the first refused request.
    pub refusal: Option<String>,
    /// The number of due requests that were not answered in time.
    pub late: u64,
    pub broken: u64,
    /// The number of requests without a reply when their connection broke. In an open loop, the
    /// time until then counts as their latency.
    pub lost: u64,
    /// Why the first broken connection broke.
    pub breakage: Option<String>,
    /// CPU time of the threads while the window was open.
    pub cpu: Duration,
    gets: Histogram<u64>,
    sets: Histogram<u64>,
    timeline: Option<Timeline>,
}

impl Tally {
    /// Makes an empty tally. If `slot` is given, latencies of GETs are also kept for each interval
    /// of this length.
    pub fn new(slot: Option<Duration>) -> Self {
        Self {
            answered: 0,
            asked: 0,
            found: 0,
            refused: 0,
            refusal: None,
            late: 0,
            broken: 0,
            lost: 0,
            breakage: None,
            cpu: Duration::ZERO,
            gets: histogram(3),
            sets: histogram(3),
            timeline: slot.map(|slot| Timeline { slot, slots: Vec::new() }),
        }
    }

    /// Records the latency of a request that was sent, or due, at `at`.
    #[inline]
    pub fn record(&mut self, is_set: bool, window: &Window, at: Instant, now: Instant) {
        let latency = (now.saturating_duration_since(at).as_nanos() as u64).clamp(1, MAX_NANOSECONDS);
        if is_set {
            self.sets.saturating_record(latency);
        } else {
            self.gets.saturating_record(latency);
            if let Some(timeline) = &mut self.timeline {
                timeline.record(at - window.from, latency);
            }
        }
    }

    pub fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.asked += other.asked;
        self.found += other.found;
        self.refused += other.refused;
        self.refusal = self.refusal.take().or(other.refusal);
        self.late += other.late;
        self.broken += other.broken;
        self.lost += other.lost;
        self.breakage = self.breakage.take().or(other.breakage);
        self.cpu += other.cpu;
        self.gets.add(other.gets).expect("the bounds are the same");
        self.sets.add(other.sets).expect("the bounds are the same");
        if let Some((timeline, other)) = self.timeline.as_mut().zip(other.timeline) {
            timeline.add(other);
        }
    }

    /// Returns the latencies of GETs, if there were any.
    pub fn gets(&self) -> Option<Percentiles> {
        Percentiles::of(&self.gets)
    }

    /// Returns the latencies of SETs, if there were any.
    pub fn sets(&self) -> Option<Percentiles> {
        Percentiles::of(&self.sets)
    }

    /// Returns the latencies of GETs over time: the start of each interval in seconds, and its
    /// percentiles.
    pub fn timeline(&self) -> Vec<(f64, Percentiles)> {
        let Some(Timeline { slot, slots }) = &self.timeline else { return Vec::new() };
        let at = |number: usize| number as f64 * slot.as_secs_f64();
        slots.iter().enumerate().filter_map(|(number, slot)| Some((at(number), Percentiles::of(slot)?))).collect()
    }
}

#[derive(Debug)]
struct Timeline {
    slot: Duration,
    slots: Vec<Histogram<u64>>,
}

impl Timeline {
    fn record(&mut self, since: Duration, latency: u64) {
        let slot = (since.as_nanos() / self.slot.as_nanos()) as usize;
        self.reach(slot + 1);
        self.slots[slot].saturating_record(latency);
    }

    fn reach(&mut self, slots: usize) {
        while self.slots.len() < slots {
            self.slots.push(histogram(2));
        }
    }

    fn add(&mut self, other: Self) {
        self.reach(other.slots.len());
        for (slot, other) in self.slots.iter_mut().zip(other.slots) {
            slot.add(other).expect("the bounds are the same");
        }
    }
}

fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_NANOSECONDS, digits).expect("these bounds are valid")
}

/// Percentiles of latencies, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The 99.99th percentile.
    pub p9999: f64,
    pub max: f64,
    pub count: u64,
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64;
        (!histogram.is_empty()).then(|| Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: histogram.max() as f64,
            count: histogram.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_kept_by_kind_and_by_time() {
        let window = Window::after(Duration::ZERO, Duration::from_secs(10));
        let at = |millis| window.from + Duration::from_millis(millis);
        let [mut one, mut other] = [(); 2].map(|()| Tally::new(Some(Duration::from_secs(1))));
        one.record(false, &window, at(100), at(105));
        one.record(true, &window, at(100), at(200));
        other.record(false, &window, at(2500), at(2507));
        other.record(false, &window, at(2600), at(2601));
        one.add(other);
        let near = |found: f64, millis: f64| assert!((found / 1e6 / millis - 1.0).abs() < 0.01, "{found} ns");
        near(one.sets().unwrap().max, 100.0);
        let gets = one.gets().unwrap();
        assert_eq!(gets.count, 3);
        near(gets.p50, 5.0);
        near(gets.max, 7.0);
        let timeline = one.timeline();
        assert_eq!(
            timeline.iter().map(|(at, latencies)| (*at, latencies.count)).collect::<Vec<_>>(),
            [(0.0, 1), (2.0, 2)]
        );
        near(timeline[1].1.max, 7.0);
    }
}
