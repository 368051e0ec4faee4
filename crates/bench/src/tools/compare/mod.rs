//! `relativist-bench compare` compares concurrent maps on the same workloads.
//!
//! | Module | Holds |
//! |---|---|
//! | [`setting`] | the workloads, and the other parameters of a comparison |
//! | [`candidates`] | the tables |
//! | [`steady_state`] | workloads without a natural end: lookups, the matrix, iteration |
//! | [`run_to_completion`] | workloads that run to completion: mixes, growing, removal; [`crate::harness::latency`] of single operations |
//! | [`subprocess`] | workloads that need a process per table: memory, churn |
//! | [`targets`] | performance targets of relativist |
//! | [`screen`], [`plot`] | tables on stdout, pictures in SVG |
//! | [`redraw`], [`ratios`] | pictures of results from several machines |
//!
//! A workload plans [`Job`]s; each makes one or more [comparisons](crate::harness::comparison).
//! Candidates are always measured in turns, round by round. Some workloads keep their tables from
//! round to round. If all tables together exceed `--memory`, these workloads measure the
//! competitors in groups, each together with our table. The other workloads make a new table for
//! each measurement, so only one exists at a time.

pub mod candidates;
pub mod plot;
pub mod ratios;
pub mod redraw;
pub mod run_to_completion;
pub mod screen;
pub mod setting;
pub mod steady_state;
pub mod subprocess;
pub mod targets;

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::{ValueEnum, value_parser};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::harness::comparison::Comparison;
use crate::harness::options::{Output, parse_count};
use crate::harness::report::{Report, count};
use crate::harness::rounds::progress;
use crate::harness::sampling::Distribution;
use crate::harness::workers::{Clock, Cpus, Window};
use crate::tables::entries::Kind;
use crate::tools::compare::candidates::Name;
use crate::tools::compare::setting::{Setting, Workload};
use crate::tools::compare::subprocess::Trace;
use relativist_check::options::parse_seconds;

/// Compare concurrent maps on the same workloads, in interleaved rounds
///
/// All tables hash with foldhash (fixed seed) and allocate from mimalloc. Every operation takes its
/// own guard or lock. Rows named "handle" keep a guard for 1024 operations, and are compared with
/// relativist's handle. hashbrown is not synchronised: it shows the lower bound, and except for
/// lookups it runs with one thread only. Background threads of a table (relativist, cds_lfht) run
/// during the measurements.
///
/// Keys look random, so the processor cannot predict them. A key does not depend on the previous
/// operation, so operations overlap: this measures throughput, not latency. "harness alone" is the
/// loop without a table; every row includes its time. Every result is checked.
///
/// Cells show medians over rounds, quartiles, and the median over rounds of the ratio to
/// relativist: above 1, the other table is slower or larger. Where relativist has a target, the
/// cell shows whether it was met.
///
/// cds_lfht and Boost's concurrent_flat_map (u64 only) take part in builds with --features
/// liburcu,boost, which need Debian's liburcu-dev and libboost1.88-dev. mimalloc then replaces malloc in the whole program. They are compiled by
/// the C and C++ compiler with -O3. Calls into them are not inlined, which costs one or two
/// nanoseconds each.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Workloads to run [default: all except churn, which takes a minute per table]
    #[arg(long, alias = "work", value_enum, value_delimiter = ',')]
    #[serde(rename = "work")]
    workload: Vec<Workload>,

    /// Tables to compare with relativist
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Name::value_variants().to_vec(), hide_default_value = true)]
    tables: Vec<Name>,

    /// Numbers of entries, such as 65536 or 2^16, each measured separately [default:
    /// 2^12,2^16,2^20,2^23 for hit, miss and the matrix, 2^20 and 2^23 for grow and latency,
    /// otherwise 2^20]
    #[arg(long, value_delimiter = ',', value_parser = parse_count)]
    entries: Vec<u64>,

    /// Types of keys and values [default: both in the matrix, otherwise u64]
    #[arg(long, value_enum, value_delimiter = ',')]
    keys: Vec<Kind>,

    /// Percentages of updates in the matrix
    #[arg(long, value_delimiter = ',', default_values_t = [0, 10, 50], value_parser = value_parser!(u8).range(0..=100))]
    updates: Vec<u8>,

    /// How keys are drawn in the matrix
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Distribution::value_variants().to_vec())]
    distributions: Vec<Distribution>,

    /// Numbers of threads, each measured separately
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_parser = value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,

    /// Rounds; each measures every candidate once, in a changing order. memory has at most 3, churn
    /// has 1
    #[arg(long, default_value_t = 11, value_parser = value_parser!(u32).range(1..=10_000))]
    rounds: u32,

    /// Seconds per measurement of a workload without a natural end, after a warm-up of a quarter of
    /// that [default: 0.1, for churn 60]
    #[arg(long, value_parser = parse_seconds)]
    seconds: Option<f64>,

    /// Clock that operations are timed with
    #[arg(long, value_enum, default_value_t = Clock::Wall)]
    clock: Clock,

    /// Make tables without initial capacity, so that they grow while they are filled. Applies to
    /// hit, miss, matrix, remove, clear and iterate, which otherwise reserve room for all entries
    #[arg(long)]
    grow: bool,

    /// Memory limit of all tables together, in MiB [default: half of the memory of the machine]
    #[arg(long, value_name = "MIB", value_parser = value_parser!(u64).range(1..=1 << 30))]
    memory: Option<u64>,

    /// Draw the results as SVG into this folder, one file per workload and type of entries
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    out: Option<PathBuf>,

    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// A group of comparisons that are made together because they share tables.
