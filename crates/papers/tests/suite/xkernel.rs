//! Mosberger's map: all builds compared with std's map, and the behaviour of its cache and its list
//! of buckets.

use std::collections::BTreeMap;
use std::ops::ControlFlow::{self, Break, Continue};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use relativist_papers::tables::xkernel::{Build, Const, MAX_BUCKETS, Map, New, Old};

/// An operation on a map. A key is a number, repeated in every byte.
#[derive(Clone, Copy, Debug)]
enum Step {
    Bind(u8),
    Resolve(u8),
    Unbind(u8),
    /// Visits at most this many bindings.
    Visit(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..24_u8).prop_map(Step::Bind),
        4 => (0..24_u8).prop_map(Step::Resolve),
        3 => (0..24_u8).prop_map(Step::Unbind),
        1 => (0..30_usize).prop_map(Step::Visit),
    ]
}

/// Visits up to `most` bindings.
fn visited<B: Build>(map: &mut Map<B>, most: usize) -> (ControlFlow<&'static str>, Vec<(Vec<u8>, u64)>) {
    let mut seen = Vec::new();
    let flow = map.for_each(|key, value| {
        if seen.len() == most {
            return Break("enough");
        }
        seen.push((key.to_vec(), value));
        Continue(())
    });
    (flow, seen)
}

fn check<B: Build>(mut map: Map<B>, steps: &[Step], key: impl Fn(u8) -> Box<B::Key>) {
    let mut model = BTreeMap::new();
    for (value, &step) in (0..).zip(steps) {
        match step {
            Step::Bind(n) => {
                assert_eq!(map.bind(&key(n), value), !model.contains_key(&n));
                model.entry(n).or_insert(value);
            }
            Step::Resolve(n) => assert_eq!(map.resolve(&key(n)), model.get(&n).copied(), "{n}"),
            Step::Unbind(n) => assert_eq!(map.unbind(&key(n)), model.remove(&n), "{n}"),
            Step::Visit(most) => {
                let (flow, seen) = visited(&mut map, most);
                assert_eq!((flow.is_break(), seen.len()), (model.len() > most, model.len().min(most)));
                assert!(seen.iter().all(|(key, value)| model.get(&key[0]) == Some(value)));
            }
        }
    }
    let (flow, mut seen) = visited(&mut map, usize::MAX);
    seen.sort_unstable();
    let expected: Vec<_> =
        model.into_iter().map(|(n, value)| (Box::<B::Key>::as_ref(&key(n)).as_ref().to_vec(), value)).collect();
    assert_eq!((flow, seen), (Continue(()), expected));
}

/// Every build, with one size of keys.
macro_rules! check_sizes {
    ($buckets:expr, $steps:expr, $($size:literal)*) => {$(
        let slice = |n| vec![n; $size].into_boxed_slice();
        check(Map::new($buckets, Old::with_key_size($size)), $steps, slice);
        check(Map::new($buckets, New::with_key_size($size)), $steps, slice);
        check(Map::new($buckets, Const::<$size>), $steps, |n| Box::new([n; $size]));
    )*};
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, rng_seed: RngSeed::Fixed(1996), failure_persistence: None, ..Default::default() })]

    #[test]
    fn all_builds_do_what_std_does(buckets in 1..16_usize, steps in vec(step(), 0..200)) {
        check_sizes!(buckets, &steps, 1 2 3 4 6 7 8 10 12 13 16 17 32);
    }
}

fn filled(buckets: usize, bindings: u16) -> Map<Const<2>> {
    let mut map = Map::new(buckets, Const);
    (0..bindings).for_each(|n| assert!(map.bind(&n.to_le_bytes(), n.into())));
    map
}

#[test]
fn what_was_found_last_is_forgotten_when_it_is_unbound() {
    let mut map = filled(64, 3);
    assert_eq!(map.resolve(&[1, 0]), Some(1));
    assert_eq!(map.unbind(&[1, 0]), Some(1));
    assert_eq!(map.resolve(&[1, 0]), None);
    // Nor is it found as the element that reuses its place.
    assert_eq!(map.resolve(&[2, 0]), Some(2));
    assert_eq!(map.unbind(&[2, 0]), Some(2));
    assert!(map.bind(&[9, 9], 7));
    assert_eq!((map.resolve(&[2, 0]), map.resolve(&[9, 9])), (None, Some(7)));
}

#[test]
fn buckets_are_listed_when_filled_and_taken_off_by_the_next_iteration() {
    let mut map = filled(1024, 0);
    assert_eq!(map.listed_buckets(), 0);
    let of = |map: &Map<Const<2>>, n: u16| map.bucket_of(&n.to_le_bytes());
    let keys: Vec<u16> = (0..).filter(|&n| of(&map, n) % 200 == 0).take(12).collect();
    keys.iter().for_each(|n| assert!(map.bind(&n.to_le_bytes(), 0)));
    let listed = map.listed_buckets();
    assert!((1..=6).contains(&listed), "each of six buckets once: {listed}");
    keys.iter().for_each(|n| assert_eq!(map.unbind(&n.to_le_bytes()), Some(0)));
    assert_eq!(map.listed_buckets(), listed, "nothing is done when buckets become empty");
    // Buckets that are filled again are still on the list.
    keys.iter().for_each(|n| assert!(map.bind(&n.to_le_bytes(), 1)));
    assert_eq!(map.listed_buckets(), listed);
    let kept = keys[5];
    keys.iter().filter(|&&n| n != kept).for_each(|n| assert_eq!(map.unbind(&n.to_le_bytes()), Some(1)));
    assert_eq!(visited(&mut map, 9), (Continue(()), vec![(kept.to_le_bytes().to_vec(), 1)]));
    assert_eq!(map.listed_buckets(), 1);
}

#[test]
fn an_iteration_that_is_broken_off_leaves_the_list_whole() {
    let mut map = filled(256, 200);
    (0..100_u16).for_each(|n| assert!(map.unbind(&n.to_le_bytes()).is_some()));
    for most in 0..100 {
        assert_eq!(visited(&mut map, most).1.len(), most);
    }
    assert_eq!(visited(&mut map, 200).1.len(), 100);
}

/// The hash spreads keys well enough for measurements.
#[test]
fn keys_are_spread() {
    let map = filled(1024, 0);
    let mut sizes = [0; 1024];
    (0..1024_u16).for_each(|n| sizes[map.bucket_of(&n.to_le_bytes())] += 1);
    assert!(sizes.iter().all(|&size| size <= 8), "largest bucket: {:?}", sizes.iter().max());
}

#[test]
fn buckets_are_a_power_of_two() {
    for (asked, got) in [(0, 1), (1, 1), (3, 4), (1000, 1024), (MAX_BUCKETS, MAX_BUCKETS)] {
        assert_eq!(Map::new(asked, Old::with_key_size(4)).buckets(), got);
    }
}

#[test]
#[should_panic(expected = "2048 buckets are more than 1024")]
fn there_are_at_most_1024_buckets() {
    let _ = Map::new(1025, Const::<4>);
}

#[test]
#[should_panic(expected = "33 bytes")]
fn keys_have_at_most_32_bytes() {
    let _ = Map::new(1, New::with_key_size(33));
}

#[test]
#[should_panic(expected = "another size")]
fn keys_have_one_size() {
    let _ = Map::new(1, New::with_key_size(4)).resolve(&[0; 3]);
}
