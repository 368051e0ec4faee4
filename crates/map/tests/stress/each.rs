//! Threads look up, update and iterate at the same time, while a map of one form grows and shrinks
//! all the time.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use relativist_testing::random::Random;

use super::Form;
use crate::alongside::alongside;
use crate::hashing::{EQUAL, Hashing, MIXED};
use crate::tracked::{Tally, Tracked};

type Map = relativist::Map<u64, Tracked, Hashing, Form>;

/// Keys below this are always in the map, with the same value.
const STABLE: u64 = 500;
/// Keys from `STABLE` to here are always in the map, too, but threads replace their values.
const RESIDENT: u64 = 1000;
/// Keys from `RESIDENT` to here are inserted and removed.
const ALL: u64 = 3000;

/// The rounds of a thread: at least 20, and more until the time is up.
fn rounds() -> impl Iterator<Item = u64> {
    let seconds = std::env::var("RELATIVIST_STRESS_SECONDS").map_or(1.5, |seconds| seconds.parse().unwrap());
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    (0..).take_while(move |&round| round < 20 || Instant::now() < end)
}

fn map_with_residents(hashing: Hashing, residents: u64, tally: &'static Tally) -> Map {
    let map = Map::with_hasher(hashing);
    insert_all(&map, 0..residents, tally);
    map
}

fn insert_all(map: &Map, keys: Range<u64>, tally: &'static Tally) {
    for key in keys {
        map.pin().insert(key, Tracked::new(key, tally));
    }
}

fn remove_all(map: &Map, keys: Range<u64>) {
    for key in keys {
        map.pin().remove(&key).expect("no other thread removes it").assert_of(key);
    }
}

/// Makes the map larger, and as small as possible.
fn keep_resizing(map: &Map, max_room: u64) {
    let mut random = Random::new(1);
    for round in rounds() {
        let room = random.below(max_room) as usize;
        map.reserve(room);
        if round % 3 == 0 {
            map.shrink_to_fit().unwrap();
        }
    }
}

/// Replaces, inserts and removes at random, and returns by how much the number of entries has
/// changed.
fn churn(map: &Map, tally: &'static Tally, seed: u64) -> i64 {
    let mut random = Random::new(seed);
    let mut change = 0;
    for _ in rounds() {
        let pinned = map.pin();
        let key = RESIDENT + random.below(ALL - RESIDENT);
        match random.below(5) {
            0 => {
                let key = STABLE + random.below(RESIDENT - STABLE);
                pinned.insert(key, Tracked::new(key, tally)).expect("a resident").assert_of(key);
            }
            1 => match pinned.insert(key, Tracked::new(key, tally)) {
                Some(old) => old.assert_of(key),
                None => change += 1,
            },
            2 => match pinned.try_insert(key, Tracked::new(key, tally)) {
                Ok(inserted) => {
                    inserted.assert_of(key);
                    change += 1;
                }
                Err(error) => error.current.assert_of(key),
            },
            _ => {
                if let Some(removed) = pinned.remove(&key) {
                    removed.assert_of(key);
                    change -= 1;
                }
            }
        }
    }
    change
}

/// Looks up residents, which have to be in the map, and other keys, whose values have to be right
/// if they are in the map.
fn look_up(map: &Map, residents: u64, seed: u64) {
    let mut random = Random::new(seed);
    for _ in rounds() {
        let pinned = map.pin();
        let first = random.below(residents);
        let found = pinned.get(&first).unwrap_or_else(|| panic!("B1: {first} was missed"));
        for _ in 0..16 {
            let key = random.below(residents);
            pinned.get(&key).unwrap_or_else(|| panic!("B1: {key} was missed")).assert_of(key);
            let key = residents + random.below(ALL);
            if let Some(value) = pinned.get(&key) {
                value.assert_of(key);
            }
        }
        found.assert_of(first); // B8
    }
}

/// Checks the contents of the map when all threads are done, drops it, and checks that all values
/// are dropped.
fn check_and_drop(map: Map, entries: u64, residents: u64, tally: &Tally) {
    assert_eq!(map.len() as u64, entries);
    let pinned = map.pin();
    assert_eq!(pinned.iter().inspect(|&(&key, value)| value.assert_of(key)).count() as u64, entries);
    (0..residents).for_each(|key| pinned.get(&key).unwrap().assert_of(key));
    drop(pinned);
    drop(map);
    tally.assert_live(0);
}

/// Checks B1, B5, B8, and that the number of entries is exact in the end.
fn residents_are_found(hashing: Hashing, tally: &'static Tally) {
    let map = map_with_residents(hashing, RESIDENT, tally);
    let change: i64 = thread::scope(|scope| {
        scope.spawn(|| keep_resizing(&map, 40_000));
        (0..2).for_each(|seed| {
            drop(scope.spawn({
                let map = &map;
                move || look_up(map, RESIDENT, seed)
            }))
        });
        let churners = [3, 4].map(|seed| {
            scope.spawn({
                let (map, tally) = (&map, tally);
                move || churn(map, tally, seed)
            })
        });
        churners.map(|churner| churner.join().unwrap()).iter().sum()
    });
    check_and_drop(map, RESIDENT.checked_add_signed(change).unwrap(), RESIDENT, tally);
}

#[test]
fn residents_are_found_while_the_table_is_resized() {
    static TALLY: Tally = Tally::new();
    residents_are_found(MIXED, &TALLY);
}

