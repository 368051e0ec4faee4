//! Measures iteration over 1,000 entries in 2^10 to 2^20 buckets. Mosberger claims that its cost
//! depends on the entries, not on the buckets ("Map Library Design Notes", 1996, section 2.4). 2^20
//! buckets should take at most three times what 2^10 take.
//!
//! *First* is the first iteration over a map, which visits all buckets.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use relativist::{HashMap, Resizing};

const ENTRIES: u64 = 1000;

fn map(bits: u32) -> HashMap<u64, u64> {
    let map = HashMap::<u64, u64>::builder().resizing(Resizing::Manual).build().expect("memory for two buckets");
    map.resize_to(1 << bits).expect("memory for the buckets");
    (0..ENTRIES).for_each(|n| _ = map.pin().insert(n, n));
    map
}

fn sum(map: &HashMap<u64, u64>) -> u64 {
    map.pin().iter().map(|(_, value)| value).sum()
}

fn iterations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("iterate over 1000 entries");
    group.throughput(Throughput::Elements(ENTRIES));
    for bits in [10, 14, 17, 20] {
        let prepared = map(bits);
        for _ in 0..3 {
            sum(&prepared);
            relativist_rcu::wait_for_readers();
        }
        group.bench_function(BenchmarkId::new("2^n buckets", bits), |bencher| bencher.iter(|| sum(&prepared)));
    }
    for bits in [10, 20] {
        group.bench_function(BenchmarkId::new("2^n buckets, first", bits), |bencher| {
            bencher.iter_batched_ref(|| map(bits), |map| sum(map), BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, iterations);
criterion_main!(benches);
