//! What the tests of other maps check, and which test here checks the same. The first table covers
//! the tests of std's `HashMap` and `HashSet` and of hashbrown. The second covers the tests of
//! Java's `ConcurrentHashMap`, by subject and not one by one: JSR 166's TCK
//! (`ConcurrentHashMapTest`, `ConcurrentHashMap8Test`), and the JDK's
//! `java/util/concurrent/ConcurrentHashMap` and `ConcurrentMap`. Tests without a module are in this
//! file.
//!
//! | std and hashbrown | here |
//! |---|---|
//! | maps without capacity, operations on empty maps | `an_empty_map_answers_everything` |
//! | insert, overwrite, remove, `remove_entry`, `is_empty`, find | `model` |
//! | hashes in conflict, removing one of them | `model::with_all_hashes_equal`, `with_few_hashes` |
//! | many insertions and removals in both directions | `many_rounds_of_insertions_and_removals` |
//! | clone is independent | `a_clone_goes_its_own_way` |
//! | equality | `maps_are_equal_by_their_entries` |
//! | drops, of what `into_iter` and `drain` leave, too | `drops` |
//! | `iter`, `keys`, `values`, `into_iter`, `retain`, `extract_if` and `drain` (also left early) | `model` |
//! | `extract_if` and `retain` with a predicate that panics, `clone` with one | the test `panic_safety` |
//! | `from_iter`, arrays, `extend`, also by reference | `collections`, `model` |
//! | `Debug` | `auto_traits::types_can_be_shown` |
//! | `reserve`, `shrink_to_fit`, `try_reserve` with too much, `capacity` | `sizing`, the test `exhaustion` |
//! | `try_insert`, `Equivalent` | `model`, `a_key_is_found_by_what_is_equivalent_to_it`, `sets` |
//! | keys and values without size, with alignment | `collections` |
//! | covariance, unwind safety, `Send`, `Sync` | `auto_traits` |
//! | sets: operations, algebra, `replace`, `take`, operators | `sets` |
//! | `size_hint`, `ExactSizeIterator` | not: others may change the map, no iterator knows |
//! | `get_mut`, `iter_mut`, `values_mut`, `into_keys`, `into_values` | `collections` |
//! | `entry`, `get_disjoint_mut` | not: values are shared with readers; `atomic` has what replaces them |
//! | `Index` | not: it has no guard to borrow from |
//! | `const` constructors | not: an empty table has buckets |
//! | tombstones, rehashing in place, `raw_entry` | not: there are none |
//!
//! | JSR 166 and JDK | here |
//! |---|---|
//! | constructors refuse nonsense | `sizing::too_much_is_an_error` |
//! | `put`, `get`, `getOrDefault`, `containsKey`, `size`, `isEmpty`, `toString`, `putAll`, `clear` | `model`, `collections` |
//! | `containsValue` | `values_are_searched` |
//! | `putIfAbsent`, `replace`, `replace` of a value, `remove` of a value | `model` (`try_insert`, `update`, `compare_exchange`, `remove_if`) |
//! | `computeIfAbsent`, `computeIfPresent`, `compute`, `merge`, with and without a result | `model`, `java_s_operations_are_special_cases` |
//! | `computeIfAbsent` on the key that it computes | `closures_may_use_their_own_key` |
//! | `replaceAll` | `all_values_are_replaced` |
//! | views: removal through iterators, `removeAll`, `retainAll` | `model` (`extract_if`, `retain`) |
//! | `keySet` views, `newKeySet` | `sets` |
//! | iterators while the map changes, distinct elements | `iteration_goes_on_while_the_map_changes`, `stress` |
//! | `toArray` while others insert | `parallel`, `stress::iteration_sees_residents_exactly_once` |
//! | `forEach`, `search`, `reduce` in parallel | `parallel` |
//! | poor hashes, comparable and not | `model`, `costs` |
//! | serialization | `serialized` |
//! | present keys are found while others insert (`ConcurrentContainsKeyTest`) | `stress` |
//! | a thread sees what it has done (`ConcurrentAssociateTest`) | `a_thread_sees_what_it_has_done` |
//! | mixed loads (`MapLoops`, `MapCheck`), counters | `stress`, `linearizability`, `atomic::counters_count_right` |
//! | removed entries are collectable | `drops`, `stress` |
//! | nulls, `hashCode`, `Enumeration`, tree bins | not: there are none |

use std::collections::BTreeSet;
use std::thread;

use relativist::{Change, Equivalent};
use relativist_testing::random::Random;

use super::{HashMap, resize};
use crate::alongside::alongside;
use crate::hashing::{EQUAL, IDENTITY};

