//! Measures how long it takes to fill an empty map: with a handle for each insertion, under one
//! handle for all of them, and while another thread stays in a read section.

use std::sync::mpsc::channel;
use std::thread;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use relativist::{HashMap, read};
use rustc_hash::FxBuildHasher;

type Map = HashMap<u64, u64, FxBuildHasher>;
type Way = fn(Map, u64) -> Map;

fn with_handles(map: Map, entries: u64) -> Map {
    (0..entries).for_each(|n| _ = map.pin().insert(n, n));
    map
}

fn under_one_handle(map: Map, entries: u64) -> Map {
    let pinned = map.pin();
    (0..entries).for_each(|n| _ = pinned.insert(n, n));
    drop(pinned);
    map
}

fn while_a_reader_stays(map: Map, entries: u64) -> Map {
    let (entered, is_inside) = channel();
    let (leave, may_leave) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let _guard = read();
            entered.send(()).expect("the filling thread waits");
            let _ = may_leave.recv();
        });
        is_inside.recv().expect("the reader enters");
        (0..entries).for_each(|n| _ = map.pin().insert(n, n));
        drop(leave);
    });
    map
}

fn fill(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fill");
    group.sample_size(20);
    for bits in [16, 18, 20] {
        let entries = 1 << bits;
        group.throughput(Throughput::Elements(entries));
        let ways: [(&str, Way); 3] = [
            ("a handle each", with_handles),
            ("one handle", under_one_handle),
            ("a handle each, while a reader stays", while_a_reader_stays),
        ];
        for (name, way) in ways {
            group.bench_function(BenchmarkId::new(name, entries), |bencher| {
                bencher.iter_batched(Map::default, |map| way(map, entries), BatchSize::PerIteration);
            });
        }
    }
    group.finish();
}

criterion_group!(benches, fill);
criterion_main!(benches);
