//! `relativist update`: what an operation costs while a share of them are updates.

use std::fmt::Write;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use clap::{ValueEnum, value_parser};
use serde::Serialize;

use crate::contest::{self, Contest, Measured};
use crate::keys::{Indices, scramble, seed};
use crate::options::{HashFunction, Output, Rounds, parse_count};
use crate::report::{Report, count, threads};
use crate::rounds::progress;
use crate::tables::dashmap::Dashmap;
use crate::tables::hashers::{Foldhash, Fx, Identity, TableHasher};
use crate::tables::papaya::Papaya;
use crate::tables::relativist::Relativist;
use crate::tables::scc::Scc;
use crate::tables::{Contents, Update};
use crate::workers::{Cpus, run as work};

/// Operations between two looks at the clock's flag.
const BATCH: u64 = 1024;

/// Measure what an operation costs while some of them insert and remove
///
/// Three quarters of the entries stay; they are looked up at random, and every lookup must find its value. The last quarter
/// is divided among the threads: each inserts a new key and removes its oldest in turn, so that the size is stable, every
/// insertion really inserts and every removal really removes (each is checked), in every table alike. Which operations are
/// updates is decided by a random draw.
///
/// Every operation has a guard of its own. Figures are nanoseconds per operation of any kind, reclamation included.
#[derive(Debug, clap::Args, Serialize)]
pub struct Args {
    /// Entries of the tables, each measured on its own: numbers such as 65536 or 2^16
    #[arg(long, value_delimiter = ',', default_value = "2^16,2^20", value_parser = parse_count)]
    entries: Vec<u64>,

    /// Percentages of operations that are updates, each measured on its own
    #[arg(long, value_delimiter = ',', default_values_t = [10, 50], value_parser = value_parser!(u8).range(1..=100))]
    updates: Vec<u8>,

    /// Tables to measure; relativist is always there, as the others are compared with it
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Rival::value_variants().to_vec())]
    tables: Vec<Rival>,

    /// Hash function of all tables
    #[arg(long, value_enum, default_value_t = HashFunction::Foldhash)]
    hasher: HashFunction,

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
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Setting {
    entries: u64,
    threads: u16,
    updates_percent: u8,
}

#[derive(Debug, Serialize)]
struct Results {
    contests: Vec<Contest<Setting>>,
}

/// Runs the subcommand.
///
/// # Errors
/// When a table answers wrongly or refuses an update, or the report can't be written.
pub fn run(args: &Args) -> Result<()> {
    let cpus = Cpus::allowed();
    for &entries in &args.entries {
        let least = 8 * args.rounds.most_threads() as u64;
        ensure!(entries >= least, "--entries {entries} is too few to divide among the threads: give at least {least}");
    }
    let mut report = Report::begin("update", args.output.json.as_deref(), &cpus, args.rounds.most_threads())?;
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
    let settings = args.entries.len() * args.rounds.threads.len() * args.updates.len();
    let bar = progress(settings * (1 + args.tables.len()) * args.rounds.rounds as usize);
    let mut contests = Vec::new();
    for &entries in &args.entries {
        for &threads in &args.rounds.threads {
            bar.set_message(format!("filling tables with {} entries", count(entries)));
            let partition = Partition::of(entries, threads);
            let contenders = contenders::<H>(args, &partition);
            let names: Vec<_> = contenders.iter().map(|contender| contender.table.name()).collect();
            for &updates_percent in &args.updates {
                let setting = Setting { entries, threads, updates_percent };
                let one = |contender: usize, round| {
                    contenders[contender].measure(setting, &partition.resident, &args.rounds, cpus, round)
                };
                contests.push(contest::hold(setting, &names, args.rounds.rounds, &bar, one)?);
            }
        }
    }
    bar.finish_and_clear();
    Ok(contests)
}

/// Which keys stay, and which each thread replaces.
#[derive(Debug)]
struct Partition {
    resident: Range<u64>,
    churning: Vec<Range<u64>>,
}

impl Partition {
    fn of(entries: u64, threads: u16) -> Self {
        let each = entries / 4 / u64::from(threads);
        let churning = (1..=u64::from(threads)).map(|thread| (thread << 40)..(thread << 40) + each);
        Self { resident: 0..entries - each * u64::from(threads), churning: churning.collect() }
    }

    fn contents(&self) -> Contents {
        let indices = [self.resident.clone()].into_iter().chain(self.churning.iter().cloned()).collect();
        Contents { indices, reserve: true }
    }
}

fn contenders<H: TableHasher>(args: &Args, partition: &Partition) -> Vec<Contender> {
    let contents = partition.contents();
    let mut tables: Vec<Box<dyn Mix>> = vec![Box::new(Relativist::<H>::filled(&contents))];
    for rival in Rival::value_variants().iter().filter(|rival| args.tables.contains(rival)) {
        tables.push(match rival {
            Rival::Papaya => Box::new(Papaya::<H>::filled(&contents)),
            Rival::Scc => Box::new(Scc::<H>::filled(&contents)),
            Rival::Dashmap => Box::new(Dashmap::<H>::filled(&contents)),
        });
    }
    let churns = || partition.churning.iter().map(|range| Mutex::new(Churn::new(range.clone()))).collect();
    tables.into_iter().map(|table| Contender { table, churns: churns() }).collect()
}

/// A table, and where each thread has got to in replacing its share of it.
struct Contender {
    table: Box<dyn Mix>,
    churns: Vec<Mutex<Churn>>,
}

