//! Concurrent maps.
//!
//! Lookups, the matrix and iteration use maps that are kept from round to round. If all maps
//! together exceed `--memory`, they are measured in groups, each together with ours. The other
//! workloads make a new map for each measurement, so only one exists at a time. Background work of
//! a map has to end before the next one is made.

pub mod candidates;

use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use anyhow::{Result, ensure};
use clap::{ValueEnum, value_parser};
use serde::Serialize;

use super::job::{Context, Job, Setting, Shared, made, shared, titles};
use super::memory::{ChildArgs, Memory, memory};
use super::{Entry, Subject, Work, work};
use crate::harness::comparison::Measured;
use crate::harness::keys::{ABSENT, Indices, seed};
use crate::harness::latency::{Latencies, Percentiles, time_nothing};
use crate::harness::report::{Report, count};
use crate::harness::sampling::{Distribution, Draws, Samples};
use crate::tables::candidate::{BATCH, Candidate, HarnessAlone, Lookups};
use crate::tables::entries::Kind;
use candidates::{MAPS, Map};

/// The number of memory samples while the number of entries doubles.
const SAMPLES: u64 = 64;

#[derive(Debug, clap::Args, Serialize)]
pub struct MapOptions {
    /// Types of keys and values [default: both in the matrix, otherwise u64]
    #[arg(long, value_enum, value_delimiter = ',')]
    keys: Vec<Kind>,

    /// Percentages of updates in the matrix
    #[arg(long, value_delimiter = ',', default_values_t = [0, 10, 50], value_parser = value_parser!(u8).range(0..=100))]
    updates: Vec<u8>,

    /// How keys are drawn in the matrix
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Distribution::value_variants().to_vec())]
    distributions: Vec<Distribution>,

    /// Make maps without initial capacity, so that they grow while they are filled. Applies to hit,
    /// miss, matrix, remove, clear and iterate, which otherwise reserve room for all entries
    #[arg(long)]
    grow: bool,

    /// Memory limit of all maps together, in MiB [default: half of the memory of the machine]
    #[arg(long, value_name = "MIB", value_parser = value_parser!(u64).range(1..=1 << 30))]
    memory: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct Maps;

const ALL_SIZES: &[u64] = &[1 << 12, 1 << 16, 1 << 20, 1 << 23];
const LARGE_SIZES: &[u64] = &[1 << 20, 1 << 23];
const ONE_SIZE: &[u64] = &[1 << 20];

impl Subject for Maps {
    const NAME: &'static str = "maps";
    const MIN_ENTRIES: u64 = 8;
    type Candidate = Map;
    const CANDIDATES: &'static [Entry<Map>] = MAPS;
    const WORKLOADS: &'static [Entry<Work<Self>>] = &[
        work("hit", "Lookups that hit", ALL_SIZES, hits),
        work("miss", "Lookups that miss", ALL_SIZES, misses),
        // ParlayHash's matrix.
        work("matrix", "Lookups and updates", ALL_SIZES, matrix),
        work("grow", "Growing from empty", LARGE_SIZES, grow),
        work("latency", "Single insertions into a growing map", LARGE_SIZES, latencies),
        work("remove", "Removing all keys one by one", ONE_SIZE, remove),
        work("clear", "Removing all entries at once", ONE_SIZE, clear),
        work("iterate", "Iterating", ONE_SIZE, iterate),
        work("memory", "Memory while the entries double", ONE_SIZE, memory),
    ];
    type Options = MapOptions;

    fn kinds(options: &MapOptions, workload: &str) -> Vec<Option<Kind>> {
        let kinds: &[Kind] = match options.keys.as_slice() {
            [] if workload == "matrix" => &[Kind::U64, Kind::Strings],
            [] => &[Kind::U64],
            asked => asked,
        };
        kinds.iter().copied().map(Some).collect()
    }

    fn begin(context: Context<'_, Self>, report: &mut Report) -> Result<()> {
        let lacks_avx2 = cfg!(all(target_arch = "x86_64", not(target_feature = "avx2")));
        let asked = &context.options.candidates;
        if lacks_avx2 && (asked.is_empty() || asked.iter().any(|name| name == "scc" || name == "hash-index")) {
            let advice = "build with RUSTFLAGS='-C target-feature=+avx2'";
            report.warn(format!("built without AVX2, which scc recommends: {advice}"));
        }
        Ok(())
    }

    /// hashbrown takes part in lookups, and otherwise with one thread.
    fn takes_part(map: &Map, setting: &Setting) -> bool {
        let only_reads = matches!(setting.workload, "hit" | "miss");
        map.holds(kind(setting)) && (map.is_synchronised || only_reads || setting.threads == 1)
    }

    /// Grows a map from empty to `entries`, and then to twice as many. Returns the mean of bytes
    /// per entry during the second part.
    fn resident(map: &Map, args: &ChildArgs) -> Result<f64> {
        let mut memory = Memory::now()?;
        let map = map.make(args.kind.unwrap_or(Kind::U64), 0);
        let (mut sum, mut present) = (0.0, 0);
        for look in 1..=SAMPLES {
            let entries = args.entries + args.entries * look / SAMPLES;
            fill(&*map, present..entries)?;
            present = entries;
            sum += memory.grown()? as f64 / entries as f64;
        }
        Ok(sum / SAMPLES as f64)
    }
}

