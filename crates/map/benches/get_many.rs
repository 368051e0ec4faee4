//! Compares lookups in batches with single ones, in a map far larger than the cache and in one that
//! fits it.
//!
//! `RELATIVIST_BENCH_ENTRIES` (a power of two) replaces the larger map's 2^23 entries.
#![expect(clippy::incompatible_msrv, reason = "criterion needs a newer compiler, too")]

use std::hash::BuildHasherDefault;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use relativist::HashMap;
use rustc_hash::FxHasher;

type Map = HashMap<u64, u64, BuildHasherDefault<FxHasher>>;

/// The number of keys that are looked up between two readings of the clock.
const KEYS: usize = 1 << 12;

fn entries() -> u64 {
    std::env::var("RELATIVIST_BENCH_ENTRIES").map_or(1 << 23, |entries| entries.parse().expect("a number"))
}

/// Returns keys in an order without a pattern, all below `entries`, so all are in the map.
fn keys(entries: u64, seed: u64) -> Vec<u64> {
    let mix = |n: u64| (n ^ n >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 20;
    (0..KEYS as u64).map(|n| mix(n + seed * KEYS as u64) % entries).collect()
}

fn batches_of<const N: usize>(map: &Map, keys: &[u64]) -> u64 {
    let pinned = map.pin();
    let (batches, _) = keys.as_chunks::<N>();
    batches.iter().flat_map(|batch| pinned.get_many(batch.each_ref())).flatten().sum()
}

fn lookups(criterion: &mut Criterion) {
    for entries in [1 << 12, entries()] {
        let map: Map = (0..entries).map(|n| (n, n)).collect();
        let mut group = criterion.benchmark_group(format!("lookup in 2^{} entries", entries.ilog2()));
        group.throughput(Throughput::Elements(KEYS as u64));
        let mut seed = 0;
        let mut next = || {
            seed += 1;
            keys(entries, seed)
        };
        let batch = criterion::BatchSize::SmallInput;
        group.bench_function("get, a guard each", |bencher| {
            bencher.iter_batched(
                &mut next,
                |keys| keys.iter().filter_map(|key| map.pin().get(key).copied()).sum::<u64>(),
                batch,
            );
        });
        group.bench_function("get, guard kept", |bencher| {
            let get = |keys: Vec<u64>| {
                let pinned = map.pin();
                keys.iter().filter_map(|key| pinned.get(key)).sum::<u64>()
            };
            bencher.iter_batched(&mut next, get, batch);
        });
        group.bench_function(BenchmarkId::new("get_many", 8), |bencher| {
            bencher.iter_batched(&mut next, |keys| batches_of::<8>(&map, &keys), batch);
        });
        group.bench_function(BenchmarkId::new("get_many", 32), |bencher| {
            bencher.iter_batched(&mut next, |keys| batches_of::<32>(&map, &keys), batch);
        });
        group.bench_function("get_each", |bencher| {
            let get = |keys: Vec<u64>| {
                let mut sum = 0;
                map.pin().get_each(&keys, |_, value| sum += value.unwrap_or(&0));
                black_box(sum)
            };
            bencher.iter_batched(&mut next, get, batch);
        });
        group.finish();
    }
}

criterion_group!(benches, lookups);
criterion_main!(benches);
