//! `relativist-bench caches` compares `relativist_cache::Cache` with moka, quick_cache and foyer.

pub mod candidates;

use std::env::current_exe;
use std::fmt::Write as _;
#[cfg(target_os = "linux")]
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;

use crate::harness::comparison::{self, Comparison, Measured, compare_several};
use crate::harness::keys::{scramble, seed};
use crate::harness::options::{Output, Rounds, parse_count, spell};
use crate::harness::report::{Report, count, threads};
use crate::harness::rounds::progress;
use crate::harness::sampling::{Draws, Samples};
use crate::harness::workers::{Cpus, run as run_workers};
use crate::tools::compare::subprocess::Memory;
use candidates::{BATCH, Cache, Name};

/// Compare relativist_cache::Cache with moka, quick_cache and foyer
///
/// With foyer only in builds with --features foyer: with its cache in memory, with S3-FIFO.
///
/// Measures the time of hits and of insertions that evict, and the resident set of a full cache per
/// entry. Keys and values are 64-bit integers, all entries weigh 1, and no entry expires. In the
/// time of an insertion that evicts, moka may put work off until later insertions and lookups.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Workloads to run
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Workload::value_variants().iter().copied())]
    workload: Vec<Workload>,

    /// Entries in the cache, such as 65536 or 2^16. It has room for twice as many, except for evict
    /// and memory
    #[arg(long, default_value = "2^20", value_parser = parse_count)]
    entries: u64,

    #[command(flatten)]
    #[serde(flatten)]
    rounds: Rounds,

    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Workload {
    /// Lookups that hit, all keys equally likely
    Hit,
    /// Lookups that hit, with Zipf's distribution
    HitZipf,
    /// Insertions of new keys into a full cache
    Evict,
    /// The resident set of a full cache, in a process of its own without huge pages, with at most 3
    /// rounds
    Memory,
}

impl Workload {
    fn title(self) -> &'static str {
        match self {
            Self::Hit => "hits, uniform, ns",
            Self::HitZipf => "hits, Zipf 0.99, ns",
            Self::Evict => "insertions of new keys, evicting, ns",
            Self::Memory => "full cache, bytes per entry",
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Setting {
    work: Workload,
    threads: u16,
}

#[derive(Debug, Serialize)]
struct Results {
    comparisons: Vec<Comparison<Setting>>,
}

/// A cache, and what is in it.
struct Filled {
    cache: Box<dyn Cache>,
    entries: u64,
    /// The index of the next new key.
    next: AtomicU64,
}

impl Filled {
    fn new(name: Name, entries: u64, capacity: u64) -> Self {
        let cache = name.of_entries(capacity);
        for index in 0..entries {
            let key = scramble(index);
            cache.insert(key, key);
            // moka would reject insertions that it has not looked at before.
            if index % BATCH == 0 {
                cache.settle();
            }
        }
        cache.settle();
        Self { cache, entries, next: AtomicU64::new(entries) }
    }

    /// Returns a closure that looks up a batch of keys, all of which are there.
    fn hits<'f>(&'f self, samples: Option<&'f Samples>, seed: u64) -> Box<dyn FnMut() -> u64 + 'f> {
        let mut draws = Draws::new(0..self.entries, samples, 0, seed);
        let mut draw = move |keys: &mut [u64; BATCH as usize]| keys.fill_with(|| scramble(draws.draw().1));
        Box::new(move || {
            assert_eq!(self.cache.hits(&mut draw), BATCH, "a key is missing");
            BATCH
        })
    }

    /// Returns a closure that inserts a batch of new keys.
    fn evictions<'f>(&'f self) -> Box<dyn FnMut() -> u64 + 'f> {
        Box::new(move || {
            // Relaxed: the counter orders nothing.
            let first = self.next.fetch_add(BATCH, Ordering::Relaxed);
            self.cache.insert_all(&std::array::from_fn(|index| scramble(first + index as u64)));
            BATCH
        })
    }
}

pub fn run(args: &Args) -> Result<()> {
    let cpus = Cpus::allowed();
    ensure!(args.entries >= 1024, "--entries {}: too few to measure, it takes 1024", count(args.entries));
    let mut report = Report::begin("caches", args.output.json.as_deref(), &cpus, args.rounds.max_threads())?;
    let results = Results { comparisons: measure(args, &cpus)? };
    report.warn_of_preemption(results.comparisons.iter().flat_map(Comparison::cpu_shares));
    let text = describe(args, &results)?;
    report.finish(args, &results, &text)
}

