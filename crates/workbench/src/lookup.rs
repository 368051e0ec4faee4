//! `relativist lookup`: what one lookup costs, in the relativistic table and in its rivals.

use std::fmt::Write;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::Serialize;

use crate::contest::{self, Contest, Measured};
use crate::keys::{ABSENT, Indices, scramble, seed};
use crate::options::{HashFunction, Output, Rounds, parse_count};
use crate::report::{Report, count, threads};
use crate::rounds::progress;
use crate::tables::dashmap::Dashmap;
use crate::tables::hashbrown::Hashbrown;
use crate::tables::hashers::{Foldhash, Fx, Identity, TableHasher};
use crate::tables::papaya::Papaya;
use crate::tables::relativist::Relativist;
use crate::tables::scc::Scc;
use crate::tables::{Contents, Table};
use crate::workers::{Clock, Cpus, Window, run as work};

/// Lookups between two looks at the clock's flag.
const BATCH: u64 = 1024;

/// Measure what one lookup costs, hits and misses apart, against papaya, scc, dashmap and hashbrown
///
/// Tables from u64 to u64 are filled once, then read by pinned threads that do nothing else. Keys look random; they are
/// drawn in an order that no predictor can learn, by ten instructions that do not depend on the lookup before, so that the
/// processor may overlap lookups as it would in a loop of independent requests: this is throughput, not latency. The row
/// "harness alone" is that loop without a table; it is contained in all other rows. Every answer is checked.
///
/// Each lookup enters and leaves a read section of its own (relativist and papaya: map.pin().get(); scc: peek_with();
/// dashmap: get() under the shard's lock). Rows that say "guard kept" hold one guard for 1024 lookups. hashbrown has no
/// synchronisation at all and is the floor.
///
/// Tables are constructed with room for their entries (what each makes of that is its own policy), and filled one entry
/// after the other in the same order by one thread. --grow has them start empty instead; relativist is then waited for
/// until its background worker has finished, while other tables may be left in the middle of a migration.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Entries of the tables, each measured on its own: numbers such as 65536 or 2^16
    #[arg(long, value_delimiter = ',', default_value = "2^16,2^20,2^23", value_parser = parse_count)]
    entries: Vec<u64>,

    /// Tables to measure; relativist is always there, as the others are compared with it
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Rival::value_variants().to_vec())]
    tables: Vec<Rival>,

    /// Hash function of all tables
    #[arg(long, value_enum, default_value_t = HashFunction::Foldhash)]
    hasher: HashFunction,

    /// Have tables grow from empty instead of constructing them with room for their entries
    #[arg(long)]
    grow: bool,

    #[command(flatten)]
    #[serde(flatten)]
    rounds: Rounds,

    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// What relativist is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Rival {
    /// papaya::HashMap
    Papaya,
    /// scc::HashIndex
    Scc,
    /// dashmap::DashMap
    Dashmap,
    /// hashbrown::HashMap, without synchronisation
    Hashbrown,
    /// The measuring loop without a table
    Harness,
}

impl Rival {
    /// How many contenders it sends: those with guards send one that keeps its guard, too.
    fn rows(self) -> usize {
        if matches!(self, Self::Papaya | Self::Scc) { 2 } else { 1 }
    }
}

#[derive(Clone, Debug, Serialize)]
struct Setting {
    entries: u64,
    threads: u16,
    workload: Workload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Workload {
    Hit,
    Miss,
}

#[derive(Debug, Serialize)]
struct Results {
    contests: Vec<Contest<Setting>>,
}

/// Runs the subcommand.
///
/// # Errors
/// When a table answers wrongly, or the report can't be written.
pub fn run(args: &Args) -> Result<()> {
    let cpus = Cpus::allowed();
    let mut report = Report::begin("lookup", args.output.json.as_deref(), &cpus, args.rounds.most_threads())?;
    if cfg!(all(target_arch = "x86_64", not(target_feature = "avx2"))) && args.tables.contains(&Rival::Scc) {
        report.warn("built without AVX2, which scc asks for: build with RUSTFLAGS='-C target-feature=+avx2'".into());
    }
    let contests = match args.hasher {
        HashFunction::Foldhash => measure::<Foldhash>(args, &cpus),
        HashFunction::Fx => measure::<Fx>(args, &cpus),
        HashFunction::Identity => measure::<Identity>(args, &cpus),
    }?;
    report.warn_of_preemption(contests.iter().flat_map(Contest::cpu_shares));
    let text = describe(args, &contests)?;
    report.finish(args, &Results { contests }, &text)
}

fn measure<H: TableHasher>(args: &Args, cpus: &Cpus) -> Result<Vec<Contest<Setting>>> {
    let rows = 2 + args.tables.iter().map(|rival| rival.rows()).sum::<usize>();
    let settings = args.entries.len() * args.rounds.threads.len() * 2;
    let bar = progress(settings * rows * args.rounds.rounds as usize);
    let mut contests = Vec::new();
    for &entries in &args.entries {
        bar.set_message(format!("filling tables with {} entries", count(entries)));
        let contenders = contenders::<H>(args, entries);
        let names: Vec<_> = contenders.iter().map(|contender| contender.name()).collect();
        for &threads in &args.rounds.threads {
            for workload in [Workload::Hit, Workload::Miss] {
                let setting = Setting { entries, threads, workload };
                let Rounds { clock, .. } = args.rounds;
                let plan = Plan { setting: setting.clone(), window: args.rounds.window(), clock, cpus };
                let one = |contender: usize, round| plan.measure(&*contenders[contender], round);
                contests.push(contest::hold(setting, &names, args.rounds.rounds, &bar, one)?);
            }
        }
    }
    bar.finish_and_clear();
    Ok(contests)
}

/// The tables that were asked for, filled, relativist first.
fn contenders<H: TableHasher>(args: &Args, entries: u64) -> Vec<Box<dyn Lookups>> {
    #[expect(clippy::single_range_in_vec_init, reason = "the contents are one range of indices")]
    let contents = Contents { indices: vec![0..entries], reserve: !args.grow };
    let ours = Relativist::<H>::filled(&contents);
    let kept = ours.with_guard_kept();
    let mut contenders: Vec<Box<dyn Lookups>> = vec![Box::new(ours), Box::new(kept)];
    for rival in Rival::value_variants().iter().filter(|rival| args.tables.contains(rival)) {
        match rival {
            Rival::Papaya => {
                let table = Papaya::<H>::filled(&contents);
                let kept = table.with_guard_kept();
                contenders.extend([Box::new(table) as Box<dyn Lookups>, Box::new(kept)]);
            }
            Rival::Scc => {
                let table = Scc::<H>::filled(&contents);
                let kept = table.with_guard_kept();
                contenders.extend([Box::new(table) as Box<dyn Lookups>, Box::new(kept)]);
            }
            Rival::Dashmap => contenders.push(Box::new(Dashmap::<H>::filled(&contents))),
            Rival::Hashbrown => contenders.push(Box::new(Hashbrown::<H>::filled(&contents))),
            Rival::Harness => contenders.push(Box::new(HarnessAlone)),
        }
    }
    contenders
}

/// One setting, ready to be measured.
struct Plan<'a> {
    setting: Setting,
    window: Window,
    clock: Clock,
    cpus: &'a Cpus,
}

