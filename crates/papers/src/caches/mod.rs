//! `relativist-papers caches` measures the four hash tables of Lever, "Linux Kernel Hash Table
//! Behavior: Analysis and Improvements" (ALS 2000), under one stream of file operations.
//!
//! | Module | Holds |
//! |---|---|
//! | [`workload`] | file operations, and the paths that they name |
//! | [`scripts`] | their source: scripts that work on a source tree |
//! | [`vfs`] | their effect in Linux 2.2: lookups, insertions and removals in the four caches |
//! | [`memory`] | addresses, the disk, and the order of last use |
//! | [`events`] | the resulting trace, which does not depend on hash functions |
//! | [`table`], [`replay`] | the trace on the tables of a kernel, measured |
//! | [`kernel`], [`printed`] | the hash functions and table sizes of the paper's tables |
//! | [`screen`] | tables of our results and the paper's |

pub mod events;
pub mod kernel;
pub mod memory;
pub mod printed;
pub mod replay;
pub mod screen;
pub mod scripts;
pub mod table;
pub mod vfs;
pub mod workload;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::value_parser;
use indicatif::ProgressBar;
use serde::Serialize;

use events::{Cache, Trace};
use kernel::Kernel;
use printed::Printed;
use relativist_bench::harness::options::Output;
use relativist_bench::harness::report::Report;
use relativist_bench::harness::rounds::progress;
use relativist_bench::harness::workers::Cpus;
use replay::Outcome;
use scripts::Tree;

/// Simulate the page, buffer, dentry and inode caches of Linux 2.2 with the hash tables of Lever's
/// kernels
///
/// Scripts of a development workload (compile, edit, format, spell) run concurrently on a source
/// tree. Their effect on the four caches is simulated once, and then replayed on the tables of each
/// kernel, in an order that changes from run to run. Only the tables are timed: hashing, walking
/// chains, inserting and removing. The paper timed whole scripts, so differences between kernels
/// are larger here.
///
/// "probes" is the mean number of objects visited per lookup, and "largest" the size of the largest
/// bucket at the end. They are those of the cache whose tables are compared, or else of the worst
/// of the four caches. The JSON file has all histograms.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Source tree on which the scripts work
    #[arg(long, value_name = "DIR", default_value = ".")]
    tree: PathBuf,

    /// Numbers of the paper's tables to reproduce
    #[arg(long, value_delimiter = ',', default_values_t = 1..=6, value_parser = value_parser!(u8).range(1..=6))]
    tables: Vec<u8>,

    /// Rounds of compiling, editing, formatting and spell checking per script [default: 12, with
    /// --quick 2]
    #[arg(long, value_parser = value_parser!(u32).range(1..=1000))]
    commands: Option<u32>,

    /// Memory of the simulated machine, in MiB. Kernels that shrink the dentry cache differ from
    /// others only if memory runs short, so choose a small value to compare them [default: as in
    /// the paper, 128 for table 1 and otherwise 512]
    #[arg(long, value_name = "MIB", value_parser = value_parser!(u64).range(1..=1024))]
    memory: Option<u64>,

    /// Runs of each kernel [default: as in the paper, 7 for table 1 (of which the middle five
    /// count), 10 for table 6, otherwise 5; with --quick 3]
    #[arg(long, value_parser = value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,

    /// Run only an eighth of the scripts, and three runs, for a first impression
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// A table of the paper, measured here.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    number: u8,
    title: &'static str,
    cache: Option<Cache>,
    /// The number of concurrent scripts, for each of `outcomes`.
    scripts: Vec<u32>,
    outcomes: Vec<Vec<Outcome>>,
    /// The paper's values for each kernel: throughput for each number of scripts, and the time of
    /// all runs.
    printed: Vec<(&'static [(f64, f64)], &'static str)>,
}

