//! Latencies that recur in every round.
//!
//! A shared machine stalls for milliseconds at any time. In the percentiles of one round such
//! stalls look like those of a server that grows its table. But the table grows at the same time in
//! each round, while the machine stalls at random. So for each interval, the best of all rounds
//! shows the latency that the server itself causes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::measure::Sample;
use super::tally::Percentiles;
use crate::harness::stats::quantile;

/// The length of an interval. It is short, so that in at least one of a few rounds the machine does
/// not stall during the interval.
pub const PART: Duration = Duration::from_millis(100);

/// The name of this value in reports.
pub const NAME: &str = "the slowest GET of each tenth of a second in the best round";

/// Returns, for each interval, its start in seconds and the latency of its slowest GET in
/// nanoseconds, in the round where this latency is lowest. Intervals that are missing in some round
/// are left out.
pub fn best_of_rounds<'s>(samples: impl IntoIterator<Item = &'s Sample>) -> Vec<(f64, f64)> {
    // Times read from a file may differ in the last digit.
    let number = |at: f64| (at / PART.as_secs_f64()).round() as u64;
    let part = move |&(at, part): &(f64, Percentiles)| (number(at), (at, part.max));
    let mut rounds = samples.into_iter().map(|sample| sample.timeline.iter().map(part).collect());
    let first: BTreeMap<u64, (f64, f64)> = rounds.next().unwrap_or_default();
    let best = rounds.fold(first, |best, round: BTreeMap<u64, (f64, f64)>| {
        let both = |(part, (at, longest)): (u64, (f64, f64))| Some((part, (at, longest.min(round.get(&part)?.1))));
        best.into_iter().filter_map(both).collect()
    });
    best.into_values().collect()
}

/// The latency of the slowest GET in an interval, in nanoseconds: percentiles over all intervals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recurring {
    pub p50: f64,
    /// 9 of 10 intervals have no slower GET.
    pub p90: f64,
    /// 99 of 100 intervals have no slower GET.
    pub p99: f64,
    pub max: f64,
    pub parts: usize,
}

impl Recurring {
    /// Computes the percentiles from several rounds of a workload; `None` if the samples have no
    /// latencies over time.
    pub fn of<'s>(samples: impl IntoIterator<Item = &'s Sample>) -> Option<Self> {
        let mut longest: Vec<f64> = best_of_rounds(samples).into_iter().map(|(_, longest)| longest).collect();
        longest.sort_by(f64::total_cmp);
        let max = *longest.last()?;
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| quantile(&longest, share));
        Some(Self { p50, p90, p99, max, parts: longest.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(longest: &[(f64, f64)]) -> Sample {
        let part = |max| Percentiles { p50: 1.0, p90: 1.0, p99: 1.0, p999: 1.0, p9999: 1.0, max, count: 1 };
        Sample { timeline: longest.iter().map(|&(at, max)| (at, part(max))).collect(), ..Sample::default() }
    }

    #[test]
    fn what_comes_once_is_the_machines_and_what_comes_again_the_servers() {
        let rounds = [
            round(&[(0.0, 50.0), (0.1, 9000.0), (0.2, 800.0), (0.3, 40.0)]),
            round(&[(0.0, 7000.0), (0.1 + f64::EPSILON, 60.0), (0.2, 700.0)]),
        ];
        assert_eq!(best_of_rounds(&rounds), [(0.0, 50.0), (0.1, 60.0), (0.2, 700.0)]);
        let recurring = Recurring::of(&rounds).unwrap();
        assert_eq!((recurring.p50, recurring.max, recurring.parts), (60.0, 700.0, 3));
        assert_eq!(Recurring::of(&[Sample::default()]), None);
    }
}
