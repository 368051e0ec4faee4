//! B5: growth does not wait for readers. In a process of its own, because read sections delay
//! deferred functions of the whole process.
#![cfg(not(relativist_loom))]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use relativist::{Boxed, Inline, Map, Private, Stores, read};
use relativist_testing::wait_until;

const ENTRIES: u64 = 1 << 16;

type Numbers<F> = Map<u64, u64, std::hash::RandomState, F>;

#[track_caller]
fn assert_holds<F: Stores<u64, u64>>(map: &Numbers<F>, keys: Range<u64>) {
    let pinned = map.pin();
    assert!(keys.clone().all(|n| pinned.get(&n) == Some(&n)));
    assert_eq!(pinned.get(&keys.end), None);
    assert_eq!((pinned.len() as u64, pinned.iter().count() as u64), (keys.end - keys.start, keys.end - keys.start));
}

/// The loop that users of other maps write: one handle for all insertions, in several threads.
fn grows_under_the_handle_that_fills_it<F: Stores<u64, u64>>() {
    let map: Numbers<F> = Map::new();
    let pinned = map.pin();
    for n in 0..ENTRIES / 4 {
        pinned.insert(n, n);
        // At most one more than there is room for while a growth is in progress.
        assert!(n < 64 || map.capacity() as u64 > n / 2, "room for {} with {n}", map.capacity());
    }
    thread::scope(|scope| {
        for half in 0..2 {
            let map = &map;
            scope.spawn(move || {
                let pinned = map.pin();
                (ENTRIES / 4..ENTRIES).filter(|n| n % 2 == half).for_each(|n| _ = pinned.insert(n, n));
            });
        }
    });
    assert!(map.capacity() as u64 > ENTRIES / 2);
    assert_holds(&map, 0..ENTRIES);
    (0..ENTRIES / 2).for_each(|n| assert_eq!(pinned.remove(&n), Some(&n)));
    assert_holds(&map, ENTRIES / 2..ENTRIES);
    drop(pinned);
    map.shrink_to_fit().unwrap();
    map.reserve(ENTRIES as usize);
    assert_holds(&map, ENTRIES / 2..ENTRIES);
}

/// B1: readers stay for a moment, one after the other. So several growths happen before a shrink,
/// and shrinks happen in the gaps. No lookup misses an entry that is there.
fn residents_are_found_while_growths_stack_up<F: Stores<u64, u64>>() {
    const RESIDENTS: u64 = 64;
    const ROUNDS: u64 = 4;
    let map: Numbers<F> = (0..RESIDENTS).map(|n| (n, n)).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let repeat = |act: fn(&Numbers<F>)| {
            while !done.load(Relaxed) {
                act(&map);
            }
        };
        scope.spawn(move || {
            repeat(|_| {
                let _guard = read();
                thread::sleep(Duration::from_millis(3));
            });
        });
        scope.spawn(move || {
            repeat(|map| {
                let pinned = map.pin();
                (0..RESIDENTS).for_each(|n| assert_eq!(pinned.get(&n), Some(&n), "a resident was missed"));
            });
        });
        let update = |updater: u64| {
            for round in 0..ROUNDS {
                let keys = (RESIDENTS..RESIDENTS + (1 << 13)).filter(|n| n % 2 == updater);
                let pinned = map.pin();
                keys.clone().for_each(|n| assert_eq!(pinned.insert(n, round), None));
                keys.for_each(|n| assert_eq!(pinned.remove(&n), Some(&round)));
            }
        };
        let updaters = [0, 1].map(|updater| scope.spawn(move || update(updater)));
        let outcomes = updaters.map(thread::ScopedJoinHandle::join);
        done.store(true, Relaxed);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    assert_holds(&map, 0..RESIDENTS);
}

/// Dropping a map in the middle of a growth behind a reader drops all entries.
fn is_dropped_whole<F: Stores<u64, Arc<()>>>() {
    let token = Arc::new(());
    let _guard = read();
    let map: Map<u64, Arc<()>, _, F> = Map::new();
    (0..10_000).for_each(|n| _ = map.pin().insert(n, token.clone()));
    drop(map);
    wait_until("all entries to be dropped", || Arc::strong_count(&token) == 1);
}

fn test<F: Stores<u64, u64> + Stores<u64, Arc<()>>>() {
    grows_under_the_handle_that_fills_it::<F>();
    residents_are_found_while_growths_stack_up::<F>();
    is_dropped_whole::<F>();
}

/// One test, because the readers of one would delay others.
#[test]
fn growth_waits_for_no_reader() {
    test::<Boxed>();
    test::<Inline>();
    test::<Private>();
}
