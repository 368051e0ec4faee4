//! A contest: several contenders measured in turns under one setting, each compared with the first of them.

use anyhow::Result;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::report::{significant, table};
use crate::rounds::order;
use crate::stats::{Summary, ratios};
use crate::workers::{Clock, Work, least_cpu_share};

/// What was measured under one setting.
#[derive(Clone, Debug, Serialize)]
pub struct Contest<S> {
    /// What all contenders had in common.
    #[serde(flatten)]
    pub setting: S,
    /// One entry for each contender; the first is the one that the others are compared with.
    pub contenders: Vec<Standing>,
}

/// What was measured of one contender.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// Its name.
    pub name: &'static str,
    /// Nanoseconds per operation and thread, over rounds.
    pub nanoseconds: Summary,
    /// Its nanoseconds over those of the first contender in the same round: above 1 it is slower.
    pub ratio: Summary,
    /// One sample per round.
    pub samples: Vec<Sample>,
}

/// One measurement of one contender.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// The round, from 0.
    pub round: usize,
    /// How many contenders were measured before it in this round.
    pub position: usize,
    /// Nanoseconds per operation: the mean over threads.
    pub nanoseconds: f64,
    /// Nanoseconds per operation of each thread.
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

    /// Of one thread, timed otherwise.
    #[must_use]
    pub fn single(nanoseconds: f64) -> Self {
        Self { threads: vec![nanoseconds], cpu_share: None }
    }
}

/// Measures the contenders called `names` for `rounds` rounds.
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
    let mut samples: Vec<Vec<Sample>> = names.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds as usize {
        for (position, contender) in order(round, names.len()).enumerate() {
            bar.set_message(names[contender]);
            let Measured { threads, cpu_share } = measure(contender, round)?;
            let nanoseconds = threads.iter().sum::<f64>() / threads.len() as f64;
            samples[contender].push(Sample { round, position, nanoseconds, threads, cpu_share });
            bar.inc(1);
        }
    }
    Ok(Contest { setting, contenders: standings(names, samples) })
}

impl<S> Contest<S> {
    /// The CPU shares of all samples.
    pub fn cpu_shares(&self) -> impl Iterator<Item = f64> {
        self.contenders.iter().flat_map(|standing| &standing.samples).filter_map(|sample| sample.cpu_share)
    }
}

fn standings(names: &[&'static str], samples: Vec<Vec<Sample>>) -> Vec<Standing> {
    let times = |samples: &[Sample]| samples.iter().map(|sample| sample.nanoseconds).collect::<Vec<_>>();
    let reference = times(&samples[0]);
    let standing = |(&name, samples): (_, Vec<Sample>)| {
        let times = times(&samples);
        let ratio = ratios(&times, &reference).expect("at least one round");
        let nanoseconds = Summary::of(times).expect("at least one round");
        Standing { name, nanoseconds, ratio, samples }
    };
    names.iter().zip(samples).map(standing).collect()
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
    let Standing { nanoseconds: Summary { median, min, max, .. }, ratio, .. } = standing;
    let ratio = significant(ratio.median);
    format!("{} ({} to {}) {ratio}x", significant(*median), significant(*min), significant(*max))
}

/// A sentence for each contender but the first: the smallest and largest of its ratios over all contests.
#[must_use]
pub fn verdict<S>(contests: &[Contest<S>]) -> String {
    let Some(first) = contests.first() else { return String::new() };
    let reference = first.contenders[0].name;
    let sentence = |standing: &Standing| {
        let same = |contest: &Contest<S>| contest.contenders.iter().find(|other| other.name == standing.name).cloned();
        let over = Summary::of(contests.iter().filter_map(same).map(|standing| standing.ratio.median))?;
        let (min, max) = (significant(over.min), significant(over.max));
        Some(format!("{} takes {min} to {max} times as long as {reference}\n", standing.name))
    };
    first.contenders[1..].iter().filter_map(sentence).collect()
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
        assert_eq!(contest.contenders[1].nanoseconds.median, 90.0);
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
        assert_eq!(json["contenders"][1]["samples"][0]["nanoseconds"], 30.0);
    }

    #[test]
    fn reports_name_every_contender() {
        let contest = contest(3);
        let text = overview("table", &[("2 threads".into(), &contest)]);
        assert!(text.contains("60.0 (30.0 to 90.0) 3.00x"), "{text}");
        assert_eq!(verdict(&[contest]), "slow takes 3.00 to 3.00 times as long as fast\n");
    }

    #[test]
    fn an_error_ends_the_contest() {
        let bar = ProgressBar::hidden();
        let failed = hold(Setting { threads: 1 }, &["a"], 3, &bar, |_, _| anyhow::bail!("it missed"));
        assert_eq!(failed.unwrap_err().to_string(), "it missed");
    }
}
