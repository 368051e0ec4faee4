//! Concurrent maps.
//!
//! Lookups, the matrix and iteration use maps that are kept from round to round. If all maps
//! together exceed `--memory`, they are measured in groups, each together with ours. The other
//! workloads make new maps for each measurement, so only those of one candidate exist at a time.
//! What a map has removed has to be freed before the next one is made.

pub mod candidates;

use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Result, ensure};
use clap::{ValueEnum, value_parser};
use serde::Serialize;

use super::job::{Batch, Context, Job, Setting, Shared, made, shared, titles};
use super::memory::{ChildArgs, Memory, memory};
use super::{Entry, Subject, Work, work};
use crate::harness::comparison::Measured;
use crate::harness::keys::{ABSENT, Indices, seed};
use crate::harness::latency::{Latencies, Percentiles, time_nothing};
use crate::harness::report::{Report, count};
use crate::harness::sampling::{Distribution, Draws, Samples};
use crate::harness::workers::{run_to_completion, span};
use crate::tables::candidate::{BATCH, Candidate, HarnessAlone, Lookups};
use crate::tables::entries::Kind;
use candidates::{MAPS, Map};

/// The number of memory samples while the number of entries doubles.
const SAMPLES: u64 = 64;

/// The least number of entries in a measurement that runs to completion, because reading the clocks
/// takes time, too. Small maps are measured several at a time, one after the other.
const MIN_ENTRIES: u64 = 1 << 16;

#[derive(Debug, clap::Args, Serialize)]
pub struct MapOptions {
    /// Types of keys and values [default: both in matrix and replace, otherwise u64]
    #[arg(long, value_enum, value_delimiter = ',')]
    keys: Vec<Kind>,

    /// Percentages of updates in matrix and replace
    #[arg(long, value_delimiter = ',', default_values_t = [0, 10, 50], value_parser = value_parser!(u8).range(0..=100))]
    updates: Vec<u8>,

    /// How keys are drawn in matrix and replace
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Distribution::value_variants().to_vec())]
    distributions: Vec<Distribution>,

    /// Make maps without initial capacity, so that they grow while they are filled. Applies to the
    /// workloads that otherwise reserve room for all entries: all but grow, latency, memory, many
    /// and short-lived
    #[arg(long)]
    grow: bool,

    /// Memory limit of all maps together, in MiB [default: half of the memory of the machine]
    #[arg(long, value_name = "MIB", value_parser = value_parser!(u64).range(1..=1 << 30))]
    memory: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct Maps;

const ALL_SIZES: &[u64] = &[1 << 12, 1 << 16, 1 << 20, 5 << 18, 3 << 19, 7 << 18, 1 << 23];
const GROWN_SIZES: &[u64] = &[1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 23];
const LARGE_SIZES: &[u64] = &[1 << 20, 1 << 23];
const ONE_SIZE: &[u64] = &[1 << 20];

