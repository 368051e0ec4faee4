//! The store of relativistd and other caches of byte strings, without sockets or a protocol.

pub mod engine;

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use clap::value_parser;
use serde::Serialize;

use super::job::{Batch, Context, Job, Setting, Shared, made, shared, titles};
use super::{Entry, Subject, Work, work};
use crate::harness::comparison::Measured;
use crate::harness::keys::{ABSENT, scramble};
use crate::harness::sampling::{Draws, Samples};
use engine::{Engine, Ours, Plan};
#[cfg(feature = "segcache")]
use engine::{Segcache, SegcachePolicy};

/// Bytes of a key.
const KEY: usize = 10;

/// The number of operations between two checks whether the time is over.
const BATCH: u64 = 256;

/// The operations of a batch that may miss, or be refused: the table of Segcache refuses one of
/// some hundred items.
const MAX_REFUSED: u64 = BATCH / 10;

#[derive(Debug, clap::Args, Serialize)]
pub struct EngineOptions {
    /// Bytes of a value
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(8..=100_000))]
    value_size: u64,
}

type Made = Box<dyn Engine>;

/// How to make a cache.
#[derive(Debug)]
pub struct Maker {
    make: fn(Plan) -> Result<Made>,
    /// Makes a cache without eviction, whose table has the size of this number. Returns none if
    /// there is no such size.
    without_eviction: fn(Plan, u32) -> Result<Option<Made>>,
}

#[derive(Clone, Copy, Debug)]
pub struct Engines;

const SIZES: &[u64] = &[1 << 20];

impl Subject for Engines {
    const NAME: &'static str = "engines";
    const MIN_ENTRIES: u64 = 1024;
    type Candidate = Maker;
    const CANDIDATES: &'static [Entry<Maker>] = &[
        Entry {
            name: "relativist-store",
            title: "relativist-store",
            what: Maker {
                make: |plan| Ok(Box::new(Ours::new(plan)?)),
                without_eviction: |plan, table| match table {
                    0 => Ok(Some(Box::new(Ours::new(plan)?.without_eviction()))),
                    _ => Ok(None),
                },
            },
        },
        #[cfg(feature = "segcache")]
        Entry {
            name: "segcache",
            title: "segcache",
            what: Maker {
                make: |plan| Ok(Box::new(Segcache::new(plan, Segcache::MERGE)?)),
                without_eviction: |plan, table| match Segcache::power(plan) - 1 + table {
                    power if table < 3 => Ok(Some(Box::new(Segcache::with_power(plan, SegcachePolicy::None, power)?))),
                    _ => Ok(None),
                },
            },
        },
    ];
    const WORKLOADS: &'static [Entry<Work<Self>>] = &[
        work("room", "Bytes per item without key and value, when memory is full", SIZES, room),
        work("get", "GET, all keys equally likely", SIZES, |context, setting| get(context, setting, None)),
        work("get-zipf", "GET, Zipf 0.99", SIZES, |context, setting| {
            get(context, setting, Some(Samples::zipf(setting.entries)))
        }),
        work("miss", "GET of absent keys", SIZES, miss),
        work("set", "SET of present keys", SIZES, set),
        work("evict", "SET of new keys into a full cache", SIZES, evict),
    ];
    type Options = EngineOptions;
}

/// A key that looks random, with an index that any thread can check.
#[derive(Clone, Copy)]
struct Key(u64);

impl Key {
    fn new(index: u64) -> Self {
        Self(scramble(index))
    }

    fn bytes(self) -> [u8; KEY] {
        let mut key = [b'k'; KEY];
        key[..8].copy_from_slice(&self.0.to_le_bytes());
        key
    }

    /// Writes to the beginning of a value to which key it belongs.
    fn mark(self, value: &mut [u8]) {
        value[..8].copy_from_slice(&self.0.to_be_bytes());
    }

    fn is_marked(self, value: &[u8]) -> bool {
        value.starts_with(&self.0.to_be_bytes())
    }
}

/// Returns the plan of a cache that needs `times` the memory of the entries, with 40 bytes for each
/// besides key and value.
fn plan(context: Context<'_, Engines>, setting: &Setting, times: f64) -> Plan {
    let item = KEY as u64 + context.options.more.value_size;
    let limit = (setting.entries * (item + 40)) as f64 * times;
    Plan { limit: limit as u64, mean_item: item, largest_item: item }
}

/// Plans to count the items that fit without eviction. If a cache can have tables of several sizes,
/// the one with the most items counts.
fn room<'a>(context: Context<'a, Engines>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    let candidates = context.candidates(setting);
    let plan = plan(context, setting, 1.0);
    let value_size = context.options.more.value_size as usize;
    let values = vec![(setting.clone(), "bytes per item")];
    let names = titles(&candidates);
    Ok(vec![Job::several(values, names, 1, move |candidate, _| {
        let mut most = 1;
        for table in 0.. {
            let Some(engine) = (candidates[candidate].what.without_eviction)(plan, table)? else { break };
            most = most.max(stored(&*engine, value_size)?);
        }
        Ok(vec![Measured::single(plan.limit as f64 / most as f64 - plan.mean_item as f64)])
    })])
}

/// Stores items until one in a hundred is refused, because memory is full, or because a table
/// without room refuses more and more. Returns the number of stored items.
fn stored(engine: &dyn Engine, value_size: usize) -> Result<usize> {
    let mut value = vec![0; value_size];
    let (mut stored, mut refused) = (Vec::new(), 0);
    for index in 0_u64.. {
        let key = Key::new(index);
        key.mark(&mut value);
        if engine.set(&key.bytes(), &value) {
            stored.push(key);
        } else {
            refused += 1;
        }
        if refused * 100 > index.max(1000) {
            break;
        }
    }
    for key in &stored {
        value.clear();
        ensure!(engine.get(&key.bytes(), &mut value) && key.is_marked(&value), "a stored item is not there");
    }
    Ok(stored.len())
}