impl Contender {
    fn measure(
        &self,
        setting: Setting,
        resident: &Range<u64>,
        rounds: &Rounds,
        cpus: &Cpus,
        round: usize,
    ) -> Result<Measured> {
        let wrong = AtomicU64::new(0);
        let works = work(cpus, setting.threads.into(), rounds.window(), |thread| {
            let mut churn = self.churns[thread].lock().expect("no worker panics");
            let mut draws = Draws::new(resident.clone(), setting.updates_percent, seed(round, thread));
            let wrong = &wrong;
            move || {
                let amiss = self.table.batch(&mut draws, &mut churn);
                if amiss != 0 {
                    // Relaxed: a count, read after the workers have been joined.
                    wrong.fetch_add(amiss, Ordering::Relaxed);
                }
                BATCH
            }
        });
        let wrong = wrong.into_inner();
        ensure!(wrong == 0, "{}: {wrong} operations gave a wrong answer", self.table.name());
        Ok(Measured::of(&works, rounds.clock))
    }
}

/// What one thread does next.
#[derive(Clone, Copy, Debug)]
struct Draws {
    indices: Indices,
    /// An operation is an update when its 16 random bits are below this.
    updates_below: u32,
}

impl Draws {
    fn new(resident: Range<u64>, updates_percent: u8, seed: u64) -> Self {
        let updates_below = (u32::from(updates_percent) << 16) / 100;
        Self { indices: Indices::new(resident, seed), updates_below }
    }

    /// The index to look up, or `None` for an update.
    #[inline(always)]
    fn draw(&mut self) -> Option<u64> {
        let (index, coin) = self.indices.draw_with_coin();
        (u32::from(coin) >= self.updates_below).then_some(index)
    }
}

/// The keys that one thread has in a table: it inserts at one end of the range and removes at the other, in turn.
#[derive(Debug)]
struct Churn {
    present: Range<u64>,
    at_rest: u64,
}

impl Churn {
    fn new(present: Range<u64>) -> Self {
        let at_rest = present.end - present.start;
        Self { present, at_rest }
    }

    /// Inserts or removes one key; false when the table did not expect that.
    #[inline]
    fn update(&mut self, table: &impl Update) -> bool {
        if self.present.end - self.present.start == self.at_rest {
            let index = self.present.end;
            self.present.end += 1;
            table.insert(scramble(index), index)
        } else {
            let index = self.present.start;
            self.present.start += 1;
            table.remove(scramble(index))
        }
    }
}

/// A contender, with its type put out of sight at the level of batches, where it costs nothing.
trait Mix: Sync {
    fn name(&self) -> &'static str;
    /// Does a batch of operations; returns how many went wrong.
    fn batch(&self, draws: &mut Draws, churn: &mut Churn) -> u64;
}

impl<T: Update> Mix for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    #[inline(never)]
    fn batch(&self, draws: &mut Draws, churn: &mut Churn) -> u64 {
        let session = self.session();
        let mut stream = *draws;
        let mut wrong = 0;
        for _ in 0..BATCH {
            let right = match stream.draw() {
                Some(index) => T::get(&session, scramble(index)) == Some(index),
                None => churn.update(self),
            };
            wrong += u64::from(!right);
        }
        *draws = stream;
        wrong
    }
}

fn describe(args: &Args, contests: &[Contest<Setting>]) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "Nanoseconds per operation and thread: median (range) over {} rounds, ratio to relativist round by round. {}.",
        args.rounds.rounds, args.hasher
    )?;
    for &entries in &args.entries {
        let label = |setting: Setting| format!("{} % updates, {}", setting.updates_percent, threads(setting.threads));
        let here = contests.iter().filter(|contest| contest.setting.entries == entries);
        let columns: Vec<_> = here.map(|contest| (label(contest.setting), contest)).collect();
        write!(text, "\n{} entries\n\n{}", count(entries), contest::overview("table", &columns))?;
    }
    write!(text, "\n{}", contest::verdict(contests))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_add_up_and_do_not_overlap() {
        let partition = Partition::of(1000, 3);
        let contents = partition.contents();
        let mut indices: Vec<u64> = contents.pairs().map(|(_, index)| index).collect();
        assert_eq!(indices.len(), 1000);
        assert_eq!(contents.capacity(), 1000);
        indices.sort_unstable();
        indices.dedup();
        assert_eq!(indices.len(), 1000);
        assert_eq!(partition.churning.len(), 3);
    }

    #[test]
    fn churn_keeps_the_size_and_replaces_every_key() {
        let table = Dashmap::<Foldhash>::filled(&Partition::of(64, 1).contents());
        let mut churn = Churn::new(Partition::of(64, 1).churning[0].clone());
        let first = churn.present.clone();
        for _ in 0..2 * (first.end - first.start) {
            assert!(churn.update(&table));
        }
        assert_eq!(churn.present, first.end..first.end + (first.end - first.start));
    }

    #[test]
    fn the_share_of_updates_is_what_was_asked_for() {
        for percent in [1u8, 10, 50, 100] {
            let mut draws = Draws::new(0..100, percent, 1);
            let updates = (0..100_000).filter(|_| draws.draw().is_none()).count();
            let expected = usize::from(percent) * 1000;
            assert!(updates.abs_diff(expected) < 600, "{updates} updates at {percent} %");
        }
    }

    #[test]
    fn lost_keys_are_noticed() {
        let partition = Partition::of(64, 1);
        let table = Dashmap::<Foldhash>::filled(&partition.contents());
        for index in partition.resident.clone() {
            assert!(table.remove(scramble(index)));
        }
        let mut draws = Draws::new(partition.resident, 1, 1);
        let mut churn = Churn::new(partition.churning[0].clone());
        assert!(Mix::batch(&table, &mut draws, &mut churn) > BATCH / 2);
    }
}
