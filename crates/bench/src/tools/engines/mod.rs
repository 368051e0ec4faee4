//! `relativist-bench engines` compares caches in one process: without sockets or a protocol.

pub mod engine;
mod room;
mod speed;

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use clap::{ValueEnum, value_parser};
use serde::Serialize;

use crate::harness::comparison::{self, Comparison};
use crate::harness::options::{Output, Rounds, parse_count};
use crate::harness::report::{Report, count, table, threads};
use crate::harness::workers::Cpus;
use engine::{Engine, Ours, Plan};
#[cfg(feature = "segcache")]
use engine::{Segcache, SegcachePolicy};
use room::Room;
use speed::{Refusals, Setting, Workload};

/// Compare the cache of relativistd with other caches, in one process
///
/// Measures the time per operation, and how many items fit. Items have keys of 10 bytes. Lookups
/// copy the value.
///
/// Segcache (Pelikan's crate) takes part in builds with --features segcache. Its table has a fixed
/// size, a power of two: items are counted with the one with which the most fit.
/// For times, its policy is to merge segments, as in its paper.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Workloads to run
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Workload::value_variants().iter().copied())]
    workload: Vec<Workload>,

    /// Items in the cache, such as 65536 or 2^16. The limit is 1.5 times what they need, and 0.5
    /// times for evict
    #[arg(long, default_value = "2^20", value_parser = parse_count)]
    entries: u64,

    /// Bytes of a value
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(8..=100_000))]
    value_size: u64,

    /// The limit in MiB with which items are counted
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = value_parser!(u64).range(1..=1 << 20))]
    memory: u64,

    #[command(flatten)]
    #[serde(flatten)]
    rounds: Rounds,

    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// A cache that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Candidate {
    Ours,
    #[cfg(feature = "segcache")]
    Segcache,
}

impl Candidate {
    const ALL: &[Self] = &[
        Self::Ours,
        #[cfg(feature = "segcache")]
        Self::Segcache,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Ours => "relativist-store",
            #[cfg(feature = "segcache")]
            Self::Segcache => "segcache",
        }
    }

    fn make(self, plan: Plan) -> Result<Box<dyn Engine>> {
        Ok(match self {
            Self::Ours => Box::new(Ours::new(plan)?),
            #[cfg(feature = "segcache")]
            Self::Segcache => Box::new(Segcache::new(plan, Segcache::MERGE)?),
        })
    }

    /// Makes a cache without eviction, whose table has the size number `table`. Returns none if
    /// there is no such size.
    fn without_eviction(self, plan: Plan, table: u32) -> Result<Option<Box<dyn Engine>>> {
        Ok(match self {
            Self::Ours if table == 0 => Some(Box::new(Ours::new(plan)?.without_eviction())),
            #[cfg(feature = "segcache")]
            Self::Segcache if table < 3 => {
                let power = Segcache::power(plan) - 1 + table;
                Some(Box::new(Segcache::with_power(plan, SegcachePolicy::None, power)?))
            }
            _ => None,
        })
    }
}

#[derive(Debug, Serialize)]
struct Results {
    room: Vec<Room>,
    speeds: Vec<Comparison<Setting>>,
    refusals: Vec<Refusals>,
}

pub fn run(args: &Args) -> Result<()> {
    let cpus = Cpus::allowed();
    ensure!(args.entries >= 1024, "--entries {}: too few to measure, it takes 1024", count(args.entries));
    let mut report = Report::begin("engines", args.output.json.as_deref(), &cpus, args.rounds.max_threads())?;
    let room = room::count_all(args)?;
    let (speeds, refusals) = speed::measure(args, &cpus)?;
    let results = Results { room, speeds, refusals };
    report.warn_of_preemption(results.speeds.iter().flat_map(Comparison::cpu_shares));
    let text = describe(args, &results)?;
    report.finish(args, &results, &text)
}

fn describe(args: &Args, results: &Results) -> Result<String> {
    let mut text = String::new();
    let header =
        [&format!("values of {} bytes, {} MiB", args.value_size, args.memory), "items", "other bytes per item"];
    let rows = results
        .room
        .iter()
        .map(|room| vec![room.cache.to_owned(), room.items.to_string(), format!("{:.1}", room.overhead)]);
    writeln!(text, "Items that fit without eviction, and bytes of the limit per item without key and value:\n")?;
    writeln!(text, "{}", table(&header.map(|cell: &str| cell), rows))?;
    writeln!(
        text,
        "Times: median (range) over {} rounds, ratio to relativist-store round by round.",
        args.rounds.rounds
    )?;
    for &workload in &args.workload {
        let label = |setting: &Setting| threads(setting.threads);
        let columns = results.speeds.iter().filter(|comparison| comparison.setting.work == workload);
        let columns: Vec<_> = columns.map(|comparison| (label(&comparison.setting), comparison)).collect();
        write!(text, "\n{}", comparison::overview(&format!("{}, ns", workload.title()), &columns))?;
    }
    for Refusals { cache, threads: count, share } in &results.refusals {
        writeln!(
            text,
            "\n{cache}, {}: {:.2} % of the stores of new keys were refused.",
            threads(*count),
            share * 100.0
        )?;
    }
    Ok(text)
}
