//! Measures entering and leaving sections: of the domain of the process, of a private domain, and
//! of private domains whose guards are dropped by another thread.

use std::sync::atomic::{Ordering::SeqCst, compiler_fence};
use std::sync::mpsc;
use std::thread;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use relativist_rcu::{Domain, DomainGuard, read};

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

criterion_group!(benches, sections, migration);
criterion_main!(benches);
