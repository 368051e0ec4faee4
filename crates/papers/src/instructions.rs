//! `relativist-papers instructions` counts the instructions and memory accesses of a lookup with
//! callgrind.
//!
//! Only a machine with many processors can show that lookups scale. But any machine can show that
//! they execute few instructions and write no shared memory, because these counts hardly depend on
//! the machine. (The test `readonly` makes the table's memory read-only, to show that
//! lookups under RCU do not write to it.)

use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use clap::value_parser;
use serde::Serialize;

use crate::lookups::candidates::{BATCH, Name, Subject, count_missed};
use crate::lookups::measure::{Filled, Keys, Setting};
use relativist_bench::harness::callgrind::{callgrind, total};
use relativist_bench::harness::keys::{Indices, seed};
use relativist_bench::harness::options::{HashFunction, parse_count, spell};
use relativist_bench::harness::report::{Report, significant, table};
use relativist_bench::harness::workers::Cpus;

/// Count the instructions and memory accesses of a lookup, with callgrind
///
/// One thread looks up random keys of 0 .. entries-1, which are all present, with a read section
/// (or lock) per lookup. Only loads and stores of data are counted. Cache misses come from
/// callgrind's simulation of this machine's caches. Lookups in lock-free tables store only to
/// memory of their own thread (its stack and its slot in RCU's registry). Lookups in tables with a
/// lock also store to memory that all readers share. "harness alone" is the loop without a table;
/// every row includes it. Needs valgrind.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Tables to measure; repeat the option, or separate names by commas
    #[arg(long = "table", value_name = "TABLE", value_enum, value_delimiter = ',',
          default_values_t = [Name::Relativist, Name::Unzip, Name::InPlace, Name::SplitOrdered, Name::DualChain, Name::Ddds, Name::Rwlock, Name::Fixed])]
    tables: Vec<Name>,

    #[command(flatten)]
    counted: Counted,

    /// Write the counts, the command line, versions, machine and parameters to this file; - writes
    /// to stdout, and moves the tables to stderr
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    json: Option<PathBuf>,
}

/// The options for counting one table.
#[derive(Clone, Debug, clap::Args, Serialize)]
pub struct Counted {
    /// Entries in the table: a number such as 65536 or 2^16
    #[arg(long, default_value = "65536", value_parser = parse_count)]
    entries: u64,

    /// Base-two logarithm of the number of buckets
    #[arg(long, default_value_t = 13, value_parser = value_parser!(u8).range(1..=29))]
    shift: u8,

    /// Hash function of the tables
    #[arg(long, value_enum, default_value_t = HashFunction::Foldhash)]
    hasher: HashFunction,

    /// Number of batches of 256 lookups each
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u32).range(1..=1_000_000))]
    batches: u32,
}

#[derive(Debug, clap::Args)]
pub struct ChildArgs {
    /// The table to measure; if not given, the harness alone
    #[arg(long = "table", value_enum)]
    name: Option<Name>,

