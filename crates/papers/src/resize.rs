//! `relativist-papers resize` measures lookups while the table is resized.
//!
//! This is the benchmark of Triplett, McKenney and Walpole ("Resizable, Scalable, Concurrent Hash
//! Tables via Relativistic Programming", USENIX ATC 2011, section 6.1), where it is a kernel module
//! called `rcuhashbash-resize`. Readers look up random keys that are present. The table has one of
//! two sizes, or is resized between the two without pause.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::value_parser;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::lookups::candidates::Name;
use crate::lookups::measure::{Case, Filled, Keys, LockCounts, Sample, Setting};
use crate::lookups::{Conditions, grouped};
use relativist_bench::harness::options::HashFunction;
use relativist_bench::harness::report::{Report, cells, count, significant, table};
use relativist_bench::harness::rounds::{order, progress};
use relativist_bench::harness::stats::{Summary, ratios};
use relativist_bench::harness::workers::Cpus;

/// Measure lookups while a table is resized without pause, as the ATC 2011 paper does
///
/// Each reader looks up random keys of 0 .. entries-1, which are all present, with a read section
/// (or lock) per lookup. The cases are measured in turns, run by run, on the same table: with
/// 2^shift1 buckets; with 2^shift2 buckets; and, with --resizer, while another thread resizes
/// between the two sizes without pause. If a lookup misses or finds a wrong value, the command
/// reports it and exits with status 1.
///
/// If resizing hardly disturbs lookups, the rate of the last case lies between those of the two
/// fixed sizes. The printed ratio is this rate divided by the rate of the slower fixed size in the
/// same run.
///
/// `tree` has no buckets.
///
/// The paper always had a free CPU for the resizer. With at least as many readers as CPUs, the
/// resizer takes CPU time from the readers. For a fair comparison, --spinner runs a busy thread in
/// the fixed cases, which takes as much CPU time.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Tables to measure; repeat the option, or separate names by commas
    #[arg(long = "table", value_name = "TABLE", value_enum, value_delimiter = ',', default_values_t = [Name::Relativist])]
    tables: Vec<Name>,

    /// Numbers of reader threads, each measured separately [default: one for each CPU, less one for
    /// the resizer]
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u16).range(1..=1024))]
    readers: Vec<u16>,

    /// Also measure lookups while the table is resized without pause
    #[arg(long)]
    resizer: bool,

    #[command(flatten)]
    conditions: Conditions,

    /// Write every sample, the command line, versions, machine and parameters to this file; -
    /// writes to stdout, and moves the tables to stderr
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    json: Option<PathBuf>,
}

/// The options with their defaults filled in.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Parameters {
    tables: Vec<Name>,
    readers: Vec<usize>,
    resizer: bool,
    runs: usize,
    #[serde(flatten)]
    setting: Setting,
}

impl Args {
    fn parameters(&self, cpus: &Cpus) -> Result<Parameters> {
        let spare = (cpus.count() - usize::from(self.resizer)).max(1);
        let readers: Vec<usize> = self.readers.iter().copied().map(usize::from).collect();
        Ok(Parameters {
            tables: self.tables.clone(),
            readers: if readers.is_empty() { vec![spare] } else { readers },
            resizer: self.resizer,
            runs: self.conditions.runs(),
            setting: self.conditions.setting()?,
        })
    }
}

/// The lookup rate during resizes divided by the rate at the slower fixed size in the same run.
#[derive(Clone, Debug, Serialize)]
struct Comparison {
    table: String,
    readers: usize,
    continuous_to_slower_fixed: Summary,
}

#[derive(Debug, Serialize)]
struct Results {
    comparisons: Vec<Comparison>,
    misses: u64,
    samples: Vec<Sample>,
}

