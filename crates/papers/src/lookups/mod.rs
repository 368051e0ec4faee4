//! Lookups in the papers' tables, at rest and during resizes. `resize`, `figures` and
//! `instructions` measure these.

pub mod candidates;
pub mod measure;

use anyhow::{Result, ensure};
use clap::value_parser;
use serde::Serialize;

use measure::{Keys, Setting};
use relativist_bench::harness::options::{HashFunction, parse_count};
use relativist_check::options::parse_seconds;

/// The conditions of a measurement.
#[derive(Clone, Debug, clap::Args, Serialize)]
pub struct Conditions {
    /// Entries in the table: a number such as 65536 or 2^16
    #[arg(long, default_value = "65536", value_parser = parse_count)]
    entries: u64,

    /// Base-two logarithm of the first number of buckets
    #[arg(long, default_value_t = 13, value_parser = value_parser!(u8).range(1..=30))]
    shift1: u8,

    /// Base-two logarithm of the other number of buckets
    #[arg(long, default_value_t = 14, value_parser = value_parser!(u8).range(1..=30))]
    shift2: u8,

    /// Run a busy thread in the fixed cases, as a substitute for the resizer
    #[arg(long)]
    spinner: bool,

    /// Seconds per measurement [default: 10, with --quick 1]
    #[arg(long, value_parser = parse_seconds)]
    seconds: Option<f64>,

    /// Measurements of each case [default: 10, with --quick 5]
    #[arg(long, value_parser = value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,

    /// Measure fewer and shorter runs, for a first impression
    #[arg(long)]
    quick: bool,

    /// Order in which keys are inserted. With the identity as hash function, it determines the
    /// order of the chains
    #[arg(long, value_enum, default_value_t = Keys::Sequential)]
    keys: Keys,

    /// Hash function of the tables
    #[arg(long, value_enum, default_value_t = HashFunction::Foldhash)]
    hasher: HashFunction,
}

impl Conditions {
    pub fn setting(&self) -> Result<Setting> {
        ensure!(self.shift1 != self.shift2, "--shift1 and --shift2 are the same: there is nothing to resize");
        Ok(Setting {
            entries: self.entries,
            keys: self.keys,
            shifts: (self.shift1, self.shift2),
            spinner: self.spinner,
            seconds: self.seconds.unwrap_or(if self.quick { 1.0 } else { 10.0 }),
            hasher: self.hasher,
        })
    }

    /// Returns how often each case is measured.
    pub fn runs(&self) -> usize {
        self.runs.unwrap_or(if self.quick { 5 } else { 10 }) as usize
    }
}

/// Groups samples by `key`, in the order of their first occurrence.
pub fn grouped<S, K: PartialEq>(samples: &[S], key: impl Fn(&S) -> K) -> Vec<(K, Vec<&S>)> {
    let mut groups: Vec<(K, Vec<&S>)> = Vec::new();
    for sample in samples {
        let key = key(sample);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(sample),
            None => groups.push((key, vec![sample])),
        }
    }
    groups
}
