//! `relativist-bench compare` compares concurrent maps, caches, the server's store, and RCU with
//! others, in one way.
//!
//! | Module | Holds |
//! |---|---|
//! | [`job`] | a measurement of several candidates in turns, and what measurements share |
//! | [`memory`] | the workload that measures the resident set, with a process per candidate |
//! | [`maps`], [`locks`], [`caches`], [`engines`], [`rcu`] | subjects: a table of candidates and a table of workloads each |
//! | [`plot`] | pictures in SVG, and `relativist-bench plot` |
//!
//! A workload plans [`Job`]s. Each measures all its candidates once per round, and gives one or
//! more [comparisons](crate::harness::comparison) with the first candidate, which is ours.

pub mod caches;
pub mod engines;
pub mod job;
pub mod locks;
pub mod maps;
pub mod memory;
pub mod plot;
pub mod rcu;

use std::fmt::{Debug, Write as _};
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::value_parser;
use serde::{Deserialize, Serialize};

use crate::harness::comparison::{Comparison, overview};
use crate::harness::options::{Output, parse_count};
use crate::harness::report::{Report, count};
use crate::harness::rounds::progress;
use crate::harness::workers::{Clock, Cpus};
use crate::tables::entries::Kind;
use job::{Context, Job, Setting};
use relativist_check::options::parse_seconds;

/// Compare concurrent maps, caches, the server's store, or RCU with others
///
/// Compares maps, unless another subject is given. Subjects have the same options. All candidates
/// are measured in interleaved rounds. They hash with foldhash (fixed seed) and allocate from
/// mimalloc. Every result is checked.
///
/// Cells show the median over rounds, the quartiles, and the median over rounds of the ratio to
/// ours: above 1, the other one is slower or larger.
///
/// Maps: every operation takes its own guard or lock. Rows named "handle" keep a guard for 1024
/// operations, and are compared with relativist's handle. hashbrown is not synchronised: it shows
/// the lower bound, and except for lookups it runs with one thread only. "harness alone" is the
/// loop without a map; every row includes its time. Keys look random, and do not depend on the
/// previous operation, except in the workload dependent, so operations overlap: this measures
/// throughput, not latency. Insertions change nothing if the key is present, except in the workload
/// replace.
///
/// cds_lfht and Boost's concurrent_flat_map (u64 only) take part in builds with --features
/// liburcu,boost, which need Debian's liburcu-dev and libboost1.88-dev. mimalloc then replaces
/// malloc in the whole program. Calls into them are not inlined, which costs one or two nanoseconds
/// each.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    maps: Options<maps::Maps>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Concurrent maps (as without a subject)
    Maps(Options<maps::Maps>),
    /// Maps whose values are changed in place: LockMap, dashmap, and scc
    ///
    /// A change locks an entry, changes two fields, and unlocks it. A counter is increased by
    /// `entry`, which finds the key.
    Locks(Options<locks::Locks>),
    /// The cache for Rust programs, moka, quick_cache, and foyer
    ///
    /// foyer takes part in builds with --features foyer: with its cache in memory, with S3-FIFO. So
    /// does mini-moka with --features mini-moka.
    /// Keys and values are 64-bit integers, all entries weigh 1, and no entry expires. In the time
    /// of an insertion that evicts, moka may put work off until later insertions and lookups.
    Caches(Options<caches::Caches>),
    /// The store of relativistd and Segcache, without a server
    ///
    /// Items have keys of 10 bytes. Lookups copy the value. Segcache (Pelikan's crate) takes part
    /// in builds with --features segcache. Its policy is to merge segments, as in its paper.
    Engines(Options<engines::Engines>),
    /// relativist-rcu, crossbeam-epoch, seize, and liburcu
    ///
    /// relativist-rcu takes part twice: with the domain of the process, and with a private domain.
    /// liburcu takes part in builds with --features liburcu: its "memb" flavour, inlined into loops
    /// in C. Sections contain only a compiler barrier. crossbeam-epoch and seize have no function
    /// that waits for readers. Waiting and reclamation are timed by elapsed time, because they
    /// include sleeping.
    Rcu(Options<rcu::Rcu>),
}

/// Something with several implementations to compare.
pub trait Subject: Copy + Debug + 'static {
    const NAME: &'static str;

    /// The fewest entries for each thread.
    const MIN_ENTRIES: u64;

    type Candidate: 'static;

    /// All candidates, ours first.
    const CANDIDATES: &'static [Entry<Self::Candidate>];

    const WORKLOADS: &'static [Entry<Work<Self>>];

    /// The options that other subjects do not have.
    type Options: clap::Args + Serialize + Debug;

    /// Returns the kinds of entries that `workload` is measured with.
    fn kinds(_: &Self::Options, _workload: &str) -> Vec<Option<Kind>> {
        vec![None]
    }

    /// Prepares the process, and warns of what influences the results.
    fn begin(_: Context<'_, Self>, _: &mut Report) -> Result<()> {
        Ok(())
    }

    /// Returns whether a candidate can be measured under `setting`.
    fn takes_part(_: &Self::Candidate, _: &Setting) -> bool {
        true
    }

    /// Returns by how many bytes per entry the resident set of this process grows.
    fn resident(_: &Self::Candidate, _: &memory::ChildArgs) -> Result<f64> {
        unreachable!("no workload of this subject measures the resident set")
    }
}

