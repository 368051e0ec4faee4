//! A comparison: several candidates measured in turns under one setting, each compared with the
//! first of them.

use anyhow::Result;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use crate::harness::report::{significant, table};
use crate::harness::rounds::order;
use crate::harness::stats::{Summary, ratios};
use crate::harness::workers::{Clock, WorkerResult, min_cpu_share};

/// The results of all candidates under one setting.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison<S> {
    /// The parameters that all candidates share.
    #[serde(flatten)]
    pub setting: S,
    pub unit: &'static str,
    /// One entry for each candidate. The first one is the reference for the others.
    #[serde(rename = "contenders")]
    pub candidates: Vec<CandidateResult>,
}

/// The results of one candidate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CandidateResult {
    pub name: &'static str,
    pub value: Summary,
    /// The candidate with which this one is compared: the first one, unless another one is more
    /// similar.
    pub against: &'static str,
    /// The value of this candidate divided by the value of `against` in the same round: above 1,
    /// this candidate is slower or larger.
    pub ratio: Summary,
    /// The target and whether it was met, if there is a target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub wanted: String,
    pub met: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The round, from 0.
    pub round: usize,
    /// The number of candidates that were measured earlier in this round.
    pub position: usize,
    pub value: f64,
    pub threads: Vec<f64>,
    /// The minimum, over the threads, of the share of time spent on a CPU, if the system reports
    /// it.
    pub cpu_share: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct Measured {
    threads: Vec<f64>,
    cpu_share: Option<f64>,
}

impl Measured {
    /// Returns the mean over threads that did the same work independently.
    pub fn of(results: &[WorkerResult], clock: Clock) -> Self {
        let threads = results.iter().map(|result| result.nanoseconds(clock)).collect();
        Self { threads, cpu_share: min_cpu_share(results) }
    }

    /// Returns the result of the slowest thread. For threads that share a task this is the time of
    /// the task.
    pub fn of_slowest(results: &[WorkerResult], clock: Clock) -> Self {
        let slowest = results.iter().map(|result| result.nanoseconds(clock)).max_by(f64::total_cmp);
        Self { threads: slowest.into_iter().collect(), cpu_share: min_cpu_share(results) }
    }

    pub fn single(value: f64) -> Self {
        Self { threads: vec![value], cpu_share: None }
    }
}

