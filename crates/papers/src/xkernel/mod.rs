//! `relativist-papers xkernel`: Mosberger's measurements of the x-kernel's map ("Map Library Design
//! Notes", 1996, section 4).
//!
//! | Module | Holds |
//! |---|---|
//! | [`quantity`] | the measured quantities, and the paper's values |
//! | [`candidates`] | the maps, with keys of each size |
//! | [`cold`] | measurements with a cold instruction cache |
//! | [`screen`] | slopes and intercepts, and tables |

pub mod candidates;
pub mod cold;
pub mod quantity;
pub mod screen;

use std::time::Duration;

use crate::tables::xkernel::New;
use anyhow::{Result, ensure};
use clap::value_parser;
use indicatif::ProgressBar;
use serde::Serialize;

use candidates::{NAMES, SIZES, Subject};
use cold::Pass;
use quantity::{QUANTITIES, Quantity};
use relativist_bench::harness::comparison::{Comparison, Measured, compare};
use relativist_bench::harness::options::Output;
use relativist_bench::harness::report::Report;
use relativist_bench::harness::rounds::progress;
use relativist_bench::harness::workers::Cpus;

/// Measure the three builds of Mosberger's x-kernel map, relativist and hashbrown, as his paper
/// does
///
/// Measures five quantities. Four depend on the size of keys: a lookup of the key that was found
/// last ("cache hit"), a lookup of eight keys in turn ("cache miss"), insertion and removal in an
/// empty bucket, and insertion and removal of two keys in one bucket. The fifth, iteration, depends
/// on the number of entries. A straight line is fitted to each. Its intercept and slope are printed
/// next to the paper's. The paper's machine was much slower, so compare ratios rather than times.
///
/// "old" gets the size of keys at run time and keeps no list of filled buckets. "new" selects
/// routines for certain sizes when the map is made. "const" has the size in its type. These three
/// are single-threaded. "relativist" enters a read section per operation, and its removals include
/// their share of reclamation. All have room for the same number of entries, except in the
/// collision test, where all keys share a bucket.
///
/// With a cold instruction cache, one operation with each size of keys runs after 200 KiB of other
/// code. In that case, specialised routines for each size may cost more than they save.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Sizes of keys in bytes [default: all from 1 to 32; with --quick 1, 2, 4, 8, 16, 32]
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u8).range(1..=32))]
    key_bytes: Vec<u8>,

    /// Numbers of entries to iterate over
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], value_parser = value_parser!(u32).range(1..=1000))]
    entries: Vec<u32>,

    /// Number of buckets, a power of two
    #[arg(long, default_value_t = 1024, value_parser = value_parser!(u32).range(16..=1024))]
    buckets: u32,

    /// Rounds; each measures every candidate once, in a changing order [default: 10, as in the
    /// paper; with --quick 3]
    #[arg(long, value_parser = value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,

    /// Microseconds per measurement [default: 5000, with --quick 200]
    #[arg(long, value_parser = value_parser!(u64).range(1..=60_000_000))]
    micros: Option<u64>,

    /// Take seconds instead of a minute, for a first impression
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

impl Args {
    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 3 } else { 10 })
    }

    fn time(&self) -> Duration {
        Duration::from_micros(self.micros.unwrap_or(if self.quick { 200 } else { 5000 }))
    }

    fn key_sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = match self.key_bytes.as_slice() {
            [] if self.quick => vec![1, 2, 4, 8, 16, 32],
            [] => SIZES.collect(),
            asked => asked.iter().copied().map(usize::from).collect(),
        };
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// The parameters that the candidates of a comparison share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Setting {
    pub quantity: Quantity,
    /// The size of a key in bytes.
    pub key_bytes: usize,
    /// The number of entries in the map.
    pub entries: usize,
}

impl Setting {
    /// Returns the variable on which the quantity depends: the number of entries or the size of
    /// keys.
    pub fn variable(&self) -> f64 {
        (if self.quantity == Quantity::Iterate { self.entries } else { self.key_bytes }) as f64
    }

    /// Returns whether the paper's map has specialised routines for this size of keys.
    pub fn is_specialised(&self) -> bool {
        New::SIZES.contains(&self.key_bytes)
    }
}

#[derive(Debug, Serialize)]
pub struct Results {
    #[serde(rename = "contests")]
    pub comparisons: Vec<Comparison<Setting>>,
    /// Passes with a cold instruction cache, and with a warm one for comparison.
    pub passes: Vec<Comparison<Pass>>,
    /// Lines through the medians of those `comparisons` whose key size has specialised routines.
    pub fits: Vec<screen::Fit>,
}

pub fn run(args: &Args) -> Result<()> {
    ensure!(args.buckets.is_power_of_two(), "--buckets {}: not a power of two", args.buckets);
    let cpus = Cpus::allowed();
    let report = Report::begin("xkernel", args.output.json.as_deref(), &cpus, 1)?;
    let settings = settings(args);
    let bar = progress((settings.len() + 2 * cold::QUANTITIES.len()) * NAMES.len() * args.rounds() as usize);
    let comparisons = settings.iter().map(|setting| measure(args, setting, &bar)).collect::<Result<Vec<_>>>()?;
    let passes = cold::measure(args, &bar)?;
    bar.finish_and_clear();
    let fits = screen::lines(&comparisons);
    let results = Results { comparisons, passes, fits };
    report.finish(args, &results, &screen::describe(&results))
}

fn settings(args: &Args) -> Vec<Setting> {
    let by_size = |quantity| {
        let at = move |key_bytes| Setting { quantity, key_bytes, entries: quantity::KEYS };
        args.key_sizes().into_iter().map(at)
    };
    let by_entries = args.entries.iter().map(|&entries| Setting {
        quantity: Quantity::Iterate,
        key_bytes: 8,
        entries: entries as usize,
    });
    QUANTITIES
        .into_iter()
        .filter(|&quantity| quantity != Quantity::Iterate)
        .flat_map(by_size)
        .chain(by_entries)
        .collect()
}

fn measure(args: &Args, setting: &Setting, bar: &ProgressBar) -> Result<Comparison<Setting>> {
    let mut subjects = candidates::of(setting, args.buckets as usize);
    compare(*setting, &NAMES, args.rounds(), bar, |candidate, _| {
        Ok(Measured::single(nanoseconds(subjects[candidate].as_mut(), args.time())?))
    })
}

/// Measures for at least `time`, and returns the mean time of an operation.
fn nanoseconds(subject: &mut dyn Subject, time: Duration) -> Result<f64> {
    const AT_ONCE: u64 = 64;
    subject.repeat(AT_ONCE)?;
    let start = std::time::Instant::now();
    let mut operations = 0;
    loop {
        operations += subject.repeat(AT_ONCE)?;
        let elapsed = start.elapsed();
        if elapsed >= time {
            return Ok(elapsed.as_secs_f64() * 1e9 / operations as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every candidate returns correct results for every size of keys; `repeat` checks them.
    #[test]
    fn all_candidates_do_everything_with_keys_of_all_sizes() {
        for quantity in QUANTITIES {
            for key_bytes in SIZES {
                let setting = Setting { quantity, key_bytes, entries: quantity::KEYS };
                for (subject, name) in candidates::of(&setting, 64).iter_mut().zip(NAMES) {
                    let operations = subject.repeat(3).unwrap_or_else(|error| panic!("{name}, {setting:?}: {error}"));
                    assert_eq!(operations, 3 * quantity.operations(), "{name}, {setting:?}");
                }
            }
        }
    }
}