/// A candidate or a workload: its name on the command line, its name in reports, and what it does.
#[derive(Debug)]
pub struct Entry<T: 'static> {
    pub name: &'static str,
    pub title: &'static str,
    pub what: T,
}

/// What a workload does, and with how many entries unless the user gives other numbers.
#[derive(Debug)]
pub struct Work<S: Subject> {
    pub sizes: &'static [u64],
    pub plan: Plan<S>,
}

type Plan<S> = for<'a> fn(Context<'a, S>, &Setting) -> Result<Vec<Job<'a>>>;

const fn work<S: Subject>(
    name: &'static str,
    title: &'static str,
    sizes: &'static [u64],
    plan: Plan<S>,
) -> Entry<Work<S>> {
    Entry { name, title, what: Work { sizes, plan } }
}

#[derive(Debug, clap::Args, Serialize)]
#[serde(bound = "")]
pub struct Options<S: Subject> {
    /// Workloads to run [default: all]
    #[arg(long, value_delimiter = ',', value_parser = names(S::WORKLOADS))]
    workload: Vec<String>,

    /// What to compare with ours [default: all]
    #[arg(long, visible_alias = "tables", value_delimiter = ',', value_parser = names(S::CANDIDATES))]
    candidates: Vec<String>,

    /// Numbers of entries, such as 65536 or 2^16, each measured separately [default: the ones where
    /// candidates differ, which depend on the workload]
    #[arg(long, value_delimiter = ',', value_parser = parse_count)]
    entries: Vec<u64>,

    /// Numbers of threads, each measured separately
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_parser = value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,

    /// Rounds; each measures every candidate once, in a changing order. memory has at most 3
    #[arg(long, default_value_t = 11, value_parser = value_parser!(u32).range(1..=10_000))]
    rounds: u32,

    /// Seconds per measurement of a workload without a natural end, after a warm-up of a quarter of
    /// that
    #[arg(long, default_value_t = 0.1, value_parser = parse_seconds)]
    seconds: f64,

    /// Clock that operations are timed with
    #[arg(long, value_enum, default_value_t = Clock::Wall)]
    clock: Clock,

    #[command(flatten)]
    #[serde(flatten)]
    more: S::Options,

