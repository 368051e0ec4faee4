//! A flat map copies entries to other slots, segments and arrays, which `HashMap` never does. These
//! tests check that each entry is found throughout, and is dropped once.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::thread;

use relativist::Resizing;
use relativist::flat::Relocatable;
use relativist_rcu::{clock, wait_for_readers};

use crate::alongside::alongside;
use crate::hashing::{Hashing, IDENTITY, MIXED, UNMIXED};
use crate::tested::{HashMap, build, builder, manual};
use crate::tracked::{Tally, Tracked};
use relativist_testing::random::{Random, mix};

type Map = HashMap<u64, Tracked, Hashing>;

/// Keys below this are always in the map.
const RESIDENTS: u64 = 40;

/// Does one update at random.
fn update(map: &Map, random: &mut Random, tally: &'static Tally) {
    let pinned = map.pin();
    let resident = random.below(RESIDENTS);
    let other = RESIDENTS + random.below(60);
    match random.below(6) {
        0 => pinned.insert(resident, Tracked::new(resident, tally)).expect("a resident").assert_of(resident),
        1 => pinned.update(resident, |_| Tracked::new(resident, tally)).expect("a resident").assert_of(resident),
        2 => _ = pinned.try_insert(other, Tracked::new(other, tally)).map(|value| value.assert_of(other)),
        3 => _ = pinned.insert(other, Tracked::new(other, tally)).map(|value| value.assert_of(other)),
        4 => pinned.retain(|&key, _| key < RESIDENTS || key % 7 != other % 7),
        _ => _ = pinned.remove(&other).map(|value| value.assert_of(other)),
    }
}

#[test]
fn an_insertion_replaces_its_key_in_a_later_segment() {
    let map: HashMap<u64, u64, Hashing> = manual(MIXED);
    // In two buckets, so that the later keys are in later segments.
    (0..12).for_each(|key| assert_eq!(map.pin().insert(key, 0), None));
    (0..6).for_each(|key| assert_eq!(map.pin().remove(&key), Some(&0)));
    // The slots of the first segments become free.
    (0..clock::GRACE_PERIODS).for_each(|_| wait_for_readers());
    (6..12).for_each(|key| assert_eq!(map.pin().insert(key, 1), Some(&0)));
    assert_eq!(map.len(), 6);
}

/// Three threads update a map, while this thread looks keys up and another thread resizes the map.
fn entries_are_dropped_once(hashing: Hashing, tally: &'static Tally) {
    let map: Map = manual(hashing);
    (0..RESIDENTS).for_each(|key| _ = map.pin().insert(key, Tracked::new(key, tally)));
    let mut random = Random::new(9);
    let resize = || map.resize_to(2 << random.below(7)).unwrap();
    let work = || {
        thread::scope(|scope| {
            for seed in 0..3 {
                let map = &map;
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    (0..1500).for_each(|_| update(map, &mut random, tally));
                });
            }
            for _ in 0..100 {
                let pinned = map.pin();
                let found: Vec<_> = (0..RESIDENTS).map(|key| pinned.get(&key).expect("T1: a resident")).collect();
                let seen = pinned.keys().filter(|&&key| key < RESIDENTS).count() as u64;
                assert_eq!(seen, RESIDENTS, "T7");
                found.iter().zip(0..).for_each(|(value, key)| value.assert_of(key));
            }
        });
    };
    alongside(resize, work);
    let len = map.len();
    assert_eq!((map.pin().iter().count(), map.stats().entries), (len, len));
    tally.assert_live(len as u64);
    map.pin().clear();
    tally.assert_live(0);
}

#[test]
fn entries_in_many_buckets_are_dropped_once() {
    static TALLY: Tally = Tally::new();
    entries_are_dropped_once(MIXED, &TALLY);
}

#[test]
fn entries_in_long_chains_are_dropped_once() {
    static TALLY: Tally = Tally::new();
    entries_are_dropped_once(Hashing(|n| n / 10), &TALLY);
}

#[test]
fn entries_of_one_bucket_are_dropped_once() {
    static TALLY: Tally = Tally::new();
    entries_are_dropped_once(UNMIXED, &TALLY);
}

/// One thread empties the map by `clear`, `drain` and `extract_if`, while others insert and resize.
#[test]
fn entries_are_dropped_once_when_the_map_is_emptied() {
    static TALLY: Tally = Tally::new();
    let map: Map = build(builder().resizing(Resizing::Automatic).hasher(MIXED));
    let mut random = Random::new(3);
    let empty = || match random.below(3) {
        0 => map.pin().clear(),
        1 => map.pin().drain().for_each(|(&key, value)| value.assert_of(key)),
        _ => _ = map.pin().extract_if(|key, _| key % 2 == 0).take(50).count(),
    };
    alongside(empty, || {
        thread::scope(|scope| {
            for thread in 0..2 {
                let map = &map;
                let insert = move |n: u64| _ = map.pin().insert(n, Tracked::new(n, &TALLY));
                scope.spawn(move || (0..8000).for_each(|n| insert(n % 2000 * 2 + thread)));
            }
        });
    });
    let len = map.len();
    assert_eq!(map.pin().iter().inspect(|&(&key, value)| value.assert_of(key)).count(), len);
    TALLY.assert_live(len as u64);
    let (half, rest) = (len / 2, len - len / 2);
    let mut entries = map.into_iter();
    assert_eq!(entries.by_ref().take(half).count(), half);
    assert_eq!(format!("{entries:?}"), format!("IntoIter {{ left: {rest} }}"));
    drop(entries);
    TALLY.assert_live(0);
}

