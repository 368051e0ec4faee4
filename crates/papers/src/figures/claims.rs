//! The paper's claims, the values measured here, and whether they agree.

use std::fmt;

use serde::Serialize;

use super::{Parameters, rates};
use crate::lookups::candidates::Name;
use crate::lookups::measure::{Case, Sample};
use relativist_bench::harness::report::significant;
use relativist_bench::harness::stats::{Summary, ratios};

/// A statement of the paper (USENIX ATC 2011, section 7), and what was measured on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// The figure to which the statement refers.
    pub figure: &'static str,
    pub paper: &'static str,
    pub here: String,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The result agrees with the paper, or is better.
    Holds,
    InPart,
    Fails,
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "yes",
            Self::InPart => "in part",
            Self::Fails => "no",
            Self::Unknown => "not measured",
        })
    }
}

/// The samples, with methods for the statistics that the claims need.
struct Evidence<'e> {
    parameters: &'e Parameters,
    samples: &'e [Sample],
}

impl Evidence<'_> {
    fn small(&self) -> Case {
        Case::Fixed { shift: self.parameters.setting.shifts.0 }
    }

    fn large(&self) -> Case {
        Case::Fixed { shift: self.parameters.setting.shifts.1 }
    }

    fn continuous(&self) -> Case {
        Case::Continuous { shifts: self.parameters.setting.shifts }
    }

    fn fewest(&self) -> usize {
        self.parameters.readers[0]
    }

    fn most(&self) -> usize {
        *self.parameters.readers.last().unwrap_or(&1)
    }

    /// Returns the median over runs of the quotient of two rates of the same run.
    fn quotient(&self, one: (Name, usize, Case), other: (Name, usize, Case)) -> Option<f64> {
        let [one, other] = [one, other].map(|(name, readers, case)| rates(self.samples, name, readers, case));
        ratios(&one, &other).map(|summary| summary.median)
    }

    fn rate(&self, name: Name, readers: usize, case: Case) -> Option<f64> {
        Summary::of(rates(self.samples, name, readers, case)).map(|summary| summary.median)
    }

    fn at_each<T>(&self, question: impl Fn(usize) -> Option<T>) -> Option<Vec<(usize, T)>> {
        self.parameters.readers.iter().map(|&readers| Some((readers, question(readers)?))).collect()
    }

    /// Returns the lookup rate during resizes divided by the rate at the slower and at the faster
    /// fixed size.
    fn between(&self, name: Name, readers: usize) -> Option<(f64, f64)> {
        let continuous = (name, readers, self.continuous());
        let fixed = [self.small(), self.large()].map(|case| self.quotient(continuous, (name, readers, case)));
        let [one, other] = [fixed[0]?, fixed[1]?];
        Some((one.max(other), one.min(other)))
    }
}

pub fn judge(parameters: &Parameters, samples: &[Sample]) -> Vec<Claim> {
    let evidence = Evidence { parameters, samples };
    vec![
        competitive(&evidence),
        linear(&evidence),
        lock_does_not_scale(&evidence),
        ahead(
            &evidence,
            Name::Rwlock,
            "with a resizer and 16 readers, RP has 125 times the lookups of rwlock",
            |last, _| last >= 125.0,
            125.0 / 2.0,
        ),
        ahead(
            &evidence,
            Name::Ddds,
            "with a resizer and 16 readers, RP has 1.56 times the lookups of DDDS, and its lead grows",
            |last, grows| last >= 1.56 && grows,
            1.0,
        ),
        between(&evidence, Name::Unzip, "RP: with a resizer, lookups are between those of the two fixed sizes"),
        between(&evidence, Name::Relativist, "the same, of this project's table"),
        ddds_below(&evidence),
        lock_falls(&evidence),
    ]
}

pub(super) fn claim(figure: &'static str, paper: &'static str, answer: Option<(String, Verdict)>) -> Claim {
    let (here, verdict) = answer.unwrap_or_else(|| ("-".into(), Verdict::Unknown));
    Claim { figure, paper, here, verdict }
}

/// Formats ratios by number of readers, such as `1: 2.00x, 2: 2.10x`.
fn listed(values: &[(usize, f64)]) -> String {
    let value = |(readers, value): &(usize, f64)| format!("{readers}: {}x", significant(*value));
    values.iter().map(value).collect::<Vec<_>>().join(", ")
}

fn yes_or(holds: bool, otherwise: Verdict) -> Verdict {
    if holds { Verdict::Holds } else { otherwise }
}

fn competitive(evidence: &Evidence<'_>) -> Claim {
    let small = evidence.small();
    let answer = evidence.at_each(|n| evidence.quotient((Name::Unzip, n, small), (Name::Ddds, n, small))).map(|all| {
        let competitive = all.iter().all(|(_, ratio)| (0.8..=1.25).contains(ratio));
        let ahead = all.last().is_some_and(|(_, ratio)| *ratio >= 1.0);
        let verdict = yes_or(competitive && ahead, if competitive { Verdict::InPart } else { Verdict::Fails });
        (format!("RP over DDDS, by readers: {}", listed(&all)), verdict)
    });
    claim("Figure 3", "without resizes RP and DDDS are very competitive, RP slightly ahead with many readers", answer)
}

