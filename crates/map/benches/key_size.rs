//! Compares keys of a fixed size with the same bytes behind a pointer. Hashing and comparing are
//! compiled for the type of the key, so a size that the compiler knows makes them a few loads, as
//! the macros of section 3 of Mosberger's "Map Library Design Notes" (1996) did for keys of 4 to 16
//! bytes.

use std::hash::BuildHasherDefault;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use relativist::HashMap;
use rustc_hash::FxHasher;

const ENTRIES: u32 = 1 << 12;
const LOOKUPS: u32 = 1 << 12;

/// Returns the number, spread over `N` bytes.
fn bytes<const N: usize>(n: u32) -> [u8; N] {
    let n = n.wrapping_mul(0x9E37_79B1).to_le_bytes();
    std::array::from_fn(|at| n[at % 4])
}

fn keys_of<const N: usize>(group: &mut BenchmarkGroup<'_, WallTime>) {
    let keys: Vec<[u8; N]> = (0..LOOKUPS).map(|n| bytes(n % ENTRIES)).collect();
    let map: HashMap<[u8; N], u32, BuildHasherDefault<FxHasher>> = keys.iter().copied().zip(0..).collect();
    group.bench_function(BenchmarkId::new("[u8; N]", N), |bencher| {
        let pinned = map.pin();
        bencher.iter(|| keys.iter().filter_map(|key| pinned.get(key).copied()).fold(0, u32::wrapping_add));
    });

    let map: HashMap<Box<[u8]>, u32, BuildHasherDefault<FxHasher>> =
        keys.iter().map(|key| Box::from(key.as_slice())).zip(0..).collect();
    group.bench_function(BenchmarkId::new("Box<[u8]>", N), |bencher| {
        let pinned = map.pin();
        let get = |key: &[u8; N]| pinned.get(std::hint::black_box(key.as_slice())).copied();
        bencher.iter(|| keys.iter().filter_map(get).fold(0, u32::wrapping_add));
    });
}

fn sizes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lookup by key size in bytes");
    group.throughput(Throughput::Elements(LOOKUPS.into()));
    keys_of::<4>(&mut group);
    keys_of::<8>(&mut group);
    keys_of::<16>(&mut group);
    keys_of::<32>(&mut group);
    keys_of::<64>(&mut group);
    group.finish();
}

criterion_group!(benches, sizes);
criterion_main!(benches);