#[test]
fn an_empty_map_answers_everything() {
    let map: HashMap<u64, u64> = HashMap::with_capacity(0);
    let pinned = map.pin();
    assert_eq!(
        (pinned.len(), pinned.get(&1), pinned.get_key_value(&1), pinned.contains_key(&1)),
        (0, None, None, false)
    );
    assert_eq!((pinned.remove(&1), pinned.remove_entry(&1), pinned.remove_if(&1, |_, _| true)), (None, None, None));
    assert_eq!((pinned.update(1, |n| *n), pinned.iter().next(), pinned.drain().next()), (None, None, None));
    assert_eq!(pinned.try_compute(1, |_| Ok::<_, ()>(None)), Ok(Change { old: None, new: None }));
    pinned.clear();
    pinned.retain(|_, _| unreachable!());
    drop(pinned);
    map.shrink_to_fit().unwrap();
    assert!(map.clone() == map && map == HashMap::new());
    assert_eq!(map.into_iter().next(), None);
}

#[test]
fn many_rounds_of_insertions_and_removals() {
    let map: HashMap<u64, u64> = HashMap::new();
    for _ in 0..5 {
        for n in 1..=1000 {
            assert_eq!(map.pin().insert(n, n), None);
            assert!((1..=n).step_by(97).all(|present| map.pin().get(&present) == Some(&present)));
            assert!((n + 1..=1000).step_by(97).all(|absent| !map.pin().contains_key(&absent)));
        }
        let remove = |n: u64| {
            assert_eq!(map.pin().remove(&n), Some(&n));
            assert_eq!(map.pin().remove(&n), None);
        };
        (1..=1000).for_each(remove);
        assert!(map.is_empty());
        (1..=1000).for_each(|n| _ = map.pin().insert(n, n));
        (1..=1000).rev().for_each(remove);
        assert!(map.is_empty());
    }
}

#[test]
fn a_clone_goes_its_own_way() {
    let map: HashMap<_, _> = HashMap::from([("a", 1), ("b", 2)]);
    let clone = map.clone();
    map.pin().insert("a", 3);
    clone.pin().remove("b");
    assert_eq!((map.pin().get("a"), map.len()), (Some(&3), 2));
    assert_eq!((clone.pin().get("a"), clone.len()), (Some(&1), 1));
}

#[test]
fn maps_are_equal_by_their_entries() {
    let map: HashMap<u64, u64> = (0..100).map(|n| (n, n)).collect();
    let other: HashMap<u64, u64> = (0..100).rev().map(|n| (n, n)).collect();
    other.reserve(1000);
    let are_equal = |a: &HashMap<u64, u64>, b: &HashMap<u64, u64>| [a == b, b == a];
    assert_eq!(are_equal(&map, &other), [true; 2], "whatever order they came in, and how many buckets there are");
    other.pin().insert(0, 1);
    assert_eq!(are_equal(&map, &other), [false; 2], "another value");
    other.pin().remove(&0);
    assert_eq!(are_equal(&map, &other), [false; 2], "one less");
    other.pin().insert(100, 100);
    assert_eq!(are_equal(&map, &other), [false; 2], "another key");
}

/// A borrowed pair, to look up an owned one.
#[derive(Hash)]
struct Pair<'a>(u8, &'a str);

impl Equivalent<(u8, String)> for Pair<'_> {
    fn equivalent(&self, key: &(u8, String)) -> bool {
        self.0 == key.0 && self.1 == key.1
    }
}

#[test]
fn a_key_is_found_by_what_is_equivalent_to_it() {
    let map: HashMap<_, _> = HashMap::from([((1, "a".to_string()), 1), ((1, "b".to_string()), 2)]);
    let pinned = map.pin();
    assert_eq!(pinned.get(&Pair(1, "b")), Some(&2));
    assert_eq!(pinned.get(&Pair(2, "b")), None);
    assert_eq!(pinned.remove_if(&Pair(1, "a"), |_, _| true).map(|(key, _)| key.1.as_str()), Some("a"));
    assert_eq!(pinned.remove(&Pair(1, "b")), Some(&2));
}

#[test]
fn values_are_searched() {
    let map: HashMap<u64, String> = (0..100).map(|n| (n, n.to_string())).collect();
    let pinned = map.pin();
    assert!(pinned.values().any(|value| value == "42"));
    assert!(!pinned.values().any(|value| value == "100"));
    assert_eq!(pinned.iter().find(|(_, value)| *value == "42").map(|(key, _)| *key), Some(42));
}

