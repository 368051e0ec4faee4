//! Many entries at once: `insert_many`, and maps that are filled while no other thread sees them.

use std::collections::HashMap as Model;

use relativist::read;
use relativist_rcu::is_reading;

use crate::alongside::alongside;
use crate::hashing::{Hashing, IDENTITY, MIXED};
use super::{HashMap, HashSet};

/// Fewer entries than a batch has, as many, and more.
const NUMBERS: [u64; 9] = [0, 1, 2, 31, 32, 33, 64, 100, 5000];

const HASHINGS: [Hashing; 4] = [MIXED, IDENTITY, Hashing(|n| n % 8), Hashing(|n| n / 8)];

type Map = HashMap<u64, u64, Hashing>;

/// Entries with the values of a round. Some keys are there twice.
fn entries(n: u64, round: u64) -> impl Iterator<Item = (u64, u64)> + Clone {
    (0..n).map(move |i| (i % (n - n / 8), i + 10_000 * round))
}

/// T1, T7: lookups, the iteration, the length and the statistics agree with the model.
#[track_caller]
fn assert_holds(map: &Map, model: &Model<u64, u64>) {
    let pinned = map.pin();
    assert_eq!((pinned.len(), pinned.is_empty()), (model.len(), model.is_empty()));
    assert!(model.iter().all(|(key, value)| pinned.get(key) == Some(value)));
    assert_eq!(pinned.get(&u64::MAX), None);
    let seen: Vec<(u64, u64)> = pinned.iter().map(|(&key, &value)| (key, value)).collect();
    assert_eq!(seen.len(), model.len());
    assert_eq!(seen.into_iter().collect::<Model<_, _>>(), *model);
    assert_eq!(map.stats().entries, model.len());
}

#[test]
fn many_insertions_are_like_single_ones() {
    for hashing in HASHINGS {
        let map: Map = manual(hashing);
        let mut model = Model::new();
        for (round, n) in (0..).zip(NUMBERS) {
            let before = model.len();
            model.extend(entries(n, round));
            assert_eq!(map.insert_many(entries(n, round)), model.len() - before);
            assert_holds(&map, &model);
        }
    }
}

#[test]
fn a_map_that_is_owned_is_filled() {
    for hashing in HASHINGS {
        let (mut small, mut automatic): (Map, Map) = (manual(hashing), Map::with_hasher(hashing));
        let mut model = Model::new();
        for (round, n) in (0..).zip(NUMBERS) {
            model.extend(entries(n, round));
            small.extend(entries(n, round));
            // Without a hint.
            automatic.extend(entries(n, round).filter(|_| true));
            assert_holds(&small, &model);
            assert_holds(&automatic, &model);
        }
        assert!(automatic.buckets() >= 1024);
        let removed = |n: &u64| n % 3 == 0;
        automatic.pin().retain(|key, _| !removed(key));
        model.retain(|key, _| !removed(key));
        assert_holds(&automatic, &model);
        assert!(automatic.clone() == automatic);
    }
}

/// The chains of the map are uncut, and there are arrays for which no grace period has passed.
#[test]
fn a_map_that_was_just_resized_is_filled() {
    for round in 0..20 {
        let mut map = Map::with_hasher(MIXED);
        let _reader = read();
        let pinned = map.pin();
        (0..1000 * round).for_each(|n| _ = pinned.insert(n, n));
        drop(pinned);
        map.extend((500 * round..3000 * round).map(|n| (n, 1)));
        assert_holds(&map, &(0..3000 * round).map(|n| (n, if n < 500 * round { n } else { 1 })).collect());
        map.pin().clear();
        assert_holds(&map, &Model::new());
    }
}

/// T1: other threads see all that was there, and in the end all that was inserted.
#[test]
fn many_insertions_while_the_table_is_resized() {
    let map: Map = manual(MIXED);
    map.insert_many((0..500).map(|n| (n, 0)));
    let mut bits = (1..12).cycle();
    alongside(
        || map.resize_to(1 << bits.next().unwrap()).unwrap(),
        || {
            for round in 1..50 {
                map.insert_many((0..1000).map(|n| (n, round)));
                assert!((0..1000).all(|n| map.pin().get(&n) == Some(&round)));
                assert_eq!(map.len(), 1000);
                map.pin().retain(|n, _| *n < 500);
            }
        },
    );
}

#[test]
fn threads_insert_the_same_keys() {
    let map = Map::with_hasher(MIXED);
    let new: usize = std::thread::scope(|scope| {
        let threads = [0, 1, 2].map(|thread| {
            scope.spawn({
                let map = &map;
                move || map.insert_many((0..20_000).map(|n| (n, thread)))
            })
        });
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((new, map.len()), (20_000, 20_000));
    assert!((0..20_000).all(|n| map.pin().get(&n).is_some_and(|value| *value < 3)));
}

/// The iterator may take long, and readers that stay in their sections delay reclamation.
#[test]
fn the_iterator_runs_outside_of_read_sections() {
    let entries = || (0..200).filter(|_| !is_reading()).map(|n| (n, n));
    let mut map = Map::with_hasher(MIXED);
    assert_eq!(map.insert_many(entries()), 200);
    map.pin().clear();
    (&map).extend(entries());
    assert_eq!(map.len(), 200);
    map.pin().clear();
    map.extend(entries());
    assert_eq!((map.len(), entries().collect::<HashMap<_, _>>().len()), (200, 200));
}

/// Room is made at once if the iterator announces more entries than the map has.
#[test]
fn many_insertions_make_room_first() {
    let map = Map::with_hasher(MIXED);
    assert_eq!(map.insert_many((0..10_000).map(|n| (n, n))), 10_000);
    assert_eq!(map.stats().grows, 1);
}

/// A handle is no obstacle: the map grows when it can.
#[test]
fn many_insertions_under_a_handle() {
    let map = Map::with_hasher(MIXED);
    let pinned = map.pin();
    assert_eq!(pinned.insert_many((0..10_000).map(|n| (n, n))), 10_000);
    assert_eq!(pinned.iter().count(), 10_000);
}

/// The first of equal elements stays in a set.
#[test]
fn sets_keep_their_elements() {
    use std::sync::Arc;

    let first = Arc::new(1);
    let mut set = HashSet::from([Arc::clone(&first)]);
    set.extend((0..100).map(|n| Arc::new(n % 50)));
    assert_eq!(set.len(), 50);
    assert!(Arc::ptr_eq(set.pin().get(&1).unwrap(), &first));
}
