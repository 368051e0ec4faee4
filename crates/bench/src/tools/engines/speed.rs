//! The time per operation.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::Serialize;

use super::engine::{Engine, Plan};
use super::{Args, Candidate};
use crate::harness::comparison::{self, Comparison, Measured};
use crate::harness::keys::{ABSENT, Indices, scramble, seed};
use crate::harness::rounds::progress;
use crate::harness::sampling::{Draws, Samples};
use crate::harness::workers::{Cpus, run};

/// Bytes of a key.
pub const KEY: usize = 10;

/// The number of operations between two checks whether the time is over.
const BATCH: u64 = 256;

/// The least number of operations of a batch that hit, or that store. It is lower, because the
/// table of Segcache refuses one of some hundred items.
const MIN_HITS: usize = BATCH as usize * 9 / 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Lookups that hit, all keys equally likely
    Get,
    /// Lookups that hit, with Zipf's distribution
    GetZipf,
    /// Lookups that miss
    Miss,
    /// Stores of keys that are there
    Set,
    /// Stores of new keys into a full cache
    Evict,
}

impl Workload {
    pub fn title(self) -> &'static str {
        match self {
            Self::Get => "GET, uniform",
            Self::GetZipf => "GET, Zipf 0.99",
            Self::Miss => "GET of absent keys",
            Self::Set => "SET of present keys",
            Self::Evict => "SET of new keys, evicting",
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Setting {
    pub work: Workload,
    pub threads: u16,
}

/// A key that looks random, with an index that any thread can check.
#[derive(Clone, Copy)]
pub struct Key(u64);

impl Key {
    pub fn new(index: u64) -> Self {
        Self(scramble(index))
    }

    pub fn bytes(self) -> [u8; KEY] {
        let mut key = [b'k'; KEY];
        key[..8].copy_from_slice(&self.0.to_le_bytes());
        key
    }

    /// Writes to the beginning of a value to which key it belongs.
    pub fn mark(self, value: &mut [u8]) {
        value[..8].copy_from_slice(&self.0.to_be_bytes());
    }

    pub fn is_marked(self, value: &[u8]) -> bool {
        value.starts_with(&self.0.to_be_bytes())
    }
}

/// A cache, and what is in it.
struct Filled {
    engine: Box<dyn Engine>,
    entries: u64,
    value_size: usize,
    samples: Samples,
    /// The index of the next new key.
    next: AtomicU64,
    /// How many stores of new keys were refused.
    refused: AtomicU64,
}

/// The share of the stores of new keys that a cache refused, although it could evict.
#[derive(Debug, Serialize)]
pub struct Refusals {
    pub cache: &'static str,
    pub threads: u16,
    pub share: f64,
}

impl Filled {
    /// Fills a cache with `entries` items. A cache that is to evict has room for half as many.
    fn new(args: &Args, candidate: Candidate, evicts: bool) -> Result<Self> {
        let item = KEY as u64 + args.value_size;
        let needed = args.entries * (item + 40);
        let limit = if evicts { needed / 2 } else { needed + needed / 2 };
        let engine = candidate.make(Plan { limit, mean_item: item, largest_item: item })?;
        let samples = Samples::zipf(args.entries);
        let (entries, next, refused) = (args.entries, AtomicU64::new(args.entries), AtomicU64::new(0));
        let filled = Self { engine, entries, value_size: args.value_size as usize, samples, next, refused };
        let mut value = vec![0; filled.value_size];
        let stored = (0..args.entries).filter(|&index| filled.set(index, &mut value)).count() as u64;
        // The table of Segcache refuses a few.
        let is_filled = stored >= args.entries / 100 * 99;
        ensure!(evicts || is_filled, "{} has room for {stored} of {} items", candidate.name(), args.entries);
        Ok(filled)
    }

    fn set(&self, index: u64, value: &mut [u8]) -> bool {
        let key = Key::new(index);
        key.mark(value);
        self.engine.set(&key.bytes(), value)
    }

    /// Looks up a key. Panics if the value belongs to another key.
    fn get(&self, index: u64, value: &mut Vec<u8>) -> bool {
        value.clear();
        let key = Key::new(index);
        let hit = self.engine.get(&key.bytes(), value);
        assert!(!hit || value.len() == self.value_size && key.is_marked(value), "another value");
        hit
    }

    /// Returns a closure that does a batch of operations.
    fn batch<'f>(&'f self, work: Workload, seed: u64) -> Box<dyn FnMut() -> u64 + 'f> {
        let mut value = vec![0; self.value_size];
        let samples = (work == Workload::GetZipf).then_some(&self.samples);
        let mut draws = Draws::new(0..self.entries, samples, 0, seed);
        let mut absent = Indices::new(ABSENT..ABSENT + self.entries, seed);
        match work {
            Workload::Get | Workload::GetZipf => Box::new(move || {
                let hits = (0..BATCH).filter(|_| self.get(draws.draw().1, &mut value)).count();
                assert!(hits >= MIN_HITS, "{hits} of {BATCH} items were found");
                BATCH
            }),
            Workload::Miss => Box::new(move || {
                let hits = (0..BATCH).filter(|_| self.get(absent.draw(), &mut value)).count();
                assert_eq!(hits, 0, "an item that was never stored");
                BATCH
            }),
            Workload::Set => Box::new(move || {
                let stored = (0..BATCH).filter(|_| self.set(draws.draw().1, &mut value)).count();
                assert!(stored >= MIN_HITS, "{stored} of {BATCH} items were stored");
                BATCH
            }),
            Workload::Evict => Box::new(move || {
                // Relaxed, here and below: the counters order nothing.
                let first = self.next.fetch_add(BATCH, Ordering::Relaxed);
                let stored = (first..first + BATCH).filter(|&index| self.set(index, &mut value)).count();
                self.refused.fetch_add(BATCH - stored as u64, Ordering::Relaxed);
                BATCH
            }),
        }
    }