/// When the map is dropped, some buckets have moved and others have not, and some have later
/// segments.
#[test]
fn a_map_that_goes_in_the_middle_of_a_resize_drops_all() {
    static TALLY: Tally = Tally::new();
    let mut caught = 0;
    for round in 0..300_u64 {
        let map: Map = build(builder().hasher(if round % 2 == 0 { MIXED } else { Hashing(|n| n / 4) }));
        let entries = 600 + round * 7 % 1000;
        for n in 0..entries {
            map.pin().insert(n, Tracked::new(n, &TALLY));
            if n > 500 && map.is_resizing() {
                break;
            }
        }
        caught += u32::from(map.is_resizing());
        if round % 3 == 0 {
            assert!(map.into_iter().take(10).count() == 10);
        } else {
            drop(map);
        }
        if round % 16 == 0 {
            TALLY.assert_live(0);
        }
    }
    TALLY.assert_live(0);
    assert!(caught > 0, "no map was dropped during a resize");
}

/// Compares the map with a model after each of many random updates of 16 keys. Slots are vacated
/// and used again, and entries move to later segments and, by resizes, back to first ones.
#[test]
fn entries_are_found_whatever_their_bucket_has_been_through() {
    for (seed, hashing) in
        [IDENTITY, UNMIXED, Hashing(|_| 3), Hashing(|n| (UNMIXED.0)(n << 20))].into_iter().enumerate()
    {
        let map: HashMap<u64, u64, Hashing> = manual(hashing);
        let mut model = std::collections::HashMap::new();
        let mut random = Random::new(seed as u64);
        for round in 0..60 {
            let pinned = map.pin();
            for _ in 0..40 {
                let (key, value) = (random.below(16), random.below(1000));
                if random.below(3) == 0 {
                    assert_eq!(pinned.remove(&key).copied(), model.remove(&key));
                } else {
                    assert_eq!(pinned.insert(key, value).copied(), model.insert(key, value));
                }
                let mut seen: Vec<_> = pinned.iter().map(|(&key, &value)| (key, value)).collect();
                seen.sort_unstable();
                let mut expected: Vec<_> = model.iter().map(|(&key, &value)| (key, value)).collect();
                expected.sort_unstable();
                assert_eq!(seen, expected);
                assert!((0..16).all(|key| pinned.get(&key) == model.get(&key)));
            }
            drop(pinned);
            match round % 3 {
                0 => relativist_rcu::barrier(),
                1 => map.resize_to(2 << random.below(4)).unwrap(),
                _ => (),
            }
        }
    }
}

thread_local!(static PANICS: Cell<bool> = const { Cell::new(false) });

/// A key whose `Hash` panics while `PANICS` is set, and returns something else each time while
/// `NOISE` is not 0.
struct Fickle {
    number: u64,
    tracked: Tracked,
}

// SAFETY: both fields are `Relocatable`.
unsafe impl Relocatable for Fickle {}

thread_local!(static NOISE: Cell<u64> = const { Cell::new(0) });

impl Hash for Fickle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.tracked.assert_of(self.number);
        assert!(!PANICS.get(), "the test requested this panic");
        let noise = NOISE.get();
        NOISE.set(if noise == 0 { 0 } else { mix(noise) });
        state.write_u64(self.number ^ noise);
    }
}

impl PartialEq for Fickle {
    fn eq(&self, other: &Self) -> bool {
        other.tracked.assert_of(other.number);
        self.number == other.number
    }
}

impl Eq for Fickle {}

/// `Hash` runs while entries are moved. `begin` makes it misbehave. Even then no entry is lost or
/// dropped twice, and the map can be used afterwards.
fn survives_while_it_grows(begin: fn(), tally: &'static Tally) {
    let map: HashMap<Fickle, Tracked, Hashing> = manual(MIXED);
    let entry = |n| (Fickle { number: n, tracked: Tracked::new(n, tally) }, Tracked::new(n, tally));
    (0..200).map(entry).for_each(|(key, value)| _ = map.pin().insert(key, value));
    begin();
    for buckets in [64, 4, 1024, 2, 32] {
        map.resize_to(buckets).unwrap();
        assert_eq!((map.buckets(), map.len(), map.stats().entries), (buckets, 200, 200));
    }
    PANICS.set(false);
    NOISE.set(0);
    assert_eq!(map.pin().iter().inspect(|(key, value)| value.assert_of(key.number)).count(), 200);
    for n in 200..400 {
        let (key, value) = entry(n);
        assert!(map.pin().insert(key, value).is_none());
    }
    map.resize_to(512).unwrap();
    assert!((200..400).all(|n| map.pin().get(&entry(n).0).is_some()));
    map.pin().clear();
    assert!(map.is_empty());
    tally.assert_live(0);
}

#[test]
fn a_hash_that_panics_does_not_stop_a_resize() {
    static TALLY: Tally = Tally::new();
    survives_while_it_grows(|| PANICS.set(true), &TALLY);
}

#[test]
fn a_hash_at_random_does_not_stop_a_resize() {
    static TALLY: Tally = Tally::new();
    survives_while_it_grows(|| NOISE.set(1), &TALLY);
}