pub fn run(args: &Args) -> Result<()> {
    let cpus = Cpus::allowed();
    let parameters = args.parameters(&cpus)?;
    let companion = usize::from(parameters.resizer || parameters.setting.spinner);
    let threads = parameters.readers.iter().max().unwrap_or(&1) + companion;
    let mut report = Report::begin("resize", args.json.as_deref(), &cpus, threads)?;
    if parameters.resizer && threads > cpus.count() && !parameters.setting.spinner {
        report.warn(
            "the resizer takes CPU time from the readers, which have more in the fixed cases: add --spinner".into(),
        );
    }
    let fill = |&name: &Name| Filled::new(name, &parameters.setting);
    let tables = parameters.tables.iter().map(fill).collect::<Result<Vec<_>>>()?;
    let measurements = measurements(&tables, &parameters);
    let bar = progress(measurements.len() * parameters.runs);
    let samples = measure(&tables, &measurements, parameters.runs, &cpus, &bar)?;
    bar.finish_and_clear();
    report.warn_of_preemption(samples.iter().filter_map(|sample| sample.cpu_share));
    let results = Results { comparisons: compare(&samples), misses: 0, samples };
    let text = describe(&parameters, &results)?;
    report.finish(&parameters, &results, &text)
}

/// A measurement: the index of the table, the number of readers, and the case.
type Measurement = (usize, usize, Case);

fn measurements(tables: &[Filled], parameters: &Parameters) -> Vec<Measurement> {
    let mut measurements = Vec::new();
    for &readers in &parameters.readers {
        for (index, table) in tables.iter().enumerate() {
            measurements.extend(table.cases(parameters.resizer).into_iter().map(|case| (index, readers, case)));
        }
    }
    measurements
}

fn measure(
    tables: &[Filled],
    measurements: &[Measurement],
    runs: usize,
    cpus: &Cpus,
    bar: &ProgressBar,
) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for run in 0..runs {
        for (index, readers, case) in order(run, measurements.len()).map(|index| measurements[index]) {
            let table = &tables[index];
            bar.set_message(format!("{}, {}", table.name.label(), case.name()));
            samples.push(table.measure(cpus, readers, case, run)?);
            bar.inc(1);
        }
    }
    Ok(samples)
}

/// The samples of a table, a number of readers and a case.
type Group<'s> = ((Name, usize, Case), Vec<&'s Sample>);

fn by_case(samples: &[Sample]) -> Vec<Group<'_>> {
    grouped(samples, |sample| (sample.table, sample.readers, sample.case))
}

fn rates(samples: &[&Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.lookups_per_second).collect()
}

fn compare(samples: &[Sample]) -> Vec<Comparison> {
    let groups = by_case(samples);
    let comparison = |((table, readers, case), group): &Group<'_>| {
        let Case::Continuous { shifts: (one, other) } = *case else { return None };
        let fixed = [one, other].map(|shift| (*table, *readers, Case::Fixed { shift }));
        let fixed = groups.iter().filter(|(key, _)| fixed.contains(key)).map(|(_, group)| rates(group));
        let median = |rates: &Vec<f64>| Summary::of(rates.iter().copied()).map_or(0.0, |summary| summary.median);
        let slower = fixed.min_by(|one, other| median(one).total_cmp(&median(other)))?;
        let continuous_to_slower_fixed = ratios(&rates(group), &slower)?;
        Some(Comparison { table: table.label(), readers: *readers, continuous_to_slower_fixed })
    };
    groups.iter().filter_map(comparison).collect()
}