impl Subject for Maps {
    const NAME: &'static str = "maps";
    const MIN_ENTRIES: u64 = 8;
    type Candidate = Map;
    const CANDIDATES: &'static [Entry<Map>] = MAPS;
    const WORKLOADS: &'static [Entry<Work<Self>>] = &[
        work("hit", "Lookups that hit", ALL_SIZES, hits),
        work("dependent", "Lookups that depend on the value found before", ALL_SIZES, dependent),
        work("miss", "Lookups that miss", ALL_SIZES, misses),
        // ParlayHash's matrix.
        work("matrix", "Lookups and updates", ALL_SIZES, matrix),
        work("replace", "Lookups and updates that replace", ALL_SIZES, matrix),
        work("grow", "Growing from empty", GROWN_SIZES, grow),
        work("latency", "Single insertions into a growing map", LARGE_SIZES, latencies),
        work("remove", "Removing all keys one by one", ONE_SIZE, remove),
        work("clear", "Removing all entries at once", ONE_SIZE, clear),
        work("iterate", "Iterating", ONE_SIZE, iterate),
        work("memory", "Memory while the entries double", ONE_SIZE, memory),
        work("resizing", "Lookups while a thread resizes the map", &[1 << 16, 1 << 20], resizing),
        work("many", "Filling new maps", &[10_000], many),
        work("short-lived", "Filling a new map, 1024 hits, and dropping it", &[100], short_lived),
    ];
    type Options = MapOptions;

    fn kinds(options: &MapOptions, workload: &str) -> Vec<Option<Kind>> {
        let kinds: &[Kind] = match options.keys.as_slice() {
            [] if matches!(workload, "matrix" | "replace") => &[Kind::U64, Kind::Strings],
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

    /// hashbrown takes part where no thread updates a map that others use.
    fn takes_part(map: &Map, setting: &Setting) -> bool {
        let updates_none_shared = matches!(setting.workload, "hit" | "miss" | "many" | "short-lived");
        map.holds(kind(setting))
            && (map.is_synchronised || updates_none_shared || setting.threads == 1)
            && (setting.workload != "resizing" || map.can_be_resized())
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

fn dependent<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    let entries = setting.entries;
    Ok(all_kept(context, setting, move |map, _, seed| {
        let mut indices = Indices::new(0..entries, seed);
        Box::new(move || (BATCH, map.dependent(&mut indices)))
    }))
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

/// Plans measurements of all maps that are kept, with each number of threads.
fn all_kept<'a>(
    context: Context<'a, Maps>,
    setting: &Setting,
    batches: impl for<'m> Fn(&'m dyn Candidate, Option<&'m Samples>, u64) -> Batch<'m> + Copy + Sync + 'a,
) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for maps in groups(context, setting) {
        let filled = filled(context, setting, &maps, 1);
        let job = |setting| kept(context, setting, &maps, &filled, None, batches);
        jobs.extend(context.per_threads(setting).into_iter().map(job));
    }
    jobs
}

/// Plans ParlayHash's matrix. Indices are drawn from `0..2 * entries`, so half of the lookups hit.
/// At first the even ones are present, later a random half. Half of the updates insert, half
/// remove. In the workload `replace`, insertions replace the value if the key is present.
fn matrix<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    let (entries, most) = (setting.entries, u64::from(u32::MAX) / 2);
    ensure!(entries <= most, "--entries {}: too many to draw from, the matrix takes {most} at most", count(entries));
    let options = &context.options.more;
    let replaces = setting.workload == "replace";
    let mut jobs = Vec::new();
    for maps in groups(context, setting) {
        let filled = filled(context, setting, &maps, 2);
        for &distribution in &options.distributions {
            let samples = (distribution == Distribution::Zipf).then(|| Rc::new(Samples::zipf(2 * entries)));
            for &percent in options.updates.iter().filter(|percent| **percent > 0 || !replaces) {
                let setting = setting.with_detail(format!("{}, {percent} % updates", distribution.name()));
                for setting in context.per_threads(&setting) {
                    let samples = samples.clone();
                    jobs.push(kept(context, setting, &maps, &filled, samples, move |map, samples, seed| {
                        let mut draws = Draws::new(0..2 * entries, samples, percent, seed);
                        if replaces {
                            Box::new(move || (BATCH, map.batch_replacing(&mut draws)))
                        } else {
                            Box::new(move || (BATCH, map.batch(&mut draws)))
                        }
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
    Ok(all_kept(context, setting, move |map, _, _| Box::new(move || (entries, u64::from(map.iterate() != expected)))))
}

/// Plans measurements that run to completion, each on new maps. `measure` returns a value for each
/// of `details`.
fn fresh<'a, const N: usize>(
    context: Context<'a, Maps>,
    settings: Vec<Setting>,
    capacity: usize,
    details: [&'static str; N],
    measure: impl Fn(&Setting, &[Arc<dyn Candidate>]) -> Result<[Measured; N]> + Copy + 'a,
) -> Vec<Job<'a>> {
    let job = |setting: Setting| {
        let maps = context.candidates(&setting);
        let values = details.iter().map(|detail| (setting.with_detail(*detail), "ns")).collect();
        Job::several(values, titles(&maps), context.options.rounds, move |candidate, _| {
            let make = |_| maps[candidate].what.make(kind(&setting), capacity);
            let maps: Vec<_> = (0..MIN_ENTRIES.div_ceil(setting.entries)).map(make).collect();
            let measured = measure(&setting, &maps)?;
            maps[0].settle();
            Ok(measured.into())
        })
    };
    settings.into_iter().map(job).collect()
}

/// Lets threads do their shares of `work` on each map. It returns the number of wrong results.
fn in_shares(
    context: Context<'_, Maps>,
    setting: &Setting,
    maps: &[Arc<dyn Candidate>],
    work: impl Fn(&dyn Candidate, Range<u64>) -> u64 + Sync,
) -> Result<Measured> {
    context.to_completion(setting.threads, |thread| {
        let share = share(setting, thread);
        let wrong = maps.iter().map(|map| work(&**map, share.clone())).sum();
        (maps.len() as u64 * (share.end - share.start), wrong)
    })
}

/// Fills maps before a measurement.
fn fill_all(setting: &Setting, maps: &[Arc<dyn Candidate>]) -> Result<()> {
    maps.iter().try_for_each(|map| fill(&**map, 0..setting.entries))?;
    maps[0].settle();
    Ok(())
}

fn grow<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    Ok(fresh(context, context.per_threads(setting), 0, [""], move |setting, maps| {
        Ok([in_shares(context, setting, maps, |map, mut share| map.fill(&mut share))?])
    }))
}

/// Plans the removal of all keys one by one, in the order in which they were inserted.
fn remove<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    Ok(fresh(context, context.per_threads(setting), capacity(context, setting), [""], move |setting, maps| {
        fill_all(setting, maps)?;
        Ok([in_shares(context, setting, maps, |map, share| map.remove(share))?])
    }))
}

/// Plans the removal of all entries at once: the call, and the time until what it removed is freed,
/// as far as the map has a method that waits for that.
fn clear<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    let details = ["the call", "until all are freed"];
    Ok(fresh(context, vec![setting.clone()], capacity(context, setting), details, move |setting, maps| {
        fill_all(setting, maps)?;
        let timed = |work: &(dyn Fn() + Sync)| {
            context.to_completion(1, |_| {
                work();
                (maps.len() as u64 * setting.entries, 0)
            })
        };
        let (call, rest) = (timed(&|| maps.iter().for_each(|map| map.clear()))?, timed(&|| maps[0].settle())?);
        ensure!(maps.iter().all(|map| map.iterate().0 == 0), "not empty after it was cleared");
        let all = rest.plus(&call);
        Ok([call, all])
    }))
}

/// Plans lookups in maps that another thread resizes without pause, and in the same maps at rest.
fn resizing<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    let maps = context.candidates(setting);
    let filled = filled(context, setting, &maps, 1);
    let job = |setting: Setting| {
        let (filled, threads) = (Shared::clone(&filled), setting.threads);
        let values = [("at rest", "ns"), ("resized", "ns"), ("rate while resized", "of the rate at rest")];
        let values = values.map(|(detail, unit)| (setting.with_detail(detail), unit)).into();
        Job::several(values, titles(&maps), context.options.rounds, move |candidate, round| {
            let map = &*made(&filled)?[candidate];
            // The size at rest is the smaller one of the two.
            map.resize();
            let look_up = || {
                context.in_window(threads, |thread| {
                    let mut indices = Indices::new(0..setting.entries, seed(round, thread));
                    move || (BATCH, map.hits(&mut indices))
                })
            };
            let at_rest = look_up()?;
            let done = AtomicBool::new(false);
            let resized = thread::scope(|scope| {
                // Relaxed, here and below: a signal only.
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        map.resize();
                    }
                });
                let measured = look_up();
                done.store(true, Ordering::Relaxed);
                measured
            })?;
            let rate = Measured::single(at_rest.value() / resized.value());
            Ok(vec![at_rest, resized, rate])
        })
    };
    Ok(context.per_threads(setting).into_iter().map(job).collect())
}