fn kind(setting: &Setting) -> Kind {
    setting.kind.unwrap_or(Kind::U64)
}

/// A map that takes part.
type Row = &'static Entry<Map>;

/// Divides the candidates into groups whose maps fit the memory limit together with ours. Ours is
/// in every group, because ratios are only taken between maps that were measured in turns. A map
/// that does not fit is alone with ours.
fn groups(context: Context<'_, Maps>, setting: &Setting) -> Vec<Vec<Row>> {
    let machine = || crate::harness::machine::Machine::here(context.cpus).memory();
    let limit = context.options.more.memory.map(|mebibytes| mebibytes << 20);
    let limit = limit.or_else(|| Some(machine()? / 2)).unwrap_or(4 << 30);
    // The maximum memory that a map uses while it is filled. Some maps hold all entries twice while
    // they grow.
    let each = setting.entries * if kind(setting) == Kind::U64 { 150 } else { 300 };
    let room = (limit / each).saturating_sub(1).max(1) as usize;
    let mut candidates = context.candidates(setting);
    let others = candidates.split_off(1);
    let with_ours = |others: &[Row]| candidates.iter().chain(others).copied().collect();
    if others.is_empty() { vec![candidates] } else { others.chunks(room).map(with_ours).collect() }
}

/// Returns maps, which are filled when the first job uses them, with the entries that have the
/// indices 0, `stride`, twice `stride`, and so on.
fn filled<'a>(
    context: Context<'a, Maps>,
    setting: &Setting,
    maps: &[Row],
    stride: u64,
) -> Shared<'a, Vec<Arc<dyn Candidate>>> {
    let (setting, maps) = (setting.clone(), maps.to_vec());
    shared(move || {
        let make = |map: &Row| {
            let map = map.what.make(kind(&setting), capacity(context, &setting));
            fill(&*map, (0..setting.entries).map(|index| stride * index))?;
            map.settle();
            Ok(map)
        };
        maps.iter().map(make).collect()
    })
}

fn capacity(context: Context<'_, Maps>, setting: &Setting) -> usize {
    if context.options.more.grow { 0 } else { setting.entries as usize }
}

fn fill(map: &dyn Candidate, indices: impl IntoIterator<Item = u64>) -> Result<()> {
    let wrong = map.fill(&mut indices.into_iter());
    ensure!(wrong == 0, "{}: refused {wrong} keys that it did not hold", map.name());
    Ok(())
}

fn hits<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    lookups(context, setting, 0..setting.entries, |map, indices| map.hits(indices))
}

fn misses<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    lookups(context, setting, ABSENT..ABSENT + setting.entries, |map, indices| map.misses(indices))
}

