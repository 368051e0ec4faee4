//! Lookups in batches find what single ones find.

use crate::alongside::alongside;
use crate::hashing::{Hashing, IDENTITY, MIXED};
use crate::tested::{HashMap, manual};

const ENTRIES: u64 = 500;

/// Returns a map of even keys.
fn filled(hashing: Hashing) -> HashMap<u64, u64, Hashing> {
    let map = manual::<u64, u64, _>(hashing);
    (&map).extend((0..ENTRIES).map(|n| (2 * n, n)));
    map
}

fn assert_finds<const N: usize>(map: &HashMap<u64, u64, Hashing>, first: u64) {
    // Some keys are repeated, and present ones are mixed with missing ones.
    let keys: [u64; N] = std::array::from_fn(|n| first + n as u64 % 41);
    let expected: Vec<Option<u64>> = keys.iter().map(|key| (key % 2 == 0).then_some(key / 2)).collect();
    let pinned = map.pin();
    assert_eq!(pinned.get_many(keys.each_ref()).map(Option::<&u64>::copied).as_slice(), expected);
    let mut found = Vec::new();
    pinned.get_each(&keys, |&key, value| found.push((key, value.copied())));
    assert!(found.into_iter().eq(keys.into_iter().zip(expected)));
}

fn assert_finds_any_number(map: &HashMap<u64, u64, Hashing>) {
    for first in [0, 7, 400] {
        assert_finds::<0>(map, first);
        assert_finds::<1>(map, first);
        assert_finds::<31>(map, first);
        assert_finds::<32>(map, first);
        assert_finds::<33>(map, first);
        assert_finds::<100>(map, first);
    }
}

#[test]
fn finds_what_single_lookups_find() {
    for hashing in [MIXED, IDENTITY, Hashing(|_| 42), Hashing(|n| n / 8)] {
        let map = filled(hashing);
        for buckets in [2, 64, 4096] {
            map.resize_to(buckets).unwrap();
            assert_finds_any_number(&map);
        }
    }
}

/// T1: keys that are there are found while the table is resized.
#[test]
fn finds_all_while_the_table_is_resized() {
    let map = filled(MIXED);
    let mut bits = (1..12).cycle();
    alongside(
        || map.resize_to(1 << bits.next().unwrap()).unwrap(),
        || (0..50).for_each(|_| assert_finds_any_number(&map)),
    );
}

/// T8: values outlive the call as long as the handle.
#[test]
fn values_live_as_long_as_the_handle() {
    let map = HashMap::from([("one".to_string(), "1".to_string()), ("two".to_string(), "2".to_string())]);
    let pinned = map.pin();
    let values = {
        let keys = [String::from("two"), String::from("one")];
        pinned.get_many(keys.each_ref().map(String::as_str))
    };
    pinned.clear();
    assert_eq!(values.map(|value| value.unwrap().as_str()), ["2", "1"]);
}