#[test]
fn java_s_operations_are_special_cases() {
    let map: HashMap<_, _> = HashMap::from([("a", 1)]);
    let pinned = map.pin();
    // `computeIfAbsent` whose function returns null, and `computeIfPresent`.
    let none_if_absent = |key| pinned.try_compute(key, |value| if value.is_some() { Err(()) } else { Ok(None) });
    assert_eq!((none_if_absent("b"), none_if_absent("a")), (Ok(Change { old: None, new: None }), Err(())));
    let add_if_present = |key| pinned.try_compute(key, |value| value.map(|n| Some(n + 1)).ok_or(()));
    assert_eq!(add_if_present("a"), Ok(Change { old: Some(&1), new: Some(&2) }));
    assert_eq!(add_if_present("b"), Err(()));
    // `merge` that removes an entry when the sum is 0.
    let merge =
        |key, by: i32| pinned.try_compute(key, |n| Ok::<_, ()>(Some(n.unwrap_or(&0) + by).filter(|&sum| sum != 0)));
    assert_eq!(merge("a", -2).unwrap().new, None);
    assert_eq!(merge("a", 5).unwrap().new, Some(&5));
    assert_eq!(pinned.get("b").copied().unwrap_or(7), 7);
}

/// A closure may change the entry for which it computes a value. In Java's map this is an error,
/// and in earlier versions of it a deadlock.
#[test]
fn closures_may_use_their_own_key() {
    let map: HashMap<u64, u64, _> = HashMap::with_hasher(EQUAL);
    let pinned = map.pin();
    assert_eq!(pinned.get_or_insert_with(1, || *pinned.get_or_insert_with(1, || 5)), &5);
    assert_eq!(pinned.get_or_insert_with(2, || *pinned.get_or_insert_with(3, || 6)), &6);
    let nested = |_: &u64| *pinned.update_or_insert_with(4, |n| n + 1, || 7);
    assert_eq!(pinned.update_or_insert(3, nested, 0), &7);
    let clear = pinned.try_compute(1, |_| {
        pinned.clear();
        Ok::<_, ()>(Some(8))
    });
    assert_eq!((clear.unwrap().old, pinned.len()), (None, 1));
}

#[test]
fn all_values_are_replaced() {
    let map: HashMap<u64, u64> = (0..1000).map(|n| (n, n)).collect();
    let pinned = map.pin();
    for &key in pinned.keys() {
        pinned.update(key, |n| n * 2);
    }
    assert!(pinned.iter().all(|(key, value)| *value == key * 2));
    assert_eq!(map.len(), 1000);
}

/// The iterating thread itself changes the map.
#[test]
fn iteration_goes_on_while_the_map_changes() {
    let map = HashMap::<u64, u64, _>::with_hasher(IDENTITY);
    (&map).extend((0..300).map(|n| (n, n)));
    let pinned = map.pin();
    let mut seen = BTreeSet::new();
    for &key in pinned.keys() {
        assert!(seen.insert(key), "B7: {key} was seen twice");
        // One third of the keys are removed when they are seen, and one third are replaced. For
        // each key of the last third, another key is inserted and removed.
        match key % 3 {
            0 => assert!(pinned.remove(&key).is_some()),
            1 => assert!(pinned.insert(key, 0).is_some()),
            _ => assert!(pinned.insert(2000 + key, key).is_none() && pinned.remove(&(2000 + key)).is_some()),
        }
    }
    assert!((0..300).all(|key| seen.contains(&key)));
    assert_eq!(map.len(), 200);
}

/// Each thread works on keys of its own, in the same buckets, while the map is resized.
#[test]
fn a_thread_sees_what_it_has_done() {
    let map = HashMap::<u64, u64, _>::with_hasher(IDENTITY);
    let work = &|own: u64| {
        for n in 0..2000 {
            let key = n % 50 * 4 + own;
            let pinned = map.pin();
            assert_eq!(pinned.try_insert(key, n), Ok(&n));
            assert_eq!(pinned.get(&key), Some(&n));
            assert_eq!(pinned.update(key, |n| n + 1), Some(&(n + 1)));
            assert_eq!(pinned.compare_exchange(key, &(n + 1), n), Ok(&(n + 1)));
            assert_eq!(pinned.get_or_insert(key, 0), &n);
            assert_eq!(pinned.remove(&key), Some(&n));
            assert_eq!(pinned.get(&key), None);
        }
    };
    let mut random = Random::new(1);
    alongside(
        || resize(&map, &mut random),
        || thread::scope(|scope| (0..4).for_each(|own| _ = scope.spawn(move || work(own)))),
    );
    assert!(map.is_empty());
}
