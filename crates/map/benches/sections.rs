//! Measures entering and leaving sections: of the domain of the process, of a private domain, and
//! of private domains whose guards are dropped by another thread. And what a map with a private
//! domain costs in addition to one without.

use std::hint::black_box;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};
use std::sync::mpsc;
use std::thread;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use relativist::{HashMap, PrivateMap};
use relativist_rcu::{Domain, DomainGuard, read};
use rustc_hash::FxBuildHasher;

/// The number of sections per iteration.
const SECTIONS: usize = 1024;

/// Enters and leaves sections one after the other. The fence stands for the accesses in a section,
/// which the compiler must not move out. It compiles to no instruction.
#[inline(always)]
fn enter_and_leave<G>(sections: usize, enter: impl Fn() -> G) {
    for _ in 0..sections {
        let guard = enter();
        compiler_fence(SeqCst);
        drop(guard);
    }
}

fn sections(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("enter and leave");
    group.throughput(Throughput::Elements(SECTIONS as u64));
    let (domain, other) = (Domain::new(), Domain::new());
    group.bench_function("process", |bencher| {
        bencher.iter(|| enter_and_leave(SECTIONS, read));
    });
    group.bench_function("private", |bencher| {
        bencher.iter(|| enter_and_leave(SECTIONS, || domain.read()));
    });
    group.bench_function("process, nested", |bencher| {
        let _outer = read();
        bencher.iter(|| enter_and_leave(SECTIONS, read));
    });
    group.bench_function("private, nested", |bencher| {
        let _outer = domain.read();
        bencher.iter(|| enter_and_leave(SECTIONS, || domain.read()));
    });
    group.bench_function("two private ones in turn", |bencher| {
        bencher.iter(|| enter_and_leave(SECTIONS / 2, || (domain.read(), other.read())));
    });
    group.finish();
}

/// Enters many sections before it leaves the first.
fn migration(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("many guards at a time");
    group.throughput(Throughput::Elements(SECTIONS as u64));
    let domain = Domain::new();
    group.bench_function("dropped by the same thread", |bencher| {
        let mut guards = Vec::with_capacity(SECTIONS);
        bencher.iter(|| {
            guards.extend((0..SECTIONS).map(|_| domain.read()));
            guards.clear();
        });
    });
    group.bench_function("dropped by another thread", |bencher| {
        let (send, guards) = mpsc::channel::<Vec<DomainGuard<'_>>>();
        let (give_back, returned) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                for mut guards in guards {
                    guards.clear();
                    give_back.send(guards).unwrap();
                }
            });
            let mut guards = Vec::with_capacity(SECTIONS);
            bencher.iter(|| {
                guards.extend((0..SECTIONS).map(|_| domain.read()));
                send.send(std::mem::take(&mut guards)).unwrap();
                guards = returned.recv().unwrap();
            });
            drop(send);
        });
    });
    group.finish();
}

/// Measures an operation on each key: with a handle for each, and with one handle for all.
macro_rules! on_each_key {
    ($group:ident, $name:literal, $map:ident, |$pinned:ident, $key:ident| $operation:expr) => {
        $group.bench_function(concat!($name, ", a handle for each"), |bencher| {
            bencher.iter(|| {
                for $key in 0..KEYS {
                    let $pinned = $map.pin();
                    black_box($operation);
                }
            });
        });
        $group.bench_function(concat!($name, ", one handle"), |bencher| {
            bencher.iter(|| {
                let $pinned = $map.pin();
                for $key in 0..KEYS {
                    black_box($operation);
                }
            });
        });
    };
}

const KEYS: u64 = 1024;

/// Looks up and replaces entries of small maps, which fit the cache.
fn maps(criterion: &mut Criterion) {
    let public: HashMap<u64, u64, FxBuildHasher> = (0..KEYS).map(|n| (n, n)).collect();
    let private: PrivateMap<u64, u64, FxBuildHasher> = (0..KEYS).map(|n| (n, n)).collect();
    let mut group = criterion.benchmark_group("look up");
    group.throughput(Throughput::Elements(KEYS));
    on_each_key!(group, "HashMap", public, |pinned, key| pinned.get(&key).copied());
    on_each_key!(group, "PrivateMap", private, |pinned, key| pinned.get(&key).copied());
    group.finish();
    let mut group = criterion.benchmark_group("replace");
    group.throughput(Throughput::Elements(KEYS));
    on_each_key!(group, "HashMap", public, |pinned, key| pinned.insert(key, key).copied());
    on_each_key!(group, "PrivateMap", private, |pinned, key| pinned.insert(key, key).copied());
    group.finish();
}

criterion_group!(benches, sections, migration, maps);
criterion_main!(benches);