fn linear(evidence: &Evidence<'_>) -> Claim {
    let case = evidence.continuous();
    let (fewest, most) = (evidence.fewest(), evidence.most());
    let answer = evidence.quotient((Name::Unzip, most, case), (Name::Unzip, fewest, case)).map(|speedup| {
        let ideal = most as f64 / fewest as f64;
        let verdict = yes_or(speedup >= 0.75 * ideal, if speedup > 1.5 { Verdict::InPart } else { Verdict::Fails });
        (format!("from {fewest} to {most} readers: {}x", significant(speedup)), verdict)
    });
    claim("Figure 4", "RP's lookups improve linearly with readers during resizes (up to the number of cores)", answer)
}

fn lock_does_not_scale(evidence: &Evidence<'_>) -> Claim {
    let small = evidence.small();
    let (fewest, most) = (evidence.fewest(), evidence.most());
    let answer = evidence.quotient((Name::Rwlock, most, small), (Name::Rwlock, fewest, small)).map(|speedup| {
        (format!("from {fewest} to {most} readers: {}x", significant(speedup)), yes_or(speedup < 1.2, Verdict::Fails))
    });
    claim("Figure 3", "reader-writer locking does not scale at all, even if it is never held for writing", answer)
}

/// Compares RP with another table during resizes. `holds` decides by the last ratio, and whether
/// the ratio grows; in part, RP is ahead and the last ratio is at least `in_part`.
fn ahead(
    evidence: &Evidence<'_>,
    other: Name,
    paper: &'static str,
    holds: impl Fn(f64, bool) -> bool,
    in_part: f64,
) -> Claim {
    let case = evidence.continuous();
    let answer = evidence.at_each(|n| evidence.quotient((Name::Unzip, n, case), (other, n, case))).map(|all| {
        let last = all.last().map_or(0.0, |(_, ratio)| *ratio);
        let grows = all.len() == 1 || all.first().is_some_and(|(_, first)| last > *first);
        let is_ahead = all.iter().all(|(_, ratio)| *ratio > 1.0);
        let otherwise = if is_ahead && last >= in_part { Verdict::InPart } else { Verdict::Fails };
        (format!("by readers: {}", listed(&all)), yes_or(is_ahead && holds(last, grows), otherwise))
    });
    claim("Figure 4", paper, answer)
}

/// Answers with the numbers of readers at which a statement holds: all, some or none.
fn at_all<T>(all: &[(usize, T)], holds: impl Fn(&T) -> bool) -> Verdict {
    match all.iter().filter(|(_, value)| holds(value)).count() {
        n if n == all.len() => Verdict::Holds,
        0 => Verdict::Fails,
        _ => Verdict::InPart,
    }
}

fn between(evidence: &Evidence<'_>, name: Name, paper: &'static str) -> Claim {
    let answer = evidence.at_each(|n| evidence.between(name, n)).map(|all| {
        let [slower, faster] = [|both: (f64, f64)| both.0, |both: (f64, f64)| both.1]
            .map(|of| listed(&all.iter().map(|&(readers, both)| (readers, of(both))).collect::<Vec<_>>()));
        let verdict = at_all(&all, |(slower, faster)| *slower >= 1.0 && *faster <= 1.0);
        (format!("resizing over the slower fixed size, by readers: {slower}; over the faster one: {faster}"), verdict)
    });
    claim("Figure 5", paper, answer)
}

fn ddds_below(evidence: &Evidence<'_>) -> Claim {
    let answer = evidence.at_each(|n| Some(evidence.between(Name::Ddds, n)?.0)).map(|slower| {
        let here = format!("resizing over the slower fixed size, by readers: {}", listed(&slower));
        (here, at_all(&slower, |ratio| *ratio < 1.0))
    });
    claim("Figure 6", "DDDS: with a resizer, lookups fall below those of the smaller table", answer)
}

fn lock_falls(evidence: &Evidence<'_>) -> Claim {
    let fall = |readers| {
        let fixed = evidence.rate(Name::Rwlock, readers, evidence.small())?;
        Some(fixed / evidence.rate(Name::Rwlock, readers, evidence.continuous())?)
    };
    let answer = fall(evidence.fewest()).zip(fall(evidence.most())).map(|(few, many)| {
        let verdict = yes_or(
            few >= 50.0 && many >= 5.0,
            if few >= 50.0 || many >= 5.0 { Verdict::InPart } else { Verdict::Fails },
        );
        let (fewest, most) = (evidence.fewest(), evidence.most());
        (format!("with {fewest}: to 1/{}, with {most}: to 1/{}", significant(few), significant(many)), verdict)
    });
    claim(
        "Figure 7",
        "rwlock: with a resizer, lookups fall by two orders of magnitude with 1 reader, by one with 16",
        answer,
    )
}
