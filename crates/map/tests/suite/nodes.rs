//! What only the map of nodes promises: entries stay where they are, the order of iteration is that
//! of hashes, and what depends on names of types.

use std::collections::HashSet as StdSet;
use std::hash::RandomState;
use std::panic::{RefUnwindSafe, UnwindSafe};

use relativist::{Builder, HashMap, HashSet, Iter, Keys, OccupiedError, Pinned, Stats, read};

use crate::hashing::Hashing;
use crate::references::filled;
use crate::scan::{self, IN_ORDER, RESIDENTS};
use crate::tracked::{Tally, Tracked};

/// Types that only return entries are covariant. (Doctests that must not compile show that maps and
/// sets are invariant.)
#[test]
fn types_vary_as_they_should() {
    fn iter<'a>(iter: Iter<'a, &'static str, &'static str>) -> Iter<'a, &'a str, &'a str> {
        iter
    }
    fn keys<'a>(keys: Keys<'a, &'static str, &'static str>) -> Keys<'a, &'a str, &'a str> {
        keys
    }
    fn unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
    unwind_safe::<HashMap<u64, String>>();
    unwind_safe::<HashSet<u64>>();
    let map = HashMap::from([("c", "d")]);
    let pinned = map.pin();
    assert_eq!((iter(pinned.iter()).count(), keys(pinned.keys()).count()), (1, 1));
}

#[test]
fn types_can_be_shared_and_shown() {
    fn shared<T: Send + Sync>() {}
    fn shown<T: std::fmt::Debug>() {}
    shared::<HashMap<String, Vec<u8>>>();
    shared::<Builder>();
    shown::<HashMap<u64, String>>();
    shown::<Pinned<'_, u64, String, RandomState>>();
    shown::<Iter<'_, u64, String>>();
    shown::<OccupiedError<'_, String>>();
    shown::<Stats>();
    shown::<Builder>();
    let map = HashMap::from([(1, "one")]);
    assert_eq!(format!("{map:?} {:?}", map.pin()), r#"{1: "one"} {1: "one"}"#);
    assert!(HashMap::<u64, u64>::default().is_empty());
}

/// Objects are never moved: not by resizes, not by updates of others.
#[test]
fn stays_in_its_place() {
    static TALLY: Tally = Tally::new();
    let map = filled(&TALLY);
    let places = || -> Vec<usize> { (0..100).map(|n| std::ptr::from_ref(map.pin().get(&n).unwrap()).addr()).collect() };
    let before = places();
    for buckets in [1024, 4, 64] {
        map.resize_to(buckets).unwrap();
        (100..200).for_each(|n| assert!(map.pin().insert(n, Tracked::new(n, &TALLY)).is_none()));
        (100..200).for_each(|n| assert!(map.pin().remove(&n).is_some()));
        assert_eq!(places(), before);
    }
}

/// Entries of equal hash are never split over two calls.
#[test]
fn keeps_equal_hashes_together() {
    let map = scan::map(Hashing(|n| n / 8), 0..RESIDENTS);
    for n in [1, 3, 8, 9, 20] {
        for piece in scan::scan(&map, n, || ()) {
            let hashes: StdSet<u64> = piece.iter().map(|key| key / 8).collect();
            let whole =
                |hash: &u64| piece.iter().filter(|key| *key / 8 == *hash).count() as u64 == 8.min(RESIDENTS - hash * 8);
            assert!(hashes.iter().all(whole), "{piece:?}");
            assert!(piece.len() < n + 8, "no more than needed");
        }
    }
}

/// Cursors are places in the order of the mixed hashes; any number is valid.
#[test]
fn ends_with_the_largest_hash() {
    let map = scan::map(IN_ORDER, [0, 7, u64::MAX - 1, u64::MAX]);
    for buckets in [2, 1024] {
        map.resize_to(buckets).unwrap();
        assert_eq!(scan::scan(&map, 1, || ()), [[0], [7], [u64::MAX - 1], [u64::MAX]]);
        let from = |cursor| {
            let mut keys = Vec::new();
            let next = map.scan(cursor, 9, &read(), |&key, _| keys.push(key));
            assert_eq!(next, None);
            keys
        };
        assert_eq!(from(7), [7, u64::MAX - 1, u64::MAX]);
        assert_eq!(from(8), [u64::MAX - 1, u64::MAX]);
        assert_eq!(from(u64::MAX), [u64::MAX]);
    }
}
