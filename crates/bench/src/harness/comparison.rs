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
    pub samples: Vec<Sample>,
}

/// A target, and whether it was met.
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

    /// Returns the sum of two measurements, one after the other.
    pub fn plus(self, other: &Self) -> Self {
        let threads = self.threads.iter().zip(&other.threads).map(|(one, other)| one + other).collect();
        Self { threads, ..self }
    }

    /// Returns the mean over the threads.
    pub fn value(&self) -> f64 {
        self.threads.iter().sum::<f64>() / self.threads.len() as f64
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
    Ok(compare_several([(setting, "ns")], names, rounds, bar, measure)?.remove(0))
}

/// Works like [`compare`], for measurements that give several values. Returns a comparison for each
/// value, with its setting and unit.
pub fn compare_several<S, M: IntoIterator<Item = Measured>>(
    settings: impl IntoIterator<Item = (S, &'static str)>,
    names: &[&'static str],
    rounds: u32,
    bar: &ProgressBar,
    mut measure: impl FnMut(usize, usize) -> Result<M>,
) -> Result<Vec<Comparison<S>>> {
    let settings: Vec<_> = settings.into_iter().collect();
    let mut samples = vec![vec![Vec::new(); names.len()]; settings.len()];
    for round in 0..rounds as usize {
        for (position, candidate) in order(round, names.len()).enumerate() {
            bar.set_message(names[candidate]);
            for (samples, measured) in samples.iter_mut().zip(measure(candidate, round)?) {
                let (value, Measured { threads, cpu_share }) = (measured.value(), measured);
                samples[candidate].push(Sample { round, position, value, threads, cpu_share });
            }
            bar.inc(1);
        }
    }
    let comparisons = settings.into_iter().zip(samples).map(|((setting, unit), samples)| Comparison {
        setting,
        unit,
        candidates: candidate_results(names, samples),
    });
    Ok(comparisons.collect())
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

    /// Returns the first result of the candidate called `name`.
    pub fn result(&self, name: &str) -> Option<&CandidateResult> {
        self.candidates.iter().find(|result| result.name == name)
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
        CandidateResult { name, value, against: names[0], ratio, samples }
    };
    names.iter().zip(samples).map(result).collect()
}

fn values(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.value).collect()
}

/// Formats a table with a row for each candidate and a column for each comparison. Cells have the
/// median, the quartiles, and the ratio to the candidate with which this one is compared.
pub fn overview<S>(corner: &str, columns: &[(String, &Comparison<S>)]) -> String {
    let header: Vec<&str> = [corner].into_iter().chain(columns.iter().map(|(label, _)| label.as_str())).collect();
    let rows = names(columns.iter().map(|(_, comparison)| *comparison)).into_iter().map(|name| {
        let cells = columns.iter().map(|(_, comparison)| comparison.result(name).map_or_else(String::new, cell));
        [name.to_owned()].into_iter().chain(cells).collect()
    });
    table(&header, rows)
}

/// Returns the names of all candidates, each once.
pub fn names<'c, S: 'c>(comparisons: impl IntoIterator<Item = &'c Comparison<S>>) -> Vec<&'static str> {
    let mut names = Vec::new();
    for result in comparisons.into_iter().flat_map(|comparison| &comparison.candidates) {
        if !names.contains(&result.name) {
            names.push(result.name);
        }
    }
    names
}

fn cell(result: &CandidateResult) -> String {
    let value = &result.value;
    let [median, lower, upper] = [value.median, value.lower_quartile, value.upper_quartile].map(significant);
    let ratio = significant(result.ratio.median);
    let ratio = if result.against == result.name { String::new() } else { format!(" {ratio}x") };
    format!("{median} ({lower}-{upper}){ratio}")
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
        let comparisons = compare_several(settings, &["a"], 2, &ProgressBar::hidden(), |_, round| {
            Ok([Measured::single(round as f64), Measured::single(7.0)])
        })
        .unwrap();
        let found = comparisons.iter().map(|comparison| (comparison.unit, comparison.candidates[0].value.max));
        assert_eq!(found.collect::<Vec<_>>(), [("ns", 1.0), ("bytes", 7.0)]);
    }

    #[test]
    fn reports_name_every_candidate() {
        let comparison = comparison(3);
        let text = overview("table", &[("2 threads".into(), &comparison)]);
        assert!(text.contains("60.0 (45.0-75.0) 3.00x"), "{text}");
    }

    #[test]
    fn an_error_ends_the_comparison() {
        let bar = ProgressBar::hidden();
        let failed = compare(Setting { threads: 1 }, &["a"], 3, &bar, |_, _| anyhow::bail!("it missed"));
        assert_eq!(failed.unwrap_err().to_string(), "it missed");
    }
}