fn describe(parameters: &Parameters, results: &Results) -> Result<String> {
    let mut text = String::new();
    let Setting { entries, hasher, seconds, keys, .. } = &parameters.setting;
    writeln!(
        text,
        "Lookups per second, {} entries inserted in {} order, {hasher}; median over {} runs of {seconds} s each.\n",
        count(*entries),
        if *keys == Keys::Sequential { "ascending" } else { "random" },
        parameters.runs,
    )?;
    let millions = |rate: f64| format!("{} M", significant(rate / 1e6));
    let groups = by_case(&results.samples);
    let rows = groups.iter().map(|((table, readers, case), group)| {
        let mut row = vec![table.label(), readers.to_string(), case.name()];
        row.extend(cells(&Summary::of(rates(group)).expect("at least one run"), millions));
        let resizes = Summary::of(group.iter().map(|sample| sample.resizes_per_second));
        row.push(significant(resizes.map_or(0.0, |summary| summary.median)));
        row
    });
    let header = ["table", "readers", "case", "median", "min", "max", "spread", "resizes/s"];
    text.push_str(&table(&header, rows));
    text.push_str(&describe_locks(&results.samples));
    if !results.comparisons.is_empty() {
        writeln!(text, "\nContinuous resizing over the slower fixed size:\n")?;
        let rows = results.comparisons.iter().map(|comparison| {
            let Summary { median, min, max, .. } = comparison.continuous_to_slower_fixed;
            let ratio = format!("{median:.3} ({min:.3} to {max:.3})");
            vec![comparison.table.clone(), comparison.readers.to_string(), ratio]
        });
        text.push_str(&table(&["table", "readers", "ratio"], rows));
        text.push_str(&describe_resizes(&results.samples, parameters.setting.hasher));
    }
    writeln!(text, "\nMisses: {}", results.misses)?;
    if parameters.setting.spinner {
        writeln!(text, "The fixed cases ran a busy thread as a substitute for the resizer.")?;
    }
    Ok(text)
}

/// Formats the lock contention of each case: sums over runs. Returns an empty text if contention is
/// not counted.
fn describe_locks(samples: &[Sample]) -> String {
    let of_site = |sample: &Sample| {
        let kind = (sample.table, sample.readers, sample.case.name());
        sample.locks.iter().map(|locks| (kind.clone(), locks.clone())).collect::<Vec<_>>()
    };
    let counts: Vec<_> = samples.iter().flat_map(of_site).collect();
    if counts.is_empty() {
        return String::new();
    }
    let groups = grouped(&counts, |(kind, locks)| (kind.clone(), locks.site.clone()));
    let rows = groups.iter().map(|(((name, readers, case), site), group)| {
        let sum = |value: fn(&LockCounts) -> u64| group.iter().map(|(_, locks)| value(locks)).sum::<u64>();
        let (acquisitions, contended) = (sum(|locks| locks.acquisitions), sum(|locks| locks.contended));
        let asked = acquisitions.max(contended).max(1);
        vec![
            name.label(),
            readers.to_string(),
            case.clone(),
            site.clone(),
            count(acquisitions),
            count(contended),
            format!("{} %", significant(contended as f64 / asked as f64 * 100.0)),
            significant(group.iter().map(|(_, locks)| locks.waited).sum::<f64>() * 1e3),
        ]
    });
    let header = ["table", "readers", "case", "lock", "taken", "contended", "share", "waited ms"];
    format!("\nLock contention, including the warm-up, sums over all runs:\n\n{}", table(&header, rows))
}