    /// Draw the results as SVG into this folder, one file per workload and type of entries
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    out: Option<PathBuf>,

    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

fn names<T>(entries: &'static [Entry<T>]) -> PossibleValuesParser {
    PossibleValuesParser::new(entries.iter().map(|entry| PossibleValue::new(entry.name).help(entry.title)))
}

/// Returns the entries that the user has selected, each once, in the order of the table.
fn selected<T>(entries: &'static [Entry<T>], names: &[String]) -> Vec<&'static Entry<T>> {
    entries.iter().filter(|entry| names.is_empty() || names.iter().any(|name| name == entry.name)).collect()
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
struct Results {
    comparisons: Vec<Comparison<Setting>>,
}

pub fn run(args: &Args) -> Result<()> {
    match &args.what {
        None => compare(&args.maps),
        Some(What::Maps(options)) => compare(options),
        Some(What::Locks(options)) => compare(options),
        Some(What::Caches(options)) => compare(options),
        Some(What::Engines(options)) => compare(options),
        Some(What::Rcu(options)) => compare(options),
    }
}

fn compare<S: Subject>(options: &Options<S>) -> Result<()> {
    let cpus = Cpus::allowed();
    let threads = options.threads.iter().copied().max().unwrap_or(1);
    let fewest = S::MIN_ENTRIES * u64::from(threads);
    for &entries in &options.entries {
        ensure!(entries >= fewest, "--entries {}: too few to measure, it takes {fewest}", count(entries));
    }
    let context = Context { options, cpus: &cpus };
    let mut report = Report::begin("compare", options.output.json.as_deref(), &cpus, threads.into())?;
    S::begin(context, &mut report)?;
    let jobs = plan(context)?;
    if let Some(folder) = &options.out {
        crate::harness::chart::prepare(folder)?;
    }
    let comparisons = measure(jobs)?;
    report.warn_of_preemption(comparisons.iter().flat_map(Comparison::cpu_shares));
    if let Some(folder) = &options.out {
        plot::draw(folder, &comparisons, &report.caption())?;
    }
    let text = describe(options.rounds, &comparisons)?;
    report.finish(options, &Results { comparisons }, &text)
}

fn plan<S: Subject>(context: Context<'_, S>) -> Result<Vec<Job<'_>>> {
    let mut jobs = Vec::new();
    for &Entry { name, title, ref what } in selected(S::WORKLOADS, &context.options.workload) {
        let sizes = match (what.sizes, context.options.entries.as_slice()) {
            ([], _) => &[0],
            (sizes, []) => sizes,
            (_, asked) => asked,
        };
        for kind in S::kinds(&context.options.more, name) {
            for &entries in sizes {
                let setting = Setting::new(S::NAME, name, title, kind, entries);
                jobs.extend((what.plan)(context, &setting)?);
            }
        }
    }
    Ok(jobs)
}

fn measure(jobs: Vec<Job<'_>>) -> Result<Vec<Comparison<Setting>>> {
    let bar = progress(jobs.iter().map(Job::measurements).sum());
    let mut comparisons: Vec<Comparison<Setting>> = Vec::new();
    for job in jobs {
        for mut comparison in job.run(&bar)? {
            compare_handles(&mut comparison);
            // Candidates may have been measured in groups.
            match comparisons.iter_mut().find(|known| known.setting == comparison.setting) {
                Some(known) => known.candidates.extend(comparison.candidates),
                None => comparisons.push(comparison),
            }
        }
    }
    bar.finish_and_clear();
    Ok(comparisons)
}

/// Compares what keeps a handle with ours that does.
fn compare_handles(comparison: &mut Comparison<Setting>) {
    let names: Vec<_> = comparison.candidates.iter().map(|result| result.name).collect();
    for name in names.into_iter().filter(|name| name.ends_with(", handle") && *name != "relativist, handle") {
        comparison.compare(name, "relativist, handle");
    }
}

/// The columns of a table of results, or a panel of a picture: comparisons with the same title.
struct Section<'c> {
    title: String,
    unit: &'static str,
    columns: Vec<(String, &'c Comparison<Setting>)>,
}

impl<'c> Section<'c> {
    /// Groups comparisons into sections, in the order of their first occurrence. Of comparisons
    /// under the same setting, the first one counts.
    fn of(comparisons: impl IntoIterator<Item = &'c Comparison<Setting>>) -> Vec<Self> {
        let mut sections: Vec<Self> = Vec::new();
        for comparison in comparisons {
            let (title, label) = (comparison.setting.title(), comparison.setting.label());
            match sections.iter_mut().find(|section| section.title == title) {
                Some(section) if section.columns.iter().any(|(known, _)| *known == label) => {}
                Some(section) => section.columns.push((label, comparison)),
                None => sections.push(Self { title, unit: comparison.unit, columns: vec![(label, comparison)] }),
            }
        }
        sections
    }
}

/// Formats comparisons as tables that fit a screen of 120 columns.
fn describe(rounds: u32, comparisons: &[Comparison<Setting>]) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "Median (quartiles) of {rounds} rounds, in nanoseconds per operation and thread unless noted")?;
    writeln!(text, "otherwise; then the ratio to ours in the same rounds.")?;
    for Section { title, unit, columns } in Section::of(comparisons) {
        let unit = if unit == "ns" { String::new() } else { format!(" [{unit}]") };
        writeln!(text, "\n{title}{unit}")?;
        for columns in columns.chunks(2) {
            write!(text, "\n{}", overview("", columns))?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::comparison::Measured;
    use indicatif::ProgressBar;

    fn compared(threads: u16, values: &'static [(&'static str, f64)]) -> Comparison<Setting> {
        let setting =
            Setting { threads, ..Setting::new("maps", "miss", "Lookups that miss", Some(Kind::U64), 1 << 20) };
        let names = values.iter().map(|(name, _)| *name).collect();
        let one = |candidate: usize, round| Ok(Measured::single(values[candidate].1 + f64::from(round as u8)));
        let mut comparison = Job::new(setting, names, 5, one).run(&ProgressBar::hidden()).unwrap().remove(0);
        compare_handles(&mut comparison);
        comparison
    }

    #[test]
    fn tables_fit_the_screen() {
        let values = &[
            ("relativist", 100.0),
            ("relativist, handle", 200.0),
            ("scc::HashIndex, handle", 300.0),
            ("boost::concurrent_flat_map", 400.0),
        ];
        let text = describe(5, &[1, 2, 16].map(|threads| compared(threads, values))).unwrap();
        assert!(text.contains("Lookups that miss, u64 to u64, 2^20 entries"), "{text}");
        assert!(text.contains(" 102 (101-103) |"), "{text}");
        assert!(text.contains("302 (301-303) 1.50x |"), "{text}");
        assert!(text.contains("16 threads"), "{text}");
        assert!(text.lines().filter(|line| line.starts_with('|')).all(|line| line.len() <= 120), "{text}");
    }

    #[test]
    fn groups_become_one_comparison() {
        let job = |name| {
            let setting = Setting::new("maps", "hit", "Lookups that hit", None, 1024);
            Job::new(setting, vec!["relativist", name], 1, |candidate, _| Ok(Measured::single(candidate as f64 + 1.0)))
        };
        let comparisons = measure(vec![job("papaya"), job("dashmap")]).unwrap();
        assert_eq!(comparisons.len(), 1);
        let names: Vec<_> = comparisons[0].candidates.iter().map(|result| result.name).collect();
        assert_eq!(names, ["relativist", "papaya", "relativist", "dashmap"]);
        let text = describe(1, &comparisons).unwrap();
        assert_eq!((text.matches("| relativist ").count(), text.matches("2.00x").count()), (1, 2), "{text}");
    }
}
