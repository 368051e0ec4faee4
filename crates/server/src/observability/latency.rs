//! The latencies of commands: histograms of a sample.
//!
//! Latencies are execution times, without decoding, waiting and the network. The server samples one
//! in eight turns of serving a connection, with all commands executed in that turn. If a long
//! command pauses, the time after the pause is not included. Without `--admin` nothing is sampled,
//! and the check for that costs a branch. A bucket is an eighth of a power of two wide, so
//! quantiles are at most 12.5 % too high.
//!
//! A thread records with a plain load and store of a counter of its own, while the threads of
//! `--admin` read it. The histograms of the crate `hdrhistogram` are recorded through `&mut`: a
//! reader would need a lock on the path of commands, or their channel to another thread.

use crate::observability::counter::Counter;
use relativist_memcache::binary::Opcode;
use relativist_memcache::{Command, MetaVerb};
use std::time::{Duration, Instant};

/// The inverse of the sampling rate.
const TURNS: u64 = 8;

/// Commands that took less than 2^7 ns are in the first bucket.
const MIN_EXPONENT: u32 = 7;
/// Commands that took 2^33 ns (8.6 seconds) or more are in the last bucket.
const MAX_EXPONENT: u32 = 33;
/// Buckets from one power of two to the next.
const STEPS: usize = 8;
const BUCKETS: usize = (MAX_EXPONENT - MIN_EXPONENT) as usize * STEPS + 2;

/// The kind of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Fetches items.
    Get,
    /// Stores an item.
    Set,
    /// Removes an item.
    Delete,
    /// Sets an expiry.
    Touch,
    /// Increments or decrements a number.
    Arithmetic,
    /// All other commands.
    Other,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 6] = [Kind::Get, Kind::Set, Kind::Delete, Kind::Touch, Kind::Arithmetic, Kind::Other];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Set => "set",
            Kind::Delete => "delete",
            Kind::Touch => "touch",
            Kind::Arithmetic => "arithmetic",
            Kind::Other => "other",
        }
    }
}

impl From<&Command<'_>> for Kind {
    fn from(command: &Command<'_>) -> Kind {
        match command {
            Command::Get { .. } => Kind::Get,
            Command::Store { .. } => Kind::Set,
            Command::Delete { .. } => Kind::Delete,
            Command::Touch { .. } | Command::GetAndTouch { .. } => Kind::Touch,
            Command::Arithmetic { .. } => Kind::Arithmetic,
            Command::Meta(meta) => match meta.verb {
                MetaVerb::Get => Kind::Get,
                MetaVerb::Set => Kind::Set,
                MetaVerb::Delete => Kind::Delete,
                MetaVerb::Arithmetic => Kind::Arithmetic,
            },
            _ => Kind::Other,
        }
    }
}

impl From<Opcode> for Kind {
    fn from(opcode: Opcode) -> Kind {
        match opcode {
            Opcode::Get | Opcode::GetKey => Kind::Get,
            Opcode::Set | Opcode::Add | Opcode::Replace | Opcode::Append | Opcode::Prepend => Kind::Set,
            Opcode::Delete => Kind::Delete,
            Opcode::Touch | Opcode::GetAndTouch | Opcode::GetAndTouchKey => Kind::Touch,
            Opcode::Increment | Opcode::Decrement => Kind::Arithmetic,
            _ => Kind::Other,
        }
    }
}

/// The times of one thread's commands. Only that thread records them; all threads may read them.
#[derive(Debug, Default)]
pub struct Latencies {
    turns: Counter,
    histograms: [Histogram; Kind::ALL.len()],
}

impl Latencies {
    /// Begins a turn of serving a connection. Returns whether its commands are timed.
    pub fn samples_turn(&self) -> bool {
        self.turns.bump();
        self.turns.get().is_multiple_of(TURNS)
    }

    /// Times a command from now until the result is dropped.
    pub fn time(&self, kind: Kind) -> Timing<'_> {
        Timing { histogram: &self.histograms[kind as usize], start: Instant::now(), count: 1 }
    }
}

/// A command that is being timed.
pub struct Timing<'l> {
    histogram: &'l Histogram,
    start: Instant,
    count: usize,
}

impl Timing<'_> {
    /// Notes that `count` commands were executed together. Each is counted with an equal part of
    /// the time.
    pub fn share(mut self, count: usize) {
        self.count = count;
    }
}

impl Drop for Timing<'_> {
    fn drop(&mut self) {
        self.histogram.record(self.start.elapsed(), self.count as u64);
    }
}

/// A histogram of the times of commands, written by one thread.
#[derive(Debug)]
struct Histogram {
    buckets: [Counter; BUCKETS],
    nanoseconds: Counter,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: std::array::from_fn(|_| Counter::default()), nanoseconds: Counter::default() }
    }
}

