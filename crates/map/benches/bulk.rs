//! Compares ways to insert many entries at once, in no particular order: single insertions,
//! `insert_many`, and building a map that no other thread sees; for scale, std's map.
//!
//! `RELATIVIST_BENCH_ENTRIES` (a power of two) replaces the 2^22 entries.

use std::collections::HashMap as StdMap;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use relativist::HashMap;
use rustc_hash::FxBuildHasher;

type Map = HashMap<u64, u64, FxBuildHasher>;
type Way = fn(Map, u64) -> Map;

fn number_of_entries() -> u64 {
    std::env::var("RELATIVIST_BENCH_ENTRIES").map_or(1 << 22, |entries| entries.parse().expect("a number"))
}

/// Returns entries with different keys, in an order without a pattern.
fn entries(n: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..n).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xBF58_476D_1CE4_E5B9), i))
}

fn single(map: Map, n: u64) -> Map {
    entries(n).for_each(|(key, value)| _ = map.pin().insert(key, value));
    map
}

fn single_under_one_handle(map: Map, n: u64) -> Map {
    let pinned = map.pin();
    entries(n).for_each(|(key, value)| _ = pinned.insert(key, value));
    drop(pinned);
    map
}

fn many(map: Map, n: u64) -> Map {
    map.insert_many(entries(n));
    map
}

fn extend(mut map: Map, n: u64) -> Map {
    map.extend(entries(n));
    map
}

fn bulk(criterion: &mut Criterion) {
    let n = number_of_entries();
    let mut group = criterion.benchmark_group(format!("insert 2^{} entries", n.ilog2()));
    group.sample_size(10);
    group.throughput(Throughput::Elements(n));
    let with_room = || Map::with_capacity_and_hasher(n as usize, FxBuildHasher);
    let ways: [(&str, Way); 4] = [
        ("insert, a handle each", single),
        ("insert, one handle", single_under_one_handle),
        ("insert_many", many),
        ("extend", extend),
    ];
    for (name, way) in ways {
        group.bench_function(format!("{name}, with room"), |bencher| {
            bencher.iter_batched(with_room, |map| way(map, n), BatchSize::PerIteration);
        });
        group.bench_function(format!("{name}, over existing keys"), |bencher| {
            bencher.iter_batched(|| extend(with_room(), n), |map| way(map, n), BatchSize::PerIteration);
        });
    }
    group.bench_function("extend, from empty", |bencher| {
        bencher.iter_batched(Map::default, |map| extend(map, n), BatchSize::PerIteration);
    });
    group.bench_function("collect", |bencher| {
        bencher.iter_with_large_drop(|| entries(n).collect::<Map>());
    });
    group.bench_function("collect into std's map", |bencher| {
        bencher.iter_with_large_drop(|| entries(n).collect::<StdMap<u64, u64, FxBuildHasher>>());
    });
    group.finish();
}

criterion_group!(benches, bulk);
criterion_main!(benches);