/// A cache, and what is in it.
struct Filled {
    engine: Box<dyn Engine>,
    value_size: usize,
    /// The index of the next new key.
    next: AtomicU64,
    /// How many stores of new keys were refused.
    refused: AtomicU64,
}

impl Filled {
    fn set(&self, index: u64, value: &mut [u8]) -> bool {
        let key = Key::new(index);
        key.mark(value);
        self.engine.set(&key.bytes(), value)
    }

    /// Looks up a key. Returns none if the value belongs to another key.
    fn get(&self, index: u64, value: &mut Vec<u8>) -> Option<bool> {
        value.clear();
        let key = Key::new(index);
        let hit = self.engine.get(&key.bytes(), value);
        (!hit || value.len() == self.value_size && key.is_marked(value)).then_some(hit)
    }

    /// Looks up or stores a batch of keys that are there. Returns the number of wrong results:
    /// those that were refused count only if there are many.
    fn batch(&self, mut operation: impl FnMut() -> Option<bool>) -> (u64, u64) {
        let (mut refused, mut wrong) = (0, 0);
        for _ in 0..BATCH {
            match operation() {
                Some(true) => {}
                Some(false) => refused += 1,
                None => wrong += 1,
            }
        }
        (BATCH, wrong + if refused > MAX_REFUSED { refused } else { 0 })
    }
}

type Candidates<'a> = Shared<'a, Vec<Filled>>;

/// Returns caches that were filled with all entries. One with a `times` below 1 has evicted some.
fn filled<'a>(context: Context<'a, Engines>, setting: &Setting, times: f64) -> Candidates<'a> {
    let (candidates, entries) = (context.candidates(setting), setting.entries);
    let plan = plan(context, setting, times);
    let value_size = context.options.more.value_size as usize;
    let make = move |candidate: &&'static Entry<Maker>| {
        let engine = (candidate.what.make)(plan)?;
        let filled = Filled { engine, value_size, next: AtomicU64::new(entries), refused: AtomicU64::new(0) };
        let mut value = vec![0; value_size];
        let stored = (0..entries).filter(|&index| filled.set(index, &mut value)).count() as u64;
        // The table of Segcache refuses a few.
        let is_filled = times < 1.0 || stored >= entries / 100 * 99;
        ensure!(is_filled, "{} has room for {stored} of {entries} items", candidate.title);
        Ok(filled)
    };
    shared(move || candidates.iter().map(make).collect())
}

/// Plans measurements in which `batches(cache, draws)` returns a batch. Draws are of all entries,
/// from `samples` if there are some.
fn timed<'a>(
    context: Context<'a, Engines>,
    setting: &Setting,
    samples: Option<Samples>,
    batches: for<'c> fn(&'c Filled, Draws<'c>) -> Batch<'c>,
) -> Result<Vec<Job<'a>>> {
    let keys = if setting.workload == "miss" { ABSENT..ABSENT + setting.entries } else { 0..setting.entries };
    Ok(context.drawn(setting, &filled(context, setting, 1.5), keys, samples, batches))
}

fn get<'a>(context: Context<'a, Engines>, setting: &Setting, samples: Option<Samples>) -> Result<Vec<Job<'a>>> {
    timed(context, setting, samples, |cache, mut draws| {
        let mut value = Vec::new();
        Box::new(move || cache.batch(|| cache.get(draws.draw().1, &mut value)))
    })
}

fn miss<'a>(context: Context<'a, Engines>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    timed(context, setting, None, |cache, mut draws| {
        let mut value = Vec::new();
        let mut hits = move || (0..BATCH).filter(|_| cache.get(draws.draw().1, &mut value) != Some(false)).count();
        Box::new(move || (BATCH, hits() as u64))
    })
}

fn set<'a>(context: Context<'a, Engines>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    timed(context, setting, None, |cache, mut draws| {
        let mut value = vec![0; cache.value_size];
        Box::new(move || cache.batch(|| Some(cache.set(draws.draw().1, &mut value))))
    })
}

/// Plans stores of new keys into caches with room for half of the entries, and reports how many of
/// them were not refused.
fn evict<'a>(context: Context<'a, Engines>, setting: &Setting) -> Result<Vec<Job<'a>>> {
    let caches = filled(context, setting, 0.5);
    let names = titles(&context.candidates(setting));
    let job = |setting: Setting| {
        let caches = Shared::clone(&caches);
        let values = vec![(setting.clone(), "ns"), (setting.with_detail("not refused"), "%")];
        Job::several(values, names.clone(), context.options.rounds, move |candidate, _| {
            let cache = &made(&caches)?[candidate];
            // Relaxed, here and below: the counters order nothing, and are read after the threads
            // have ended.
            let before = cache.next.load(Ordering::Relaxed);
            cache.refused.store(0, Ordering::Relaxed);
            let time = context.in_window(setting.threads, |_| {
                let mut value = vec![0; cache.value_size];
                move || {
                    let first = cache.next.fetch_add(BATCH, Ordering::Relaxed);
                    let refused = (first..first + BATCH).filter(|&index| !cache.set(index, &mut value)).count();
                    cache.refused.fetch_add(refused as u64, Ordering::Relaxed);
                    (BATCH, 0)
                }
            })?;
            let stores = cache.next.load(Ordering::Relaxed) - before;
            let share = 1.0 - cache.refused.load(Ordering::Relaxed) as f64 / stores as f64;
            Ok(vec![time, Measured::single(100.0 * share)])
        })
    };
    Ok(context.per_threads(setting).into_iter().map(job).collect())
}
