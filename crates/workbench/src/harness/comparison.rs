//! A contest: several contenders measured in turns under one setting, each compared with the first of them.

use anyhow::Result;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::harness::report::{significant, table};
use crate::harness::rounds::order;
use crate::harness::stats::{Summary, ratios};
use crate::harness::workers::{Clock, Work, least_cpu_share};

/// What was measured under one setting.
#[derive(Clone, Debug, Serialize)]
pub struct Contest<S> {
    /// What all contenders had in common.
    #[serde(flatten)]
    pub setting: S,
    /// What values are measured in.
    pub unit: &'static str,
    /// One entry for each contender; the first is the one that the others are compared with.
    pub contenders: Vec<Standing>,
}

/// What was measured of one contender.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// Its name.
    pub name: &'static str,
    /// What was measured, over rounds.
    pub value: Summary,
    /// The contender that it is compared with: the first, unless there is one that is closer to it.
    pub against: &'static str,
    /// Its value over that of the other in the same round: above 1 it is slower, or larger.
    pub ratio: Summary,
    /// What it was meant to be, where something was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// One sample per round.
    pub samples: Vec<Sample>,
}

/// Whether a target was met.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The target.
    pub wanted: String,
    /// Whether it was met.
    pub met: bool,
}

/// One measurement of one contender.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// The round, from 0.
    pub round: usize,
    /// How many contenders were measured before it in this round.
    pub position: usize,
    /// The mean over threads.
    pub value: f64,
    /// The value of each thread.
    pub threads: Vec<f64>,
    /// The smallest share of its time that a thread was on a CPU, where the system tells.
    pub cpu_share: Option<f64>,
}

/// What a measurement returns.
#[derive(Clone, Debug)]
pub struct Measured {
    threads: Vec<f64>,
    cpu_share: Option<f64>,
}

impl Measured {
    /// Of threads that all did the same.
    #[must_use]
    pub fn of(works: &[Work], clock: Clock) -> Self {
        let threads = works.iter().map(|work| work.nanoseconds(clock)).collect();
        Self { threads, cpu_share: least_cpu_share(works) }
    }

    /// Of the slowest of threads that shared a task: they took as long as it did.
    #[must_use]
    pub fn of_slowest(works: &[Work], clock: Clock) -> Self {
        let slowest = works.iter().map(|work| work.nanoseconds(clock)).max_by(f64::total_cmp);
        Self { threads: slowest.into_iter().collect(), cpu_share: least_cpu_share(works) }
    }

    /// One number, measured otherwise.
    #[must_use]
    pub fn single(value: f64) -> Self {
        Self { threads: vec![value], cpu_share: None }
    }
}