/// Plans many threads that fill several new maps each. The time is compared with that of one map
/// and one thread: 1 if all CPUs fill maps as fast as one CPU does.
fn many<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    const THREADS: u16 = 32;
    const EACH: u64 = 4;
    let maps = context.candidates(setting);
    let names = titles(&maps);
    let all = Setting { threads: THREADS, ..setting.with_detail(format!("{EACH} by each thread")) };
    let values = vec![(setting.with_detail("one"), "ns"), (all, "times one map by one thread, per map and CPU")];
    let setting = setting.clone();
    let measure = move |candidate: usize, _| {
        let fill_new = |threads: u16, each: u64| {
            let results = run_to_completion(context.cpus, threads.into(), |_| {
                let new = || maps[candidate].what.make(kind(&setting), 0);
                (0..each).map(|_| new().fill(&mut (0..setting.entries))).sum()
            });
            let wrong: u64 = results.iter().map(|result| result.operations).sum();
            ensure!(wrong == 0, "refused {wrong} keys");
            Ok(span(&results).as_secs_f64())
        };
        let (one, all) = (fill_new(1, 1)?, fill_new(THREADS, EACH)?);
        let cpus = context.cpus.count().min(THREADS.into()) as f64;
        let per_map = all * cpus / f64::from(THREADS) / EACH as f64;
        Ok([one * 1e9 / setting.entries as f64, per_map / one].map(Measured::single).into())
    };
    Ok(vec![Job::several(values, names, context.options.rounds, measure)])
}

/// Plans the whole lives of maps that only their own thread uses.
fn short_lived<'a>(context: Context<'a, Maps>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    let job = |setting: Setting| {
        let maps = context.candidates(&setting);
        let values = vec![(setting.clone(), "ns per map")];
        Job::several(values, titles(&maps), context.options.rounds, move |candidate, round| {
            let measured = context.in_window(setting.threads, |thread| {
                let mut indices = Indices::new(0..setting.entries, seed(round, thread));
                let (map, kind, entries) = (&maps[candidate].what, kind(&setting), setting.entries);
                move || {
                    let map = map.make(kind, 0);
                    (1, map.fill(&mut (0..entries)) + map.hits(&mut indices))
                }
            })?;
            Ok(vec![measured])
        })
    };
    Ok(context.per_threads(setting).into_iter().map(job).collect())
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