impl Histogram {
    /// Notes that `count` commands, one at least, took `time` together.
    fn record(&self, time: Duration, count: u64) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanoseconds / count)].add(count);
        self.nanoseconds.add(nanoseconds);
    }
}

fn bucket_of(nanoseconds: u64) -> usize {
    match nanoseconds.checked_ilog2().unwrap_or(0) {
        ..MIN_EXPONENT => 0,
        MAX_EXPONENT.. => BUCKETS - 1,
        exponent => {
            let step = (nanoseconds >> (exponent - STEPS.ilog2())) as usize % STEPS;
            1 + (exponent - MIN_EXPONENT) as usize * STEPS + step
        }
    }
}

/// The upper bound of a bucket in nanoseconds, exclusive. The last bucket has none.
fn upper_bound(bucket: usize) -> Option<u64> {
    let exponent = MIN_EXPONENT + (bucket / STEPS) as u32;
    (bucket < BUCKETS - 1).then(|| (1 << exponent) + (1 << (exponent - STEPS.ilog2())) * (bucket % STEPS) as u64)
}

/// The times of one kind of commands on all threads, at some moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Distribution {
    buckets: [u64; BUCKETS],
    nanoseconds: u64,
}

impl Distribution {
    /// The sum over `threads`.
    pub fn of<'l>(kind: Kind, threads: impl Iterator<Item = &'l Latencies>) -> Distribution {
        let mut sum = Distribution { buckets: [0; BUCKETS], nanoseconds: 0 };
        for histogram in threads.map(|latencies| &latencies.histograms[kind as usize]) {
            for (bucket, counter) in sum.buckets.iter_mut().zip(&histogram.buckets) {
                *bucket += counter.get();
            }
            sum.nanoseconds += histogram.nanoseconds.get();
        }
        sum
    }

    /// Commands timed.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of their times.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds)
    }

    /// The non-empty buckets: the upper bound in nanoseconds (none for the last bucket), and the
    /// number of commands.
    pub fn occupied(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.buckets.iter().enumerate().filter(|(_, count)| **count > 0).map(|(n, count)| (upper_bound(n), *count))
    }

    /// For each power of two in nanoseconds, the number of commands that took less time.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        (MIN_EXPONENT..=MAX_EXPONENT).map(|exponent| {
            let below = 1 + (exponent - MIN_EXPONENT) as usize * STEPS;
            (1 << exponent, self.buckets[..below].iter().sum())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_bound_is_at_most_an_eighth_above_its_times() {
        for nanoseconds in (0..34).flat_map(|exponent| [1u64 << exponent, (1 << exponent) + 1, (1 << exponent) * 2 - 1])
        {
            match upper_bound(bucket_of(nanoseconds)) {
                Some(bound) => {
                    assert!(nanoseconds < bound, "{nanoseconds}");
                    assert!(bound <= 1 << MIN_EXPONENT || bound - nanoseconds <= nanoseconds / 8 + 1, "{nanoseconds}");
                }
                None => assert!(nanoseconds >= 1 << MAX_EXPONENT, "{nanoseconds}"),
            }
        }
        let bounds: Vec<u64> = (0..BUCKETS).filter_map(upper_bound).collect();
        assert!(bounds.is_sorted_by(|one, other| one < other));
        assert_eq!(bounds.last(), Some(&(1 << MAX_EXPONENT)));
    }

    #[test]
    fn threads_add_up() {
        let threads = [Latencies::default(), Latencies::default()];
        for (thread, nanoseconds) in [(0, 100), (0, 200), (1, 200), (1, 1 << 40)] {
            threads[thread].histograms[Kind::Set as usize].record(Duration::from_nanos(nanoseconds), 1);
        }
        let sum = Distribution::of(Kind::Set, threads.iter());
        assert_eq!((sum.count(), sum.total()), (4, Duration::from_nanos((1 << 40) + 500)));
        assert_eq!(sum.occupied().collect::<Vec<_>>(), [(Some(128), 1), (Some(208), 2), (None, 1)]);
        assert_eq!(sum.cumulative().take(2).collect::<Vec<_>>(), [(128, 1), (256, 3)]);
        assert_eq!(sum.cumulative().last(), Some((1 << MAX_EXPONENT, 3)));
        assert_eq!(Distribution::of(Kind::Get, threads.iter()).count(), 0);
    }

    #[test]
    fn commands_executed_together_share_the_time() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_nanos(600), 3);
        assert_eq!(histogram.buckets[bucket_of(200)].get(), 3);
        assert_eq!(histogram.nanoseconds.get(), 600);
    }

    #[test]
    fn one_turn_of_eight_is_sampled() {
        let latencies = Latencies::default();
        assert_eq!((0..8 * TURNS).filter(|_| latencies.samples_turn()).count(), 8);
    }
}