impl Plan<'_> {
    fn measure(&self, contender: &dyn Lookups, round: usize) -> Result<Measured> {
        let Setting { entries, workload, .. } = self.setting;
        let wrong = AtomicU64::new(0);
        let indices = match workload {
            Workload::Hit => 0..entries,
            Workload::Miss => ABSENT..ABSENT + entries,
        };
        let works = work(self.cpus, self.setting.threads.into(), self.window, |thread| {
            let mut indices = Indices::new(indices.clone(), seed(round, thread));
            let wrong = &wrong;
            move || {
                let mistaken = match workload {
                    Workload::Hit => contender.hits(&mut indices),
                    Workload::Miss => contender.misses(&mut indices),
                };
                if mistaken != 0 {
                    // Relaxed: a count, read after the workers have been joined.
                    wrong.fetch_add(mistaken, Ordering::Relaxed);
                }
                BATCH
            }
        });
        let wrong = wrong.into_inner();
        ensure!(wrong == 0, "{}: {wrong} lookups gave a wrong answer", contender.name());
        Ok(Measured::of(&works, self.clock))
    }
}

/// A contender, with its type put out of sight at the level of batches, where it costs nothing.
trait Lookups: Sync {
    fn name(&self) -> &'static str;
    /// Looks up a batch of keys that are present; returns how many were not found with their values.
    fn hits(&self, indices: &mut Indices) -> u64;
    /// Looks up a batch of keys that are absent; returns how many were found.
    fn misses(&self, indices: &mut Indices) -> u64;
}

impl<T: Table> Lookups for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    #[inline(never)]
    fn hits(&self, indices: &mut Indices) -> u64 {
        count_batch(indices, &self.session(), |session, index| T::get(session, scramble(index)) != Some(index))
    }

    #[inline(never)]
    fn misses(&self, indices: &mut Indices) -> u64 {
        count_batch(indices, &self.session(), |session, index| T::get(session, scramble(index)).is_some())
    }
}

/// The loop itself: draws keys and looks nothing up.
struct HarnessAlone;

impl Lookups for HarnessAlone {
    fn name(&self) -> &'static str {
        "harness alone"
    }

    #[inline(never)]
    fn hits(&self, indices: &mut Indices) -> u64 {
        count_batch(indices, &(), |(), index| black_box(scramble(index)) == ABSENT)
    }

    #[inline(never)]
    fn misses(&self, indices: &mut Indices) -> u64 {
        self.hits(indices)
    }
}

/// Draws a batch of indices; returns for how many of them `is_wrong` says yes.
#[inline(always)]
fn count_batch<S>(indices: &mut Indices, session: &S, is_wrong: impl Fn(&S, u64) -> bool) -> u64 {
    let mut stream = *indices;
    let mut wrong = 0;
    for _ in 0..BATCH {
        wrong += u64::from(is_wrong(session, stream.draw()));
    }
    *indices = stream;
    wrong
}

fn describe(args: &Args, contests: &[Contest<Setting>]) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "Nanoseconds per lookup and thread: median (range) over {} rounds, ratio to relativist round by round. {}.",
        args.rounds.rounds, args.hasher
    )?;
    for &entries in &args.entries {
        let label = |contest: &Contest<Setting>| {
            let kind = if contest.setting.workload == Workload::Hit { "hit" } else { "miss" };
            format!("{kind}, {}", threads(contest.setting.threads))
        };
        let here = contests.iter().filter(|contest| contest.setting.entries == entries);
        let columns: Vec<_> = here.map(|contest| (label(contest), contest)).collect();
        write!(text, "\n{} entries\n\n{}", count(entries), contest::overview("table", &columns))?;
    }
    write!(text, "\n{}", contest::verdict(contests))?;
    Ok(text)
}
