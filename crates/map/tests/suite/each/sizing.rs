//! The initial sizes of maps, and the sizes to which they are resized.

use std::ops::RangeInclusive;

use relativist::{BuildError, HashMap, PolicyError, Resizing};
use relativist_testing::wait_until;

use crate::hashing::MIXED;

/// Waits until the background thread has resized a map to this number of buckets.
#[track_caller]
fn wait_for_buckets<V>(map: &HashMap<u64, V>, expected: RangeInclusive<usize>) {
    wait_until(&format!("{expected:?} buckets"), || expected.contains(&map.buckets()));
}

fn fill(map: &HashMap<u64, u64>, entries: u64) {
    (0..entries).for_each(|n| _ = map.pin().insert(n, n));
}

#[test]
fn room_is_made_for_what_was_asked() {
    assert_eq!(HashMap::<u64, u64>::new().buckets(), 2);
    assert_eq!(HashMap::<u64, u64>::with_capacity(0).buckets(), 2);
    assert_eq!(HashMap::<u64, u64>::with_capacity(1000).buckets(), 2048);
    let map: HashMap<u64, u64, _> = HashMap::with_capacity_and_hasher(1000, MIXED);
    assert_eq!(map.buckets(), 2048);
    let map = HashMap::<u64, u64>::builder().capacity(1000).load_factor(0.5..=6.0).build::<u64, u64>().unwrap();
    assert_eq!(map.buckets(), 512);
    let map = HashMap::<u64, u64>::builder().capacity(10).floor(1000).build::<u64, u64>().unwrap();
    assert_eq!(map.buckets(), 2048);
}

/// The map is resized neither when it is full, nor when it is empty again. A second map shows that
/// the worker is done with the first.
#[test]
fn a_map_of_one_size_keeps_it() {
    let map: HashMap<u64, u64> = HashMap::<u64, u64>::builder().capacity(64).ceiling(64).build().unwrap();
    assert_eq!(map.buckets(), 128);
    fill(&map, 1000);
    map.reserve(1000);
    map.pin().clear();
    let later: HashMap<u64, u64> = HashMap::new();
    fill(&later, 1000);
    wait_for_buckets(&later, 1024..=2048);
    assert_eq!((map.buckets(), map.stats().grows, map.stats().shrinks), (128, 0, 0));
}

#[test]
fn an_automatic_map_stays_within_its_bounds() {
    let builder = HashMap::<u64, u64>::builder().capacity(100).floor(20).ceiling(500);
    let map: HashMap<u64, u64> = builder.build().unwrap();
    assert_eq!(map.buckets(), 256);
    fill(&map, 20_000);
    wait_for_buckets(&map, 1024..=1024);
    map.reserve(10_000);
    assert_eq!(map.buckets(), 1024);
    map.pin().clear();
    wait_for_buckets(&map, 64..=64);
    map.resize_to(4096).unwrap();
    assert_eq!(map.buckets(), 4096, "by hand");
}

#[test]
fn an_automatic_map_keeps_its_load_factor() {
    let map: HashMap<u64, u64> = HashMap::<u64, u64>::builder().load_factor(0.5..=6.0).build().unwrap();
    fill(&map, 4 << 10);
    wait_for_buckets(&map, 1024..=2048);
    map.pin().retain(|n, _| n % 32 == 0);
    wait_for_buckets(&map, 128 / 6..=128 * 2);
}

/// Each step of a shrink looks only at the heads that it joins. If it also looked at the empty
/// heads before them, this would take hours: the square of the number of buckets.
#[test]
fn shrinking_takes_one_pass_over_empty_buckets() {
    let map = HashMap::<u64, u64>::builder().resizing(Resizing::Manual).build::<u64, u64>().unwrap();
    map.resize_to(1 << 22).unwrap();
    map.resize_to(2).unwrap();
    map.resize_to(1 << 22).unwrap();
    fill(&map, 10);
    map.resize_to(2).unwrap();
    assert!((0..10).all(|n| map.pin().get(&n) == Some(&n)));
    assert_eq!((map.buckets(), map.pin().iter().count()), (2, 10));
}

/// A map with one entry is not empty, whichever bucket has the entry and whichever thread removes
/// it.
#[test]
fn one_entry_is_not_nothing() {
    let map = HashMap::<u64, u64>::builder().resizing(Resizing::Manual).build::<u64, u64>().unwrap();
    assert!(map.is_empty());
    for buckets in [2, 64, 4096, 1 << 16, 4096, 2] {
        map.resize_to(buckets).unwrap();
        for n in 0..100 {
            map.pin().insert(n, n);
            assert!(!map.is_empty());
            if n % 10 == 0 {
                std::thread::scope(|scope| _ = scope.spawn(|| map.pin().remove(&n).copied()));
            } else {
                map.pin().remove(&n);
            }
            assert!(map.is_empty());
        }
        fill(&map, 1000);
        assert!(!map.is_empty());
        map.pin().clear();
        assert!(map.is_empty());
    }
}

#[test]
fn a_manual_map_is_cloned_with_its_size() {
    let map: HashMap<u64, u64> = HashMap::<u64, u64>::builder().resizing(Resizing::Manual).build().unwrap();
    map.resize_to(64).unwrap();
    fill(&map, 1000);
    let clone = map.clone();
    assert_eq!((clone.buckets(), clone.policy()), (64, map.policy()));
    assert!(clone == map);
}

#[test]
fn nonsense_is_an_error() {
    let builder = HashMap::<u64, u64>::builder;
    let load = builder().load_factor(0.5..=0.75).build::<u64, u64>().unwrap_err();
    assert_eq!(load, BuildError::Policy(PolicyError::LoadFactor(0.5..=0.75)));
    assert!(load.to_string().contains("0.5..=0.75"), "{load}");
    for builder in [builder().floor(1000).ceiling(100), builder().capacity(1000).ceiling(100)] {
        let error = builder.clone().build::<u64, u64>().unwrap_err();
        assert!(matches!(error, BuildError::Policy(PolicyError::Buckets(_))), "{builder:?}: {error}");
    }
    let error = builder().capacity(usize::MAX).build::<u64, u64>().unwrap_err();
    assert!(error.to_string().contains("cannot allocate"), "{error}");
}