/// Plans lookups of keys in `range`, in each way that a map has.
fn lookups<'a>(
    context: Context<'a, Maps>,
    setting: &Setting,
    range: Range<u64>,
    batch: fn(&dyn Lookups, &mut Indices) -> u64,
) -> Result<Vec<Job<'a>>> {
    let mut jobs = Vec::new();
    for (group, maps) in groups(context, setting).into_iter().enumerate() {
        let ways = move |maps: Vec<Arc<dyn Candidate>>| {
            let mut ways: Vec<_> = maps.into_iter().flat_map(Candidate::lookups).collect();
            if group == 0 {
                ways.push(Arc::new(HarnessAlone));
            }
            ways
        };
        let empty = maps.iter().map(|map| map.what.make(kind(setting), 0)).collect();
        let names: Vec<_> = ways(empty).iter().map(|way| way.name()).collect();
        let maps = filled(context, setting, &maps, 1);
        let ways = shared(move || Ok(ways(made(&maps)?.clone())));
        for setting in context.per_threads(setting) {
            let (ways, range, threads) = (Shared::clone(&ways), range.clone(), setting.threads);
            jobs.push(Job::new(setting, names.clone(), context.options.rounds, move |candidate, round| {
                let way = &made(&ways)?[candidate];
                context.in_window(threads, |thread| {
                    let mut indices = Indices::new(range.clone(), seed(round, thread));
                    move || (BATCH, batch(&**way, &mut indices))
                })
            }));
        }
    }
    Ok(jobs)
}

/// Plans measurements of maps that are kept from round to round. `batches(map, samples, seed)`
/// returns a batch.
fn kept<'a>(
    context: Context<'a, Maps>,
    setting: Setting,
    maps: &[Row],
    filled: &Shared<'a, Vec<Arc<dyn Candidate>>>,
    samples: Option<Rc<Samples>>,
    batches: impl for<'m> Fn(&'m dyn Candidate, Option<&'m Samples>, u64) -> Batch<'m> + Sync + 'a,
) -> Job<'a> {
    let takes_part = |&place: &usize| Maps::takes_part(&maps[place].what, &setting);
    let places: Vec<usize> = (0..maps.len()).filter(takes_part).collect();
    let names = places.iter().map(|&place| maps[place].title).collect();
    let (filled, threads) = (Shared::clone(filled), setting.threads);
    Job::new(setting, names, context.options.rounds, move |candidate, round| {
        let map = &*made(&filled)?[places[candidate]];
        let samples = samples.as_deref();
        context.in_window(threads, |thread| batches(map, samples, seed(round, thread)))
    })
}

type Batch<'m> = Box<dyn FnMut() -> (u64, u64) + 'm>;

/// Plans ParlayHash's matrix. Indices are drawn from `0..2 * entries`, so half of the lookups hit.
/// At first the even ones are present, later a random half. Half of the updates insert, half
/// remove.
fn matrix<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    let (entries, most) = (setting.entries, u64::from(u32::MAX) / 2);
    ensure!(entries <= most, "--entries {}: too many to draw from, the matrix takes {most} at most", count(entries));
    let options = &context.options.more;
    let mut jobs = Vec::new();
    for maps in groups(context, setting) {
        let filled = filled(context, setting, &maps, 2);
        for &distribution in &options.distributions {
            let samples = (distribution == Distribution::Zipf).then(|| Rc::new(Samples::zipf(2 * entries)));
            for &percent in &options.updates {
                let setting = setting.with_detail(format!("{}, {percent} % updates", distribution.name()));
                for setting in context.per_threads(&setting) {
                    let samples = samples.clone();
                    jobs.push(kept(context, setting, &maps, &filled, samples, move |map, samples, seed| {
                        let mut draws = Draws::new(0..2 * entries, samples, percent, seed);
                        Box::new(move || (BATCH, map.batch(&mut draws)))
                    }));
                }
            }
        }
    }
    Ok(jobs)
}

fn iterate<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    let entries = setting.entries;
    let expected = (entries, (0..entries).sum());
    let mut jobs = Vec::new();
    for maps in groups(context, setting) {
        let filled = filled(context, setting, &maps, 1);
        jobs.extend(context.per_threads(setting).into_iter().map(|setting| {
            kept(context, setting, &maps, &filled, None, move |map, _, _| {
                Box::new(move || (entries, u64::from(map.iterate() != expected)))
            })
        }));
    }
    Ok(jobs)
}