/// Measures the contenders called `names` for `rounds` rounds, in nanoseconds.
///
/// `measure(contender, round)` measures one of them once and returns what its threads did.
///
/// # Errors
/// The first error of `measure`.
///
/// # Panics
/// When there is no contender, no round, or a measurement without a thread.
pub fn hold<S>(
    setting: S,
    names: &[&'static str],
    rounds: u32,
    bar: &ProgressBar,
    mut measure: impl FnMut(usize, usize) -> Result<Measured>,
) -> Result<Contest<S>> {
    let measure = |contender, round| Ok([measure(contender, round)?]);
    let [contest] = hold_several([(setting, "ns")], names, rounds, bar, measure)?;
    Ok(contest)
}

/// Like [`hold`] where one measurement gives several values at once: a contest for each, with its setting and its unit.
///
/// # Errors
/// The first error of `measure`.
///
/// # Panics
/// When there is no contender, no round, or a measurement without a thread.
pub fn hold_several<S, const VALUES: usize>(
    settings: [(S, &'static str); VALUES],
    names: &[&'static str],
    rounds: u32,
    bar: &ProgressBar,
    mut measure: impl FnMut(usize, usize) -> Result<[Measured; VALUES]>,
) -> Result<[Contest<S>; VALUES]> {
    let mut samples: [Vec<Vec<Sample>>; VALUES] = std::array::from_fn(|_| vec![Vec::new(); names.len()]);
    for round in 0..rounds as usize {
        for (position, contender) in order(round, names.len()).enumerate() {
            bar.set_message(names[contender]);
            for (samples, Measured { threads, cpu_share }) in samples.iter_mut().zip(measure(contender, round)?) {
                let value = threads.iter().sum::<f64>() / threads.len() as f64;
                samples[contender].push(Sample { round, position, value, threads, cpu_share });
            }
            bar.inc(1);
        }
    }
    let mut samples = samples.into_iter();
    Ok(settings.map(|(setting, unit)| {
        let samples = samples.next().expect("as many as settings");
        Contest { setting, unit, contenders: standings(names, samples) }
    }))
}

impl<S> Contest<S> {
    /// Compares the contender called `name` with the one called `against`, if both take part.
    pub fn compare(&mut self, name: &str, against: &str) {
        let Some(reference) = self.contenders.iter().find(|standing| standing.name == against) else { return };
        let (against, reference) = (reference.name, values(&reference.samples));
        for standing in self.contenders.iter_mut().filter(|standing| standing.name == name) {
            standing.against = against;
            standing.ratio = ratios(&values(&standing.samples), &reference).expect("at least one round");
        }
    }

    /// The CPU shares of all samples.
    pub fn cpu_shares(&self) -> impl Iterator<Item = f64> {
        self.contenders.iter().flat_map(|standing| &standing.samples).filter_map(|sample| sample.cpu_share)
    }
}

fn standings(names: &[&'static str], samples: Vec<Vec<Sample>>) -> Vec<Standing> {
    let reference = values(&samples[0]);
    let standing = |(&name, samples): (_, Vec<Sample>)| {
        let values = values(&samples);
        let ratio = ratios(&values, &reference).expect("at least one round");
        let value = Summary::of(values).expect("at least one round");
        Standing { name, value, against: names[0], ratio, verdict: None, samples }
    };
    names.iter().zip(samples).map(standing).collect()
}

fn values(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.value).collect()
}

/// A table with a row for each contender and a column for each contest, all with the same contenders: median, range, and
/// the ratio to the first contender.
#[must_use]
pub fn overview<S>(corner: &str, columns: &[(String, &Contest<S>)]) -> String {
    let header: Vec<&str> = [corner].into_iter().chain(columns.iter().map(|(label, _)| label.as_str())).collect();
    let Some((_, first)) = columns.first() else { return String::new() };
    let rows = first.contenders.iter().enumerate().map(|(row, contender)| {
        let cells = columns.iter().map(|(_, contest)| cell(&contest.contenders[row]));
        [contender.name.to_owned()].into_iter().chain(cells).collect()
    });
    table(&header, rows)
}

fn cell(standing: &Standing) -> String {
    let Standing { value: Summary { median, min, max, .. }, ratio, .. } = standing;
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

    fn contest(rounds: u32) -> Contest<Setting> {
        let bar = ProgressBar::hidden();
        // Both slow down from round to round by the same factor: only their ratio is steady.
        hold(Setting { threads: 2 }, &["fast", "slow"], rounds, &bar, |contender, round| {
            let drift = (round + 1) as f64;
            let threads = if contender == 0 { [10.0, 10.0] } else { [29.0, 31.0] };
            Ok(Measured { threads: threads.map(|time| drift * time).to_vec(), cpu_share: Some(0.5) })
        })
        .unwrap()
    }

    #[test]
    fn ratios_are_immune_to_drift() {
        let contest = contest(5);
        assert_eq!(contest.contenders[0].ratio.median, 1.0);
        assert_eq!((contest.contenders[1].ratio.min, contest.contenders[1].ratio.max), (3.0, 3.0));
        assert_eq!(contest.contenders[1].value.median, 90.0);
    }

    #[test]
    fn samples_keep_round_position_and_threads() {
        let contest = contest(2);
        let sample = &contest.contenders[1].samples[1];
        assert_eq!((sample.round, sample.position, sample.threads.len()), (1, 0, 2));
        assert_eq!(contest.cpu_shares().collect::<Vec<_>>(), [0.5; 4]);
    }

    #[test]
    fn json_names_setting_and_contenders() {
        let json = serde_json::to_value(contest(1)).unwrap();
        assert_eq!(json["threads"], 2);
        assert_eq!(json["contenders"][1]["name"], "slow");
        assert_eq!(json["unit"], "ns");
        assert_eq!(json["contenders"][1]["against"], "fast");
        assert_eq!(json["contenders"][1]["samples"][0]["value"], 30.0);
    }

    #[test]
    fn contenders_can_be_compared_with_another_than_the_first() {
        let mut contest = contest(3);
        contest.compare("fast", "slow");
        assert_eq!((contest.contenders[0].against, contest.contenders[0].ratio.median), ("slow", 1.0 / 3.0));
        contest.compare("fast", "nobody");
        assert_eq!(contest.contenders[0].against, "slow");
    }

    #[test]
    fn several_values_of_a_measurement_are_contests_of_their_own() {
        let settings = [(Setting { threads: 1 }, "ns"), (Setting { threads: 2 }, "bytes")];
        let [times, sizes] = hold_several(settings, &["a"], 2, &ProgressBar::hidden(), |_, round| {
            Ok([Measured::single(round as f64), Measured::single(7.0)])
        })
        .unwrap();
        assert_eq!((times.unit, times.contenders[0].value.max), ("ns", 1.0));
        assert_eq!((sizes.unit, sizes.contenders[0].value.max), ("bytes", 7.0));
    }

    #[test]
    fn reports_name_every_contender() {
        let contest = contest(3);
        let text = overview("table", &[("2 threads".into(), &contest)]);
        assert!(text.contains("60.0 (30.0 to 90.0) 3.00x"), "{text}");
    }

    #[test]
    fn an_error_ends_the_contest() {
        let bar = ProgressBar::hidden();
        let failed = hold(Setting { threads: 1 }, &["a"], 3, &bar, |_, _| anyhow::bail!("it missed"));
        assert_eq!(failed.unwrap_err().to_string(), "it missed");
    }
}
