//! Maps and sets through rayon.

use std::collections::HashSet as StdSet;
use std::sync::Mutex;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use relativist_testing::random::Random;
use relativist_testing::wait_until;

use super::{HashMap, HashSet, resize};
use crate::alongside::alongside;
use crate::hashing::{Hashing, IDENTITY, MIXED};
use crate::tracked::{Tally, Tracked};

const ENTRIES: u64 = 10_000;

fn pool() -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(4).build().unwrap()
}

/// Also if the hashes fill only one range, or are all the same.
#[test]
fn iteration_sees_every_entry_once() {
    for (hashing, entries) in [(MIXED, ENTRIES), (IDENTITY, ENTRIES), (Hashing(|n| n % 7), 200), (MIXED, 0), (MIXED, 1)]
    {
        let map: HashMap<u64, u64, _> = HashMap::with_hasher(hashing);
        (&map).extend((0..entries).map(|n| (n, n * 2)));
        for room in [0, 1 << 12, 1 << 18] {
            map.reserve(room);
            let mut seen: Vec<(u64, u64)> = pool().install(|| map.pin().par_iter().map(|(&k, &v)| (k, v)).collect());
            seen.sort();
            assert!(seen.into_iter().eq((0..entries).map(|n| (n, n * 2))), "{entries} entries, room for {room}");
        }
    }
}

/// The work is really split: two threads meet in the middle of it.
#[test]
fn iteration_runs_on_several_threads() {
    let map: HashMap<u64, u64> = (0..ENTRIES).map(|n| (n, n)).collect();
    let threads = Mutex::new(StdSet::new());
    let join = |_: (&u64, &u64)| {
        threads.lock().unwrap().insert(std::thread::current().id());
        wait_until("a second thread", || threads.lock().unwrap().len() > 1);
    };
    pool().install(|| map.pin().par_iter().for_each(join));
}

/// B7 and B8: residents are seen once each while the map is updated and resized, and what is seen
/// is alive.
#[test]
fn iteration_sees_residents_while_others_update() {
    static TALLY: Tally = Tally::new();
    let map: HashMap<u64, Tracked, Hashing> = HashMap::with_hasher(MIXED);
    let insert = |n: u64| _ = map.pin().insert(n, Tracked::new(n, &TALLY));
    (0..2000).for_each(insert);
    let (mut n, mut random) = (0, Random::new(1));
    let update = || {
        n += 1;
        insert(2000 + n % 500);
        map.pin().remove(&(2000 + (n + 250) % 500));
        if n % 64 == 0 {
            resize(&map, &mut random);
        }
    };
    let pool = pool();
    alongside(update, || {
        for _ in 0..30 {
            let pinned = map.pin();
            let entries = pinned.par_iter();
            let seen: Vec<(&u64, &Tracked)> = pool.install(|| entries.collect());
            // This thread did not find them, and those that did have left their read sections.
            seen.iter().for_each(|(key, value)| value.assert_of(**key));
            let residents: StdSet<u64> = seen.iter().map(|&(&key, _)| key).filter(|&key| key < 2000).collect();
            let times = seen.iter().filter(|&&(&key, _)| key < 2000).count();
            assert_eq!((residents.len(), times), (2000, 2000));
        }
    });
    drop(map);
    TALLY.assert_live(0);
}

#[test]
fn maps_and_sets_are_filled_in_parallel() {
    pool().install(|| {
        let mut map: HashMap<u64, u64> = (0..ENTRIES).into_par_iter().map(|n| (n, n)).collect();
        assert!(map.capacity() as u64 >= ENTRIES);
        map.par_extend((ENTRIES..2 * ENTRIES).into_par_iter().map(|n| (n, n)));
        assert_eq!(map.len() as u64, 2 * ENTRIES);
        assert!(map.pin().par_iter().all(|(key, value)| key == value));
        let mut set: HashSet<u64> = (0..ENTRIES).into_par_iter().map(|n| n / 2).collect();
        set.par_extend((0..ENTRIES).into_par_iter());
        assert_eq!(set.pin().par_iter().copied().sum::<u64>(), ENTRIES * (ENTRIES - 1) / 2);
    });
}

/// Removes many more entries than may wait for readers. One of the readers is the thread that waits
/// for the closures.
#[test]
fn closures_may_remove_and_replace() {
    const MANY: u64 = 60_000;
    let map: HashMap<u64, u64> = (0..MANY).map(|n| (n, n)).collect();
    pool().install(|| {
        let pinned = map.pin();
        pinned.par_iter().for_each(|(&n, _)| _ = map.pin().insert(n, n + 1));
        assert!(pinned.par_iter().all(|(key, value)| *value == key + 1));
        pinned.par_iter().for_each(|(n, _)| _ = map.pin().remove(n));
        assert!(pinned.is_empty());
    });
    relativist_rcu::barrier();
}

/// A panic in a closure ends the iteration, and leaves no read section open.
#[test]
fn a_panic_comes_through() {
    let map: HashMap<u64, u64> = (0..ENTRIES).map(|n| (n, n)).collect();
    let all = || pool().install(|| map.pin().par_iter().for_each(|(&n, _)| assert_ne!(n, 77)));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(all)).is_err());
    map.shrink_to_fit().unwrap();
    assert_eq!(map.pin().par_iter().count() as u64, ENTRIES);
}