impl Measured {
    /// Returns the throughputs that count: the middle five of seven, as in the paper's table 1, and
    /// otherwise all.
    fn kept(&self, outcome: &Outcome) -> Vec<f64> {
        let mut throughputs = outcome.throughputs.clone();
        if self.number == 1 && throughputs.len() > 2 {
            throughputs.sort_by(f64::total_cmp);
            throughputs = throughputs[1..throughputs.len() - 1].to_vec();
        }
        throughputs
    }
}

#[derive(Debug, Serialize)]
pub struct Results {
    tables: Vec<Measured>,
}

pub fn run(args: &Args) -> Result<()> {
    let cpus = Cpus::allowed();
    let report = Report::begin("caches", args.output.json.as_deref(), &cpus, 1)?;
    let tables = planned(args);
    let measurements = |table: &Printed| table.rows.len() * table.scripts.len() * table.runs as usize;
    let bar = progress(tables.iter().map(measurements).sum());
    let mut source = Source::of(args)?;
    let tables = tables.iter().map(|table| measure(table, &mut source, &bar)).collect::<Result<_>>()?;
    bar.finish_and_clear();
    let results = Results { tables };
    report.finish(args, &results, &screen::describe(&results))
}

/// Returns the selected tables, changed by the options. Table 6 also gets Linux 2.2.16.
fn planned(args: &Args) -> Vec<Printed> {
    let wanted = |table: &Printed| args.tables.contains(&table.number);
    let mut tables: Vec<Printed> = printed::tables().into_iter().filter(wanted).collect();
    for table in &mut tables {
        table.memory = args.memory.unwrap_or(table.memory);
        table.runs = args.runs.unwrap_or(if args.quick { 3 } else { table.runs });
        if table.number == 6 {
            let kernel = Kernel::sized(table.memory << 20);
            table.rows.push(printed::Row { kernel, throughputs: &[], elapsed: "" });
        }
    }
    tables
}

/// The source of all traces. Each trace is made once, and kept.
struct Source {
    tree: Tree,
    commands: u32,
    divisor: u32,
    /// The traces, by number of scripts, MiB of memory, and whether the dentry cache is pruned
    /// whenever memory is short.
    traces: BTreeMap<(u32, u64, bool), Trace>,
}

impl Source {
    fn of(args: &Args) -> Result<Self> {
        let tree = Tree::read(&args.tree)?;
        let commands = args.commands.unwrap_or(if args.quick { 2 } else { 12 });
        Ok(Self { tree, commands, divisor: if args.quick { 8 } else { 1 }, traces: BTreeMap::new() })
    }

    fn scripts(&self, scripts: u32) -> u32 {
        (scripts / self.divisor).max(1)
    }

    fn prepare(&mut self, scripts: u32, memory: u64, shrink: bool) {
        let Self { tree, commands, traces, .. } = self;
        let trace = || vfs::simulate(&scripts::generate(tree, scripts, *commands), memory << 20, shrink);
        traces.entry((scripts, memory, shrink)).or_insert_with(trace);
    }
}

fn measure(table: &Printed, source: &mut Source, bar: &ProgressBar) -> Result<Measured> {
    let scripts: Vec<u32> = table.scripts.iter().map(|&scripts| source.scripts(scripts)).collect();
    let mut outcomes = Vec::new();
    for &scripts in &scripts {
        bar.set_message(format!("table {}, {scripts} scripts", table.number));
        table.rows.iter().for_each(|row| source.prepare(scripts, table.memory, row.kernel.shrink));
        let trace = |row: &printed::Row| &source.traces[&(scripts, table.memory, row.kernel.shrink)];
        let kernels: Vec<_> = table.rows.iter().map(|row| (row.kernel.clone(), trace(row))).collect();
        outcomes.push(replay::run(&kernels, table.runs, || bar.inc(1))?);
    }
    Ok(Measured {
        number: table.number,
        title: table.title,
        cache: table.cache,
        scripts,
        outcomes,
        printed: table.rows.iter().map(|row| (row.throughputs, row.elapsed)).collect(),
    })
}