pub struct Job<'a> {
    measurements: usize,
    measure: Box<dyn FnOnce(&ProgressBar) -> Outcome + 'a>,
}

type Outcome = Result<Vec<Comparison<Setting>>>;

impl<'a> Job<'a> {
    fn new(measurements: usize, measure: impl FnOnce(&ProgressBar) -> Outcome + 'a) -> Self {
        Self { measurements, measure: Box::new(measure) }
    }
}

/// What workloads need in order to plan and to measure.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    args: &'a Args,
    cpus: &'a Cpus,
    /// The memory limit of all tables together, in bytes.
    memory: u64,
    /// Results of workloads that are not comparisons.
    traces: &'a Mutex<Vec<Trace>>,
}

impl<'a> Context<'a> {
    fn window(&self) -> Window {
        Window::new(Duration::from_secs_f64(self.args.seconds.unwrap_or(0.1)))
    }

    /// Returns the capacity with which tables for this number of entries are made.
    fn capacity(&self, entries: u64) -> usize {
        if self.args.grow { 0 } else { entries as usize }
    }

    /// Returns every kind and number of entries with which `workload` is measured.
    fn sizes(&self, workload: Workload) -> Vec<(Kind, u64)> {
        let kinds: &[Kind] = match (self.args.keys.as_slice(), workload) {
            ([], Workload::Matrix) => &[Kind::U64, Kind::Strings],
            ([], _) => &[Kind::U64],
            (asked, _) => asked,
        };
        let entries: &[u64] = match (self.args.entries.as_slice(), workload) {
            ([], Workload::Hit | Workload::Miss | Workload::Matrix) => &[1 << 12, 1 << 16, 1 << 20, 1 << 23],
            ([], Workload::Grow | Workload::Latency) => &[1 << 20, 1 << 23],
            ([], _) => &[1 << 20],
            (asked, _) => asked,
        };
        kinds.iter().flat_map(|&kind| entries.iter().map(move |&entries| (kind, entries))).collect()
    }