    /// Returns the share of the stores of new keys since `first` that were refused, and the index
    /// of the next new key.
    fn refused_since(&self, first: u64) -> (f64, u64) {
        // Relaxed: the threads that count have ended.
        let next = self.next.load(Ordering::Relaxed);
        (self.refused.swap(0, Ordering::Relaxed) as f64 / (next - first).max(1) as f64, next)
    }
}

/// Measures all workloads with all numbers of threads.
pub fn measure(args: &Args, cpus: &Cpus) -> Result<(Vec<Comparison<Setting>>, Vec<Refusals>)> {
    let names: Vec<_> = Candidate::ALL.iter().map(|candidate| candidate.name()).collect();
    let rounds = args.rounds.rounds;
    let bar = progress(args.workload.len() * args.rounds.threads.len() * names.len() * rounds as usize);
    let (mut comparisons, mut refusals) = (Vec::new(), Vec::new());
    for evicts in [false, true] {
        let works = || args.workload.iter().copied().filter(|&work| (work == Workload::Evict) == evicts);
        if works().next().is_none() {
            continue;
        }
        let make = |&candidate: &Candidate| Filled::new(args, candidate, evicts);
        let caches = Candidate::ALL.iter().map(make).collect::<Result<Vec<_>>>()?;
        let mut next = vec![args.entries; caches.len()];
        for (work, &threads) in works().flat_map(|work| args.rounds.threads.iter().map(move |threads| (work, threads)))
        {
            let one = |candidate: usize, round| {
                let cache = &caches[candidate];
                let batch = |thread| cache.batch(work, seed(round, thread));
                Ok(Measured::of(&run(cpus, threads.into(), args.rounds.window(), batch), args.rounds.clock))
            };
            comparisons.push(comparison::compare(Setting { work, threads }, &names, rounds, &bar, one)?);
            for ((&cache, filled), next) in names.iter().zip(&caches).zip(&mut next).filter(|_| evicts) {
                let (share, following) = filled.refused_since(*next);
                *next = following;
                refusals.push(Refusals { cache, threads, share });
            }
        }
    }
    bar.finish_and_clear();
    Ok((comparisons, refusals))
}