    #[command(flatten)]
    counted: Counted,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Counts {
    table: String,
    instructions: f64,
    loads: f64,
    stores: f64,
    /// Misses in the first-level data cache.
    misses: f64,
    last_misses: f64,
}

pub fn run(args: &Args) -> Result<()> {
    let found = Command::new("valgrind").arg("--version").output();
    ensure!(found.is_ok(), "this needs valgrind, which is not installed: apt install valgrind");
    let report = Report::begin("instructions", args.json.as_deref(), &Cpus::allowed(), 1)?;
    let names = args.tables.iter().copied().map(Some).chain([None]);
    let counts = names.map(|name| count(name, &args.counted)).collect::<Result<Vec<_>>>()?;
    let rows = counts.iter().map(|counts| {
        let numbers = [counts.instructions, counts.loads, counts.stores, counts.misses, counts.last_misses];
        std::iter::once(counts.table.clone()).chain(numbers.map(significant)).collect()
    });
    let header = ["table", "instructions", "loads", "stores", "L1 misses", "last-level misses"];
    let text = format!(
        "Per lookup, {} entries, 2^{} buckets, {}:\n\n{}",
        args.counted.entries,
        args.counted.shift,
        args.counted.hasher,
        table(&header, rows)
    );
    report.finish(args, &counts, &text)
}

/// The function in which callgrind counts.
const COUNTED: &str = "relativist_counted_lookups";

fn count(name: Option<Name>, counted: &Counted) -> Result<Counts> {
    let mut arguments: Vec<String> = vec!["instructions-child".into()];
    if let Some(name) = name {
        arguments.extend(["--table".into(), spell(&name)]);
    }
    let Counted { entries, shift, hasher, batches } = counted;
    arguments.extend(["--entries".into(), entries.to_string(), "--shift".into(), shift.to_string()]);
    arguments.extend(["--hasher".into(), spell(hasher), "--batches".into(), batches.to_string()]);
    let text = callgrind(COUNTED, &["--cache-sim=yes"], &arguments)?;
    let label = name.map_or("harness alone".into(), Name::label);
    parse(&text, label, f64::from(*batches) * BATCH as f64)
}

fn parse(text: &str, table: String, lookups: f64) -> Result<Counts> {
    let per_lookup = |event: &str| Ok::<_, anyhow::Error>(total(text, event)? / lookups);
    Ok(Counts {
        table,
        instructions: per_lookup("Ir")?,
        loads: per_lookup("Dr")?,
        stores: per_lookup("Dw")?,
        misses: per_lookup("D1mr")? + per_lookup("D1mw")?,
        last_misses: per_lookup("DLmr")? + per_lookup("DLmw")?,
    })
}

/// A table that looks nothing up, to count the loop itself.
struct HarnessAlone;

impl Subject for HarnessAlone {
    fn insert(&self, _: u64) -> bool {
        true
    }

    #[inline(never)]
    fn look_up(&self, keys: &mut Indices) -> u64 {
        count_missed(keys, |key| Some(black_box(key)))
    }

    fn resize_to(&self, _: usize) {}

    fn costs(&self) -> crate::tables::Costs {
        crate::tables::Costs::default()
    }
}

/// Fills the table and looks keys up in it.
pub fn run_child(args: &ChildArgs) -> Result<()> {
    let Counted { entries, shift, hasher, batches } = args.counted;
    let mut keys = Indices::new(0..entries, seed(0, 0));
    let missed = match args.name {
        None => relativist_counted_lookups(&HarnessAlone, &mut keys, batches),
        Some(name) => {
            let setting = Setting {
                entries,
                keys: Keys::Sequential,
                shifts: (shift, shift + 1),
                spinner: false,
                seconds: 1.0,
                hasher,
            };
            let filled = Filled::new(name, &setting)?;
            relativist_counted_lookups(filled.prepared(filled.cases(false)[0]), &mut keys, batches)
        }
    };
    ensure!(missed == 0, "{missed} lookups missed");
    Ok(())
}

/// Does the lookups that callgrind counts. The name of this function is not mangled, so that
/// callgrind can find it.
#[unsafe(no_mangle)]
#[inline(never)]
fn relativist_counted_lookups(table: &dyn Subject, keys: &mut Indices, batches: u32) -> u64 {
    (0..batches).map(|_| table.look_up(keys)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_callgrinds_file() {
        let text = "version: 1\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\nfn=(1)\n0 1 2\n\
                    totals: 1000 300 100 5 40 10 0 20 0\n";
        let counts = parse(text, "RP".into(), 10.0).unwrap();
        assert_eq!((counts.instructions, counts.loads, counts.stores), (100.0, 30.0, 10.0));
        assert_eq!((counts.misses, counts.last_misses), (5.0, 2.0));
        assert!(parse("events: Ir\ntotals: 1\n", "RP".into(), 1.0).is_err());
    }

    #[test]
    fn the_harness_draws_a_batch() {
        let (mut one, mut other) = (Indices::new(0..100, 1), Indices::new(0..100, 1));
        assert_eq!(relativist_counted_lookups(&HarnessAlone, &mut one, 2), 0);
        for _ in 0..2 * BATCH {
            other.draw();
        }
        assert_eq!(one.draw(), other.draw());
    }
}
