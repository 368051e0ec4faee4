//! Measures the gain of the one-entry lookup cache: for runs of one key, of several lengths, and
//! for keys that never repeat; with a slow and a fast hasher; with short and long keys.

use std::hash::{BuildHasher, BuildHasherDefault, Hash, RandomState};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use relativist::HashMap;
use rustc_hash::FxHasher;

const ENTRIES: u64 = 1 << 12;
const LOOKUPS: usize = 1 << 12;

/// Returns keys in runs of this length. All of them are in the map.
fn runs<K: Clone>(key: impl Fn(u64) -> K, length: usize) -> Vec<K> {
    let start = |n: usize| key((n / length) as u64 * 0x9E37_79B9 % ENTRIES);
    (0..LOOKUPS).map(start).collect()
}

fn compare<K, S>(group: &mut BenchmarkGroup<'_, WallTime>, hasher: &str, key: impl Fn(u64) -> K)
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Default,
{
    let map: HashMap<K, u64, S> = (0..ENTRIES).map(|n| (key(n), n)).collect();
    for length in [1, 2, 8, 64] {
        let keys = runs(&key, length);
        group.bench_function(BenchmarkId::new(format!("{hasher}, get"), length), |bencher| {
            let pinned = map.pin();
            bencher.iter(|| keys.iter().filter_map(|key| pinned.get(key)).sum::<u64>());
        });
        group.bench_function(BenchmarkId::new(format!("{hasher}, cached"), length), |bencher| {
            let pinned = map.pin();
            let mut cached = pinned.cached();
            bencher.iter(|| keys.iter().filter_map(|key| cached.get(key)).sum::<u64>());
        });
    }
}

fn lookups(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("u64 keys in runs of");
    group.throughput(Throughput::Elements(LOOKUPS as u64));
    compare::<u64, RandomState>(&mut group, "SipHash", |n| n);
    compare::<u64, BuildHasherDefault<FxHasher>>(&mut group, "FxHash", |n| n);
    group.finish();

    let mut group = criterion.benchmark_group("32-byte strings in runs of");
    group.throughput(Throughput::Elements(LOOKUPS as u64));
    compare::<String, RandomState>(&mut group, "SipHash", |n| format!("{n:032}"));
    compare::<String, BuildHasherDefault<FxHasher>>(&mut group, "FxHash", |n| format!("{n:032}"));
    group.finish();
}

criterion_group!(benches, lookups);
criterion_main!(benches);
