//! Many keys at once: `insert_many` and `get_many`.

use std::collections::HashMap as Model;
use std::sync::Arc;
use std::thread;

use relativist_rcu::is_reading;
use relativist_testing::random::Random;

use super::{HashMap, HashSet, resize};
use crate::alongside::alongside;
use crate::hashing::{EQUAL, Hashing, IDENTITY, MIXED};

/// Fewer entries than a batch has, as many, and more.
const NUMBERS: [u64; 8] = [0, 1, 2, 15, 16, 17, 64, 5000];

type Map = HashMap<u64, u64, Hashing>;

/// Entries with the values of a round. Some keys are there twice.
fn entries(n: u64, round: u64) -> impl Iterator<Item = (u64, u64)> + Clone {
    (0..n).map(move |i| (i % (n - n / 8), i + 10_000 * round))
}

/// B1, B7: lookups, the iteration and the length agree with the model.
#[track_caller]
fn assert_holds(map: &Map, model: &Model<u64, u64>) {
    let pinned = map.pin();
    assert_eq!((pinned.len(), pinned.is_empty()), (model.len(), model.is_empty()));
    assert!(model.iter().all(|(key, value)| pinned.get(key) == Some(value)));
    let seen: Vec<(u64, u64)> = pinned.iter().map(|(&key, &value)| (key, value)).collect();
    assert_eq!(seen.len(), model.len());
    assert_eq!(seen.into_iter().collect::<Model<_, _>>(), *model);
}

#[test]
fn many_insertions_are_like_single_ones() {
    for hashing in [MIXED, IDENTITY, Hashing(|n| n % 64), Hashing(|n| n / 8)] {
        let (map, mut owned) = (Map::with_hasher(hashing), Map::with_hasher(hashing));
        let mut model = Model::new();
        for (round, n) in (0..).zip(NUMBERS) {
            let before = model.len();
            model.extend(entries(n, round));
            assert_eq!(map.insert_many(entries(n, round)), model.len() - before);
            // Without a hint.
            owned.extend(entries(n, round).filter(|_| true));
            assert_holds(&map, &model);
            assert_holds(&owned, &model);
        }
        owned.pin().retain(|key, _| key % 3 > 0);
        model.retain(|key, _| key % 3 > 0);
        assert_holds(&owned, &model);
        assert!(owned.clone() == owned);
    }
}

/// B1: other threads see all that was there, and in the end all that was inserted.
#[test]
fn many_insertions_during_resizes() {
    let map = Map::with_hasher(MIXED);
    map.insert_many((0..500).map(|n| (n, 0)));
    let mut random = Random::new(1);
    alongside(
        || resize(&map, &mut random),
        || {
            for round in 1..30 {
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
    let insert = |thread| map.insert_many((0..20_000).map(|n| (n, thread)));
    let new: usize = thread::scope(|scope| {
        let threads = [0, 1, 2].map(|thread| scope.spawn(move || insert(thread)));
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
    map.extend(entries());
    assert_eq!((map.len(), entries().collect::<HashMap<_, _>>().len()), (200, 200));
}

/// The first of equal elements stays in a set.
#[test]
fn sets_keep_their_elements() {
    let first = Arc::new(1);
    let mut set: HashSet<_> = HashSet::from([Arc::clone(&first)]);
    set.extend((0..100).map(|n| Arc::new(n % 50)));
    assert_eq!(set.len(), 50);
    assert!(Arc::ptr_eq(set.pin().get(&1).unwrap(), &first));
}

/// Looks up keys, some of them twice. The even ones are in the map.
fn assert_finds<const N: usize>(map: &Map, first: u64) {
    let keys: [u64; N] = std::array::from_fn(|n| first + n as u64 % 41);
    let expected = keys.map(|key| (key % 2 == 0).then_some(key / 2));
    assert_eq!(map.pin().get_many(keys.each_ref()).map(Option::<&u64>::copied), expected);
}

fn assert_finds_any_number(map: &Map) {
    for first in [0, 7, 400] {
        assert_finds::<0>(map, first);
        assert_finds::<1>(map, first);
        assert_finds::<15>(map, first);
        assert_finds::<16>(map, first);
        assert_finds::<17>(map, first);
        assert_finds::<100>(map, first);
    }
}

/// B1: keys that are there are found, also during resizes.
#[test]
fn lookups_in_batches_find_what_single_ones_find() {
    for hashing in [MIXED, IDENTITY, EQUAL, Hashing(|n| n / 8)] {
        let map = Map::with_hasher(hashing);
        map.insert_many((0..500).map(|n| (2 * n, n)));
        assert_finds_any_number(&map);
        let mut random = Random::new(1);
        alongside(|| resize(&map, &mut random), || (0..10).for_each(|_| assert_finds_any_number(&map)));
    }
}

/// B8: values outlive the call as long as the handle.
#[test]
fn values_live_as_long_as_the_handle() {
    let map: HashMap<_, _> =
        HashMap::from([("one".to_string(), "1".to_string()), ("two".to_string(), "2".to_string())]);
    let pinned = map.pin();
    let values = {
        let keys = [String::from("two"), String::from("one")];
        pinned.get_many(keys.each_ref().map(String::as_str))
    };
    pinned.clear();
    assert_eq!(values.map(|value| value.unwrap().as_str()), ["2", "1"]);
}