/// Formats the mean duration of resizes in each direction.
fn describe_resizes(samples: &[Sample], hasher: HashFunction) -> String {
    let resized: Vec<Sample> = samples.iter().filter(|sample| sample.expand.count > 0).cloned().collect();
    let groups = grouped(&resized, |sample| (sample.table, sample.readers));
    let rows = groups.iter().map(|(_, group)| {
        let mean = |value: fn(&Sample) -> f64| {
            significant(group.iter().map(|sample| value(sample)).sum::<f64>() / group.len() as f64)
        };
        vec![
            group[0].table.label(),
            group[0].readers.to_string(),
            mean(|sample| sample.first_expand.seconds * 1e6),
            mean(|sample| sample.first_expand.waits),
            mean(|sample| sample.expand.seconds * 1e6),
            mean(|sample| sample.expand.waits),
            mean(|sample| sample.shrink.seconds * 1e6),
            mean(|sample| sample.shrink.waits),
        ]
    });
    let header = ["table", "readers", "first µs", "waits", "expand µs", "waits", "shrink µs", "waits"];
    format!("\nResizes, {hasher} (first: the first resize of a table, to the larger size):\n\n{}", table(&header, rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookups::measure::Resizes;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Line::try_parse_from(["resize"].into_iter().chain(line.split_whitespace())).map(|line| line.args)
    }

    fn parameters(line: &str) -> Parameters {
        parse(line).unwrap().parameters(&Cpus::allowed()).unwrap()
    }

    #[test]
    fn defaults_are_the_papers() {
        let expected = Parameters {
            tables: vec![Name::Relativist],
            readers: vec![3],
            resizer: true,
            runs: 10,
            setting: Setting {
                entries: 65536,
                keys: Keys::Sequential,
                shifts: (13, 14),
                spinner: false,
                seconds: 10.0,
                hasher: HashFunction::Foldhash,
            },
        };
        assert_eq!(parameters("--resizer --readers 3"), expected);
    }

    #[test]
    fn quick_shortens_what_is_not_given() {
        let quick = |line: &str| (parameters(line).setting.seconds, parameters(line).runs);
        assert_eq!(quick("--quick"), (1.0, 5));
        assert_eq!(quick("--quick --runs 3"), (1.0, 3));
        assert_eq!(quick("--quick --seconds 2"), (2.0, 5));
    }

    #[test]
    fn a_cpu_is_left_to_the_resizer() {
        let cpus = Cpus::allowed().count();
        assert_eq!(parameters("").readers, [cpus]);
        assert_eq!(parameters("--resizer").readers, [(cpus - 1).max(1)]);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "--entries 0",
            "--shift1 0",
            "--shift2 31",
            "--readers 0",
            "--seconds 0",
            "--seconds nan",
            "--runs 0",
            "--table judy",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("--shift1 5 --shift2 5").unwrap().conditions.setting().is_err());
    }

    /// Returns all measurements of a command line, with the names of the tables.
    fn plan(line: &str) -> Vec<(Name, usize, String)> {
        let parameters = parameters(line);
        let fill = |&name: &Name| Filled::new(name, &parameters.setting).unwrap();
        let tables: Vec<_> = parameters.tables.iter().map(fill).collect();
        let named = |(index, readers, case): Measurement| (tables[index].name, readers, case.name());
        measurements(&tables, &parameters).into_iter().map(named).collect()
    }

    #[test]
    fn each_table_is_measured_in_the_cases_that_it_has() {
        let line = "--entries 64 --shift1 3 --shift2 5 --resizer --readers 1 --table unzip,fixed --table tree";
        let expected = [
            (Name::Unzip, 1, "2^3 buckets"),
            (Name::Unzip, 1, "2^5 buckets"),
            (Name::Unzip, 1, "resizing 2^3 <-> 2^5"),
            (Name::Fixed, 1, "2^3 buckets"),
            (Name::Fixed, 1, "2^5 buckets"),
            (Name::Tree, 1, "a size of its own"),
        ];
        assert_eq!(plan(line), expected.map(|(name, readers, case)| (name, readers, case.into())));
    }

    fn sample(case: Case, run: usize, rate: f64) -> Sample {
        Sample {
            table: Name::Unzip,
            run,
            readers: 1,
            case,
            lookups_per_second: rate,
            per_reader: vec![rate],
            resizes_per_second: 0.0,
            expand: Resizes::default(),
            shrink: Resizes::default(),
            first_expand: Resizes::default(),
            cpu_share: None,
            locks: Vec::new(),
        }
    }

    #[test]
    fn the_ratio_is_taken_to_the_slower_fixed_size() {
        let cases = [Case::Fixed { shift: 4 }, Case::Fixed { shift: 6 }, Case::Continuous { shifts: (4, 6) }];
        let rates = [[100.0, 200.0], [50.0, 40.0], [60.0, 60.0]];
        let of_run = |run: usize| cases.into_iter().zip(rates).map(move |(case, rates)| sample(case, run, rates[run]));
        let samples: Vec<Sample> = (0..2).flat_map(of_run).collect();
        let ratio = compare(&samples)[0].continuous_to_slower_fixed;
        assert_eq!((ratio.min, ratio.max), (1.2, 1.5));
    }
}