fn measure(args: &Args, cpus: &Cpus) -> Result<Vec<Comparison<Setting>>> {
    let candidates = Name::value_variants();
    let names: Vec<_> = candidates.iter().map(|candidate| candidate.name()).collect();
    let rounds = args.rounds.rounds;
    let bar = progress(args.workload.len() * args.rounds.threads.len() * names.len() * rounds as usize);
    let samples = Samples::zipf(args.entries);
    let mut comparisons = Vec::new();
    for &work in &args.workload {
        if work == Workload::Memory {
            let resident = |candidate: usize, _| Ok([Measured::single(resident(candidates[candidate], args.entries)?)]);
            let setting = (Setting { work, threads: 1 }, "bytes per entry");
            comparisons.extend(compare_several([setting], &names, rounds.min(3), &bar, resident)?);
            continue;
        }
        let capacity = if work == Workload::Evict { args.entries } else { 2 * args.entries };
        let caches: Vec<_> = candidates.iter().map(|&name| Filled::new(name, args.entries, capacity)).collect();
        for &threads in &args.rounds.threads {
            let one = |candidate: usize, round| {
                let cache: &Filled = &caches[candidate];
                let batch = |thread| match work {
                    Workload::Hit => cache.hits(None, seed(round, thread)),
                    Workload::HitZipf => cache.hits(Some(&samples), seed(round, thread)),
                    Workload::Evict | Workload::Memory => cache.evictions(),
                };
                Ok(Measured::of(&run_workers(cpus, threads.into(), args.rounds.window(), batch), args.rounds.clock))
            };
            comparisons.push(comparison::compare(Setting { work, threads }, &names, rounds, &bar, one)?);
        }
    }
    bar.finish_and_clear();
    Ok(comparisons)
}

fn describe(args: &Args, results: &Results) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "Median (range) over {} rounds, ratio to relativist round by round.", args.rounds.rounds)?;
    for &work in &args.workload {
        let label = |setting: &Setting| match work {
            Workload::Memory => count(args.entries) + " entries",
            _ => threads(setting.threads),
        };
        let columns = results.comparisons.iter().filter(|comparison| comparison.setting.work == work);
        let columns: Vec<_> = columns.map(|comparison| (label(&comparison.setting), comparison)).collect();
        write!(text, "\n{}", comparison::overview(work.title(), &columns))?;
    }
    Ok(text)
}

/// The arguments of the child process, which measures the resident set of one cache.
#[derive(Debug, clap::Args)]
pub struct ChildArgs {
    #[arg(long, value_enum)]
    cache: Name,
    #[arg(long, value_parser = parse_count)]
    entries: u64,
}

/// Measures the bytes per entry of a full cache, in a child process.
fn resident(name: Name, entries: u64) -> Result<f64> {
    let mut command = Command::new(current_exe().context("cannot find this program to start it again")?);
    command.args(["caches-child", "--cache", &spell(&name), "--entries", &entries.to_string()]);
    #[cfg(target_os = "linux")]
    {
        relativist_check::supervisor::tie(&mut command);
        // A huge page that the allocator has begun counts 2 MiB, which is more than a small cache
        // needs.
        let disable = || Ok(rustix::thread::disable_transparent_huge_pages(true)?);
        // SAFETY: between fork and exec, the closure makes one system call that is allowed there,
        // and allocates nothing.
        unsafe { command.pre_exec(disable) };
    }
    let output = command.stderr(Stdio::inherit()).output().context("cannot start this program again")?;
    ensure!(output.status.success(), "{}: the measuring process failed: {}", name.name(), output.status);
    let text = String::from_utf8(output.stdout)?;
    let bytes: u64 = text.trim().parse().context("cannot parse the output of the measuring process")?;
    Ok(bytes as f64 / entries as f64)
}

/// Fills a cache, replaces all entries once, and prints by how much the resident set has grown.
pub fn run_child(args: &ChildArgs) -> Result<()> {
    let mut memory = Memory::now()?;
    let filled = Filled::new(args.cache, args.entries, args.entries);
    let mut evictions = filled.evictions();
    for _ in 0..args.entries / BATCH {
        evictions();
        filled.cache.settle();
    }
    println!("{}", memory.grown()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_keep_their_limits() {
        for &name in Name::value_variants() {
            let cache = name.of_weight(1000, 10);
            (1..=100).for_each(|value| cache.insert(value, value));
            cache.insert(2000, 2000);
            cache.settle();
            assert_eq!(cache.get(2000), None, "{name:?}");
            let weight: u64 = (1..=100).filter_map(|key| cache.get(key)).sum();
            assert!((1..=1000).contains(&weight), "{name:?}: {weight}");
        }
    }

    #[test]
    fn all_keys_hit_in_a_cache_with_room() {
        for &name in Name::value_variants() {
            let filled = Filled::new(name, 5000, 10_000);
            assert!((0..5000).map(scramble).all(|key| filled.cache.get(key) == Some(key)), "{name:?}");
            filled.evictions()();
            assert_eq!(filled.next.into_inner(), 5000 + BATCH);
        }
    }
}
