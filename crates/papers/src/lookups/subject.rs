//! An object-safe trait for tables. Its methods do whole batches, so that the cost of the virtual
//! call is negligible. The loops are compiled once for each table.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::tables::{Costs, Resize};

use relativist_bench::harness::keys::Indices;
use relativist_bench::harness::latency::Latencies;

/// The number of lookups between two checks of the phase. One of them is timed by itself.
pub const BATCH: u64 = 256;

/// A table in which the value of each key is the key.
pub trait Subject: Send + Sync {
    /// Inserts a key. Returns false if it was present.
    fn insert(&self, key: u64) -> bool;

    /// Looks up a batch of keys. Returns the number of misses and wrong values.
    fn look_up(&self, keys: &mut Indices, sampler: &mut Sampler<'_>) -> u64;

    fn resize_to(&self, buckets: usize);

    /// Returns the costs of all resizes so far.
    fn costs(&self) -> Costs;

    /// Returns the bytes per entry without the buckets, if known.
    fn entry_bytes(&self) -> Option<usize>;
}

/// Times one lookup per batch after the warm-up.
#[derive(Debug)]
pub struct Sampler<'m> {
    latencies: Latencies,
    /// The end of the warm-up, and the destination of the samples. If `None`, no lookup is timed.
    records: Option<(Instant, &'m Mutex<Latencies>)>,
}

impl<'m> Sampler<'m> {
    /// Begins a warm-up of this duration. When the sampler is dropped, it adds its samples to
    /// `sum`.
    pub fn new(warm_up: Duration, sum: &'m Mutex<Latencies>) -> Self {
        Self { latencies: Latencies::new(), records: Some((Instant::now() + warm_up, sum)) }
    }

    pub fn idle() -> Self {
        Self { latencies: Latencies::new(), records: None }
    }

    #[inline(always)]
    fn time(&mut self, operation: impl FnOnce()) {
        match self.records {
            Some((from, _)) if Instant::now() >= from => self.latencies.time(operation),
            _ => operation(),
        }
    }
}

impl Drop for Sampler<'_> {
    fn drop(&mut self) {
        if let Some((_, sum)) = self.records {
            sum.lock().expect("no worker panics").add(&self.latencies);
        }
    }
}

/// Looks up a batch of keys, and times one of the lookups.
#[inline(always)]
pub fn count_missed(keys: &mut Indices, sampler: &mut Sampler<'_>, mut get: impl FnMut(u64) -> Option<u64>) -> u64 {
    let mut stream = *keys;
    let mut missed = 0;
    let first = stream.draw();
    sampler.time(|| missed += u64::from(get(first) != Some(first)));
    for _ in 1..BATCH {
        let key = stream.draw();
        missed += u64::from(get(key) != Some(key));
    }
    *keys = stream;
    missed
}

/// A table of the papers that can be resized.
#[derive(Debug)]
pub struct Resizable<T>(T);

impl<T: Resize> Resizable<T> {
    pub fn boxed(buckets: usize) -> Box<dyn Subject> {
        Box::new(Self(T::with_buckets(buckets)))
    }
}

impl<T: Resize> Subject for Resizable<T> {
    fn insert(&self, key: u64) -> bool {
        self.0.insert(key, key)
    }

    #[inline(never)]
    fn look_up(&self, keys: &mut Indices, sampler: &mut Sampler<'_>) -> u64 {
        count_missed(keys, sampler, |key| self.0.get(key))
    }

    fn resize_to(&self, buckets: usize) {
        self.0.resize_to(buckets);
    }

    fn costs(&self) -> Costs {
        self.0.costs()
    }

    fn entry_bytes(&self) -> Option<usize> {
        Some(T::ENTRY_BYTES)
    }
}

#[derive(Debug)]
pub struct AsMade<T>(T);

impl<T: crate::tables::Table> AsMade<T> {
    pub fn boxed(buckets: usize) -> Box<dyn Subject> {
        Box::new(Self(T::with_buckets(buckets)))
    }
}

impl<T: crate::tables::Table> Subject for AsMade<T> {
    fn insert(&self, key: u64) -> bool {
        self.0.insert(key, key)
    }

    #[inline(never)]
    fn look_up(&self, keys: &mut Indices, sampler: &mut Sampler<'_>) -> u64 {
        count_missed(keys, sampler, |key| self.0.get(key))
    }

    fn resize_to(&self, _: usize) {
        panic!("{} can't be resized", T::NAME);
    }

    fn costs(&self) -> Costs {
        Costs::default()
    }

    fn entry_bytes(&self) -> Option<usize> {
        Some(T::ENTRY_BYTES)
    }
}