    fn plan(self, workload: Workload) -> Vec<Job<'a>> {
        let jobs = self.sizes(workload).into_iter().flat_map(move |(kind, entries)| {
            let setting = Setting::new(workload, kind, entries);
            match workload {
                Workload::Hit | Workload::Miss => steady_state::lookups(self, &setting),
                Workload::Matrix => steady_state::matrix(self, &setting),
                Workload::Iterate => steady_state::iterate(self, &setting),
                Workload::Mixes => run_to_completion::mixes(self, &setting),
                Workload::Grow => run_to_completion::grow(self, &setting),
                Workload::Latency => run_to_completion::latencies(self, &setting),
                Workload::Remove => run_to_completion::remove(self, &setting),
                Workload::Clear => run_to_completion::clear(self, &setting),
                Workload::Memory => subprocess::memory(self, &setting),
                Workload::Churn => subprocess::churn(self, &setting),
            }
        });
        jobs.collect()
    }
}

#[derive(Debug, Serialize)]
struct Results {
    #[serde(rename = "contests")]
    comparisons: Vec<Comparison<Setting>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    traces: Vec<Trace>,
}

/// Returns the selected workloads, each once, in a fixed order.
fn workloads(args: &Args) -> Vec<Workload> {
    let all = Workload::value_variants().iter().copied();
    match args.workload.as_slice() {
        [] => all.filter(|&workload| workload != Workload::Churn).collect(),
        asked => all.filter(|workload| asked.contains(workload)).collect(),
    }
}

pub fn run(args: &Args) -> Result<()> {
    let cpus = Cpus::allowed();
    let most = args.threads.iter().copied().max().unwrap_or(1);
    for &entries in &args.entries {
        ensure!(entries >= 8 * u64::from(most), "--entries {}: too few to divide among the threads", count(entries));
    }
    let workloads = workloads(args);
    let max_for_matrix = u64::from(u32::MAX) / 2;
    if let Some(&entries) =
        args.entries.iter().find(|&&entries| entries > max_for_matrix && workloads.contains(&Workload::Matrix))
    {
        bail!("--entries {}: too many to draw from, the matrix takes {max_for_matrix} at most", count(entries));
    }
    let mut report = Report::begin("compare", args.output.json.as_deref(), &cpus, most.into())?;
    if cfg!(all(target_arch = "x86_64", not(target_feature = "avx2")))
        && args.tables.iter().any(|table| matches!(table, Name::Scc | Name::HashIndex))
    {
        report.warn("built without AVX2, which scc recommends: build with RUSTFLAGS='-C target-feature=+avx2'".into());
    }
    if let Some(folder) = &args.out {
        crate::harness::chart::prepare(folder)?;
    }
    let memory = args.memory.map(|mebibytes| mebibytes << 20).or(report.memory().map(|bytes| bytes / 2));
    let traces = Mutex::new(Vec::new());
    let context = Context { args, cpus: &cpus, memory: memory.unwrap_or(4 << 30), traces: &traces };
    let comparisons = measure_all(context, &workloads)?;
    report.warn_of_preemption(comparisons.iter().flat_map(Comparison::cpu_shares));
    if let Some(folder) = &args.out {
        plot::draw(folder, &comparisons, &report.caption())?;
    }
    let text = screen::describe(args.rounds, &comparisons)?;
    let traces = traces.into_inner().expect("no thread panics while it holds this");
    report.finish(args, &Results { comparisons, traces }, &text)
}

fn measure_all(context: Context<'_>, workloads: &[Workload]) -> Result<Vec<Comparison<Setting>>> {
    let jobs: Vec<_> = workloads.iter().flat_map(|&workload| context.plan(workload)).collect();
    let bar = progress(jobs.iter().map(|job| job.measurements).sum());
    let mut comparisons = Vec::new();
    for job in jobs {
        comparisons.extend((job.measure)(&bar)?);
    }
    bar.finish_and_clear();
    comparisons.iter_mut().for_each(targets::judge);
    Ok(comparisons)
}