#[test]
fn residents_are_found_in_later_segments_while_the_table_is_resized() {
    // Each hash is that of eight keys.
    static TALLY: Tally = Tally::new();
    residents_are_found(Hashing(|n| n / 8), &TALLY);
}

/// Checks B7.
fn iteration_sees_residents_once(max_room: u64, tally: &'static Tally) {
    let map = map_with_residents(MIXED, RESIDENT, tally);
    let change = thread::scope(|scope| {
        scope.spawn(|| keep_resizing(&map, max_room));
        scope.spawn(|| rounds().for_each(|_| iterate(&map)));
        scope.spawn(|| rounds().for_each(|_| iterate(&map)));
        scope.spawn(|| churn(&map, tally, 6)).join().unwrap()
    });
    check_and_drop(map, RESIDENT.checked_add_signed(change).unwrap(), RESIDENT, tally);
}

#[test]
fn iteration_sees_residents_exactly_once() {
    static TALLY: Tally = Tally::new();
    iteration_sees_residents_once(20_000, &TALLY);
}

#[test]
fn iteration_of_a_sparse_table_sees_residents_exactly_once() {
    static TALLY: Tally = Tally::new();
    iteration_sees_residents_once(500_000, &TALLY);
}

fn iterate(map: &Map) {
    let mut seen = HashSet::new();
    let mut stable = vec![0; STABLE as usize];
    for (n, (&key, value)) in map.pin().iter().enumerate() {
        value.assert_of(key);
        assert!(seen.insert(value.id()), "B7: a value of {key} was seen twice");
        if let Some(times) = stable.get_mut(key as usize) {
            *times += 1;
        }
        // Gives other threads time to update and resize during this iteration.
        if n % 64 == 0 {
            thread::yield_now();
        }
    }
    assert!(stable.iter().all(|&times| times == 1), "B7: not seen exactly once: {stable:?}");
}

/// B1, while insertions and removals of others make the map grow and shrink.
#[test]
fn residents_are_found_while_others_come_and_go() {
    const RESIDENTS: u64 = 100;
    static TALLY: Tally = Tally::new();
    let map = map_with_residents(MIXED, RESIDENTS, &TALLY);
    let grow_and_shrink = || {
        for _ in rounds().step_by(20) {
            insert_all(&map, RESIDENTS..ALL, &TALLY);
            assert!(map.capacity() as u64 > ALL / 2);
            remove_all(&map, RESIDENTS..ALL);
        }
    };
    alongside(|| look_up_all(&map, RESIDENTS), grow_and_shrink);
    check_and_drop(map, RESIDENTS, RESIDENTS, &TALLY);
}

fn look_up_all(map: &Map, residents: u64) {
    let pinned = map.pin();
    for key in 0..residents {
        pinned.get(&key).unwrap_or_else(|| panic!("B1: {key} was missed")).assert_of(key);
    }
}

/// B3: when a clear has returned, nothing is left of what was there before, and it is dropped once,
/// although other threads look it up, iterate, insert and resize.
#[test]
fn clears_leave_nothing() {
    static TALLY: Tally = Tally::new();
    let map = Map::with_hasher(MIXED);
    let n = AtomicU64::new(0);
    let others = || {
        let first = ALL + n.fetch_add(1, Relaxed) % 2 * 500;
        insert_all(&map, first..first + 500, &TALLY);
        let pinned = map.pin();
        pinned.iter().for_each(|(&key, value)| value.assert_of(key));
        (0..500).filter_map(|key| Some((key, pinned.get(&key)?))).for_each(|(key, value)| value.assert_of(key));
    };
    alongside(others, || {
        for _ in rounds() {
            insert_all(&map, 0..500, &TALLY);
            map.pin().clear();
            assert_eq!(map.pin().keys().filter(|&&key| key < 500).count(), 0);
            assert!((0..500).all(|key| !map.pin().contains_key(&key)));
        }
    });
    map.pin().clear();
    check_and_drop(map, 0, 0, &TALLY);
}

/// B3, B4: updates of a bucket exclude each other, threads that wait for it are woken, and no
/// update is lost, also during resizes.
#[test]
fn updates_of_one_bucket_take_turns() {
    let map: relativist::Map<u64, u64, _, Form> = relativist::Map::with_hasher(EQUAL);
    let change = AtomicI64::new(0);
    thread::scope(|scope| {
        for thread in 0..8 {
            let (map, change) = (&map, &change);
            scope.spawn(move || {
                for round in rounds() {
                    let by = match round % 3 {
                        1 | 2 => i64::from(map.pin().insert(7, thread << 32 | round).is_none()),
                        _ => -i64::from(map.pin().remove(&7).is_some()),
                    };
                    change.fetch_add(by, Relaxed);
                }
            });
        }
        scope.spawn(|| {
            for round in rounds() {
                map.reserve(100 << (round % 7));
                map.shrink_to_fit().unwrap();
                thread::sleep(Duration::from_micros(round % 4 * 100));
            }
        });
    });
    let change = change.load(Relaxed);
    assert_eq!(map.len() as i64, change);
    assert_eq!(i64::from(map.pin().contains_key(&7)), change);
    assert_eq!(map.pin().iter().count() as i64, change, "the key is in the table more than once, or lost");
}