/// Plans measurements that run to completion, each on a new map.
fn fresh<'a>(
    context: Context<'a, Maps>,
    settings: Vec<Setting>,
    capacity: usize,
    measure: impl Fn(&Setting, &dyn Candidate) -> Result<Measured> + Copy + 'a,
) -> Vec<Job<'a>> {
    let job = |setting: Setting| {
        let maps = context.candidates(&setting);
        Job::new(setting.clone(), titles(&maps), context.options.rounds, move |candidate, _| {
            let map = maps[candidate].what.make(kind(&setting), capacity);
            let measured = measure(&setting, &*map)?;
            map.settle();
            Ok(measured)
        })
    };
    settings.into_iter().map(job).collect()
}

fn grow<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    Ok(fresh(context, context.per_threads(setting), 0, move |setting, map| {
        context.to_completion(setting.threads, |thread| {
            let share = share(setting, thread);
            (share.end - share.start, map.fill(&mut share.into_iter()))
        })
    }))
}

/// Plans the removal of all keys one by one, in the order in which they were inserted.
fn remove<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    Ok(fresh(context, context.per_threads(setting), capacity(context, setting), move |setting, map| {
        fill(map, 0..setting.entries)?;
        map.settle();
        context.to_completion(setting.threads, |thread| {
            let share = share(setting, thread);
            (share.end - share.start, map.remove(share))
        })
    }))
}

fn clear<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    Ok(fresh(context, vec![setting.clone()], capacity(context, setting), move |setting, map| {
        fill(map, 0..setting.entries)?;
        map.settle();
        let measured = context.to_completion(1, |_| {
            map.clear();
            (setting.entries, 0)
        })?;
        ensure!(map.iterate().0 == 0, "not empty after it was cleared");
        Ok(measured)
    }))
}

/// Plans latencies of single insertions, while the map grows from empty.
fn latencies<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    let job = |setting: Setting| {
        let maps = context.candidates(&setting);
        let names = titles(&maps).into_iter().chain(["harness alone"]).collect();
        let details = ["median", "99 %", "99.9 %", "99.99 %", "longest", "longest without waiting for a CPU"];
        let unit = |detail: &str| if detail.starts_with("longest") { "us per insertion" } else { "ns per insertion" };
        let values = details.iter().map(|detail| (setting.with_detail(*detail), unit(detail))).collect();
        Job::several(values, names, context.options.rounds, move |candidate, _| {
            let map = maps.get(candidate).map(|map| map.what.make(kind(&setting), 0));
            let found = insert_timed(context, &setting, map.as_deref())?;
            map.inspect(|map| map.settle());
            // If the system does not report the time without a CPU, it cannot be subtracted.
            let scheduled = found.longest_scheduled.unwrap_or(found.longest);
            let Percentiles { p50, p99, p999, p9999, longest, .. } = found;
            Ok([p50, p99, p999, p9999, longest / 1e3, scheduled / 1e3].map(Measured::single).into())
        })
    };
    Ok(context.per_threads(setting).into_iter().map(job).collect())
}

/// Inserts all entries, and returns the latencies. Times empty operations if there is no map.
fn insert_timed(context: Context<'_, Maps>, setting: &Setting, map: Option<&dyn Candidate>) -> Result<Percentiles> {
    let total = Mutex::new(Latencies::new());
    context.to_completion(setting.threads, |thread| {
        let share = share(setting, thread);
        let count = share.end - share.start;
        let mut latencies = Latencies::new();
        let wrong = match map {
            Some(map) => map.fill_timed(share, &mut latencies),
            None => {
                time_nothing(count, &mut latencies);
                0
            }
        };
        total.lock().expect("no worker panics").add(&latencies);
        (count, wrong)
    })?;
    Ok(total.into_inner().expect("no worker panics").percentiles())
}

/// Returns the share of `thread` in `0..entries`.
fn share(setting: &Setting, thread: usize) -> Range<u64> {
    let (threads, thread) = (u64::from(setting.threads), thread as u64);
    setting.entries * thread / threads..setting.entries * (thread + 1) / threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_the_whole() {
        let setting = Setting { threads: 3, ..Setting::new("maps", "grow", "", None, 100) };
        assert_eq!([0, 1, 2].map(|thread| share(&setting, thread)), [0..33, 33..66, 66..100]);
    }
}