/// Measures the candidates called `names` for `rounds` rounds, in nanoseconds.
///
/// `measure(candidate, round)` measures one of them once and returns the results of its threads.
pub fn compare<S>(
    setting: S,
    names: &[&'static str],
    rounds: u32,
    bar: &ProgressBar,
    mut measure: impl FnMut(usize, usize) -> Result<Measured>,
) -> Result<Comparison<S>> {
    let measure = |candidate, round| Ok([measure(candidate, round)?]);
    let [comparison] = compare_several([(setting, "ns")], names, rounds, bar, measure)?;
    Ok(comparison)
}

/// Works like [`compare`], for measurements that give several values. Returns a comparison for each
/// value, with its setting and unit.
pub fn compare_several<S, const VALUES: usize>(
    settings: [(S, &'static str); VALUES],
    names: &[&'static str],
    rounds: u32,
    bar: &ProgressBar,
    mut measure: impl FnMut(usize, usize) -> Result<[Measured; VALUES]>,
) -> Result<[Comparison<S>; VALUES]> {
    let mut samples: [Vec<Vec<Sample>>; VALUES] = std::array::from_fn(|_| vec![Vec::new(); names.len()]);
    for round in 0..rounds as usize {
        for (position, candidate) in order(round, names.len()).enumerate() {
            bar.set_message(names[candidate]);
            for (samples, Measured { threads, cpu_share }) in samples.iter_mut().zip(measure(candidate, round)?) {
                let value = threads.iter().sum::<f64>() / threads.len() as f64;
                samples[candidate].push(Sample { round, position, value, threads, cpu_share });
            }
            bar.inc(1);
        }
    }
    let mut samples = samples.into_iter();
    Ok(settings.map(|(setting, unit)| {
        let samples = samples.next().expect("as many as settings");
        Comparison { setting, unit, candidates: candidate_results(names, samples) }
    }))
}

impl<S> Comparison<S> {
    /// Compares the candidate called `name` with the one called `against`, if both take part.
    pub fn compare(&mut self, name: &str, against: &str) {
        let Some(reference) = self.candidates.iter().find(|result| result.name == against) else { return };
        let (against, reference) = (reference.name, values(&reference.samples));
        for result in self.candidates.iter_mut().filter(|result| result.name == name) {
            result.against = against;
            result.ratio = ratios(&values(&result.samples), &reference).expect("at least one round");
        }
    }

    /// Iterates over the CPU shares of all samples.
    pub fn cpu_shares(&self) -> impl Iterator<Item = f64> {
        self.candidates.iter().flat_map(|result| &result.samples).filter_map(|sample| sample.cpu_share)
    }
}

fn candidate_results(names: &[&'static str], samples: Vec<Vec<Sample>>) -> Vec<CandidateResult> {
    let reference = values(&samples[0]);
    let result = |(&name, samples): (_, Vec<Sample>)| {
        let values = values(&samples);
        let ratio = ratios(&values, &reference).expect("at least one round");
        let value = Summary::of(values).expect("at least one round");
        CandidateResult { name, value, against: names[0], ratio, verdict: None, samples }
    };
    names.iter().zip(samples).map(result).collect()
}

fn values(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.value).collect()
}

/// Formats a table with a row for each candidate and a column for each comparison. Cells have the
/// median, the range, and the ratio to the first candidate. All comparisons must have the same
/// candidates.
pub fn overview<S>(corner: &str, columns: &[(String, &Comparison<S>)]) -> String {
    let header: Vec<&str> = [corner].into_iter().chain(columns.iter().map(|(label, _)| label.as_str())).collect();
    let Some((_, first)) = columns.first() else { return String::new() };
    let rows = first.candidates.iter().enumerate().map(|(row, candidate)| {
        let cells = columns.iter().map(|(_, comparison)| cell(&comparison.candidates[row]));
        [candidate.name.to_owned()].into_iter().chain(cells).collect()
    });
    table(&header, rows)
}

fn cell(result: &CandidateResult) -> String {
    let CandidateResult { value: Summary { median, min, max, .. }, ratio, .. } = result;
    let ratio = significant(ratio.median);
    format!("{} ({} to {}) {ratio}x", significant(*median), significant(*min), significant(*max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Serialize)]
    struct Setting {
        threads: u16,
    }

    fn comparison(rounds: u32) -> Comparison<Setting> {
        let bar = ProgressBar::hidden();
        // Both candidates get slower by the same factor from round to round; only their ratio is
        // constant.
        compare(Setting { threads: 2 }, &["fast", "slow"], rounds, &bar, |candidate, round| {
            let drift = (round + 1) as f64;
            let threads = if candidate == 0 { [10.0, 10.0] } else { [29.0, 31.0] };
            Ok(Measured { threads: threads.map(|time| drift * time).to_vec(), cpu_share: Some(0.5) })
        })
        .unwrap()
    }

    #[test]
    fn ratios_are_immune_to_drift() {
        let comparison = comparison(5);
        assert_eq!(comparison.candidates[0].ratio.median, 1.0);
        assert_eq!((comparison.candidates[1].ratio.min, comparison.candidates[1].ratio.max), (3.0, 3.0));
        assert_eq!(comparison.candidates[1].value.median, 90.0);
    }

    #[test]
    fn samples_keep_round_position_and_threads() {
        let comparison = comparison(2);
        let sample = &comparison.candidates[1].samples[1];
        assert_eq!((sample.round, sample.position, sample.threads.len()), (1, 0, 2));
        assert_eq!(comparison.cpu_shares().collect::<Vec<_>>(), [0.5; 4]);
    }

    #[test]
    fn json_names_setting_and_candidates() {
        let json = serde_json::to_value(comparison(1)).unwrap();
        assert_eq!(json["threads"], 2);
        assert_eq!(json["contenders"][1]["name"], "slow");
        assert_eq!(json["unit"], "ns");
        assert_eq!(json["contenders"][1]["against"], "fast");
        assert_eq!(json["contenders"][1]["samples"][0]["value"], 30.0);
    }

    #[test]
    fn candidates_can_be_compared_with_another_than_the_first() {
        let mut comparison = comparison(3);
        comparison.compare("fast", "slow");
        assert_eq!((comparison.candidates[0].against, comparison.candidates[0].ratio.median), ("slow", 1.0 / 3.0));
        comparison.compare("fast", "nobody");
        assert_eq!(comparison.candidates[0].against, "slow");
    }

    #[test]
    fn several_values_of_a_measurement_are_contests_of_their_own() {
        let settings = [(Setting { threads: 1 }, "ns"), (Setting { threads: 2 }, "bytes")];
        let [times, sizes] = compare_several(settings, &["a"], 2, &ProgressBar::hidden(), |_, round| {
            Ok([Measured::single(round as f64), Measured::single(7.0)])
        })
        .unwrap();
        assert_eq!((times.unit, times.candidates[0].value.max), ("ns", 1.0));
        assert_eq!((sizes.unit, sizes.candidates[0].value.max), ("bytes", 7.0));
    }

    #[test]
    fn reports_name_every_candidate() {
        let comparison = comparison(3);
        let text = overview("table", &[("2 threads".into(), &comparison)]);
        assert!(text.contains("60.0 (30.0 to 90.0) 3.00x"), "{text}");
    }

    #[test]
    fn an_error_ends_the_comparison() {
        let bar = ProgressBar::hidden();
        let failed = compare(Setting { threads: 1 }, &["a"], 3, &bar, |_, _| anyhow::bail!("it missed"));
        assert_eq!(failed.unwrap_err().to_string(), "it missed");
    }
}
