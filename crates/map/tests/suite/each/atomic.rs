//! B3: operations that look an entry up and then change it do both in one step. Closures run
//! without locks: in these tests they do what other threads might do meanwhile.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::thread;

use relativist::Relocatable;
use relativist::{Change, CompareExchangeError};

use super::{HashMap, reclaim, resize};
use crate::hashing::{EQUAL, Hashing, IDENTITY};
use crate::tracked::{Tally, Tracked};
use relativist_testing::random::Random;

type Map = HashMap<u64, u64, Hashing>;

/// Returns a map in which all keys have the same hash.
fn map(entries: &[(u64, u64)]) -> Map {
    let map = Map::with_hasher(EQUAL);
    (&map).extend(entries.iter().copied());
    map
}

/// Counts the calls, and does something during the first.
fn during_first(calls: &Cell<u32>, something: impl FnOnce()) {
    calls.set(calls.get() + 1);
    if calls.get() == 1 {
        something();
    }
}

#[test]
fn begins_anew_when_the_entry_is_replaced_meanwhile() {
    let calls = Cell::new(0);
    let interfere = |map: &Map| during_first(&calls, || _ = map.pin().insert(1, 20));
    let check = |operation: &dyn Fn(&Map), left: Option<u64>| {
        let map = map(&[(0, 0), (1, 10), (2, 0)]);
        calls.set(0);
        operation(&map);
        assert_eq!((calls.get(), map.pin().get(&1).copied()), (2, left));
        assert_eq!(map.len(), 2 + usize::from(left.is_some()));
    };
    let add = |map: &Map, n: &u64| {
        interfere(map);
        n + 1
    };
    check(&|map| assert_eq!(map.pin().update(1, |n| add(map, n)), Some(&21)), Some(21));
    check(&|map| assert_eq!(map.pin().update_or_insert(1, |n| add(map, n), 0), &21), Some(21));
    let set = |map: &Map| {
        let pinned = map.pin();
        let done = pinned.try_compute(1, |n| n.map(|n| Some(add(map, n))).ok_or(()));
        assert_eq!(done, Ok(Change { old: Some(&20), new: Some(&21) }));
    };
    check(&set, Some(21));
    let remove = |map: &Map| {
        let pinned = map.pin();
        let done = pinned.try_compute(1, |n| n.map(|n| _ = add(map, n)).map(|()| None).ok_or(()));
        assert_eq!(done, Ok(Change { old: Some(&20), new: None }));
    };
    check(&remove, None);
    let remove_if = |map: &Map| {
        let pinned = map.pin();
        assert_eq!(pinned.remove_if(&1, |_, n| add(map, n) > 0), Some((&1, &20)));
    };
    check(&remove_if, None);
}

#[test]
fn begins_anew_when_the_entry_is_removed_meanwhile() {
    let calls = Cell::new(0);
    let interfere = |map: &Map| during_first(&calls, || _ = map.pin().remove(&1));
    let check = |operation: &dyn Fn(&Map), expected: u32, left: Option<u64>| {
        let map = map(&[(0, 0), (1, 10), (2, 0)]);
        calls.set(0);
        operation(&map);
        assert_eq!((calls.get(), map.pin().get(&1).copied()), (expected, left));
        assert_eq!(map.len(), 2 + usize::from(left.is_some()));
    };
    let add = |map: &Map, n: &u64| {
        interfere(map);
        n + 1
    };
    check(&|map| assert_eq!(map.pin().update(1, |n| add(map, n)), None), 1, None);
    check(&|map| assert_eq!(map.pin().update_or_insert(1, |n| add(map, n), 5), &5), 1, Some(5));
    check(&|map| assert_eq!(map.pin().remove_if(&1, |_, n| add(map, n) > 0), None), 1, None);
    let compute = |map: &Map| {
        let pinned = map.pin();
        let done = pinned.try_compute(1, |n| {
            interfere(map);
            n.map(|n| Some(n + 1)).ok_or("absent")
        });
        assert_eq!(done, Err("absent"));
    };
    check(&compute, 2, None);
}

#[test]
fn begins_anew_when_the_entry_appears_meanwhile() {
    let map = map(&[(0, 0), (2, 0)]);
    let pinned = map.pin();
    let calls = Cell::new(0);
    let interfere = |key: u64| during_first(&calls, || _ = map.pin().insert(key, 10));
    let make = |key: u64| {
        interfere(key);
        5
    };
    assert_eq!(pinned.get_or_insert_with(1, || make(1)), &10, "the one that came first counts");
    calls.set(0);
    assert_eq!(pinned.update_or_insert_with(3, |n| n + 1, || make(3)), &11);
    assert_eq!(calls.get(), 1, "the initial value is made once");
    calls.set(0);
    let done = pinned.try_compute(4, |n| {
        interfere(4);
        Ok::<_, ()>(Some(n.map_or(5, |n| n + 1)))
    });
    assert_eq!((calls.get(), done), (2, Ok(Change { old: Some(&10), new: Some(&11) })));
    assert_eq!(map.len(), 5);
}

/// If another thread inserts the key first, the initial value is kept for the case that the key is
/// removed again.
#[test]
fn keeps_the_initial_value_for_another_attempt() {
    let map = map(&[]);
    let pinned = map.pin();
    let update = |_: &u64| {
        map.pin().remove(&1);
        0
    };
    let initial = || {
        map.pin().insert(1, 10);
        5
    };
    assert_eq!(pinned.update_or_insert_with(1, update, initial), &5);
    assert_eq!(pinned.get(&1), Some(&5));
}

/// The new value of a failed attempt is dropped before the next attempt: a call has one new value
/// at a time.
#[test]
fn keeps_one_new_value_at_a_time() {
    static TALLY: Tally = Tally::new();
    let map: HashMap<u64, Tracked> = HashMap::new();
    let insert = || _ = map.pin().insert(1, Tracked::new(1, &TALLY));
    insert();
    let mut calls = 0;
    let pinned = map.pin();
    let updated = pinned.update(1, |_| {
        // Values that were in the map wait for the guard; there is one for each call.
        assert_eq!(TALLY.live(), 1 + calls);
        calls += u64::from(calls < 5);
        if calls < 5 {
            insert();
        }
        Tracked::new(1, &TALLY)
    });
    updated.expect("it is there").assert_of(1);
    assert_eq!(calls, 5);
    drop(pinned);
    reclaim(&map);
    TALLY.assert_live(1);
}

#[test]
fn bulk_removal_leaves_what_was_replaced_meanwhile() {
    let map = map(&[(1, 10), (2, 10), (3, 10)]);
    let calls = Cell::new(0);
    let replace = |key: &u64| {
        if *key == 2 {
            during_first(&calls, || _ = map.pin().insert(2, 20));
        }
    };
    map.pin().retain(|key, value| {
        replace(key);
        *value > 10
    });
    let pinned = map.pin();
    assert_eq!(pinned.iter().collect::<Vec<_>>(), [(&2, &20)]);
    calls.set(0);
    let extracted = pinned.extract_if(|key, value| {
        replace(key);
        *value < 30
    });
    // A flat map looks at the new entry.
    let removed = usize::from(!<super::Form as relativist::Form>::BOXED);
    assert_eq!((extracted.count(), map.len()), (removed, 1 - removed));
}

/// Removals make a map smaller, so entries move between the look at them and their removal.
#[test]
fn bulk_removal_reaches_entries_that_move_meanwhile() {
    for entries in [10, 100, 1000, 10_000] {
        let map: HashMap<u64, u64> = (0..entries).map(|n| (n, n)).collect();
        map.pin().retain(|n, _| n % 5 > 0);
        assert!(map.pin().keys().all(|n| n % 5 > 0));
        assert_eq!(map.len() as u64, entries * 4 / 5);
        assert_eq!(map.pin().extract_if(|n, _| n % 5 > 1).count() as u64, entries * 3 / 5);
        map.reserve(30_000);
        let pinned = map.pin();
        let drained = pinned.drain().inspect(|_| map.reserve(100)).count();
        assert_eq!((drained as u64, map.len()), (entries / 5, 0));
    }
}

thread_local!(static DURING_EQ: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) });

/// Compares by number. The test may change the map meanwhile.
#[derive(Debug)]
struct Value(u64);

// SAFETY: a number.
unsafe impl Relocatable for Value {}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        if let Some(interfere) = DURING_EQ.take() {
            interfere();
        }
        self.0 == other.0
    }
}

#[test]
fn compare_exchange_compares_what_it_replaces() {
    let map: Arc<HashMap<_, _>> = Arc::new(HashMap::from([(1, Value(10))]));
    let pinned = map.pin();
    let its = Arc::clone(&map);
    DURING_EQ.set(Some(Box::new(move || _ = its.pin().insert(1, Value(20)))));
    let Err(error) = pinned.compare_exchange(1, &Value(10), Value(30)) else { panic!("the value was 20") };
    assert_eq!((error.current.map(|value| value.0), error.new.0), (Some(20), 30));
    let its = Arc::clone(&map);
    DURING_EQ.set(Some(Box::new(move || _ = its.pin().remove(&1))));
    let Err(error) = pinned.compare_exchange(1, &Value(20), Value(30)) else { panic!("the key was removed") };
    assert_eq!((error.current, error.new.0), (None, 30));
    assert!(map.is_empty());
}

#[test]
fn errors_explain_themselves() {
    let map: HashMap<_, _> = HashMap::from([("a", 1)]);
    let pinned = map.pin();
    let error: CompareExchangeError<'_, i32> = pinned.compare_exchange("a", &2, 3).unwrap_err();
    assert_eq!(error.to_string(), "not exchanged for 3: the key has the value 1");
    let error = pinned.compare_exchange("b", &2, 3).unwrap_err();
    assert_eq!(error.to_string(), "not exchanged for 3: the key is not in the map");
    assert_eq!(pinned.try_insert("a", 2).unwrap_err().to_string(), "not inserted 2: the key has the value 1");
}

const THREADS: u64 = 4;
const ROUNDS: u64 = 4000;
const KEYS: u64 = 3;

/// Adds one by a random operation.
fn add_one(map: &Map, key: u64, choice: u64) {
    let pinned = map.pin();
    match choice {
        0 => _ = pinned.update_or_insert(key, |n| n + 1, 1),
        1 => _ = pinned.update_or_insert_with(key, |n| n + 1, || 1),
        2 => _ = pinned.try_compute(key, |n| Ok::<_, ()>(Some(n.map_or(1, |n| n + 1)))),
        3 => {
            pinned.get_or_insert(key, 0);
            while pinned.update(key, |n| n + 1).is_none() {}
        }
        _ => {
            let mut current = *pinned.get_or_insert_with(key, || 0);
            while let Err(error) = pinned.compare_exchange(key, &current, current + 1) {
                current = *error.current.expect("no other thread removes it");
            }
        }
    }
}

/// No increment is lost, whichever operations the threads use, and during resizes.
#[test]
fn counters_count_right() {
    let map = Map::with_hasher(IDENTITY);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let map = &map;
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for round in 0..ROUNDS {
                    add_one(map, random.below(KEYS), random.below(5));
                    if round % 64 == 0 {
                        resize(map, &mut random);
                    }
                }
            });
        }
    });
    assert_eq!(map.pin().values().sum::<u64>(), THREADS * ROUNDS);
}

/// Each token that is inserted is removed by exactly one thread, by whichever operation.
#[test]
fn tokens_are_removed_once() {
    let map: HashMap<u64, u64> = HashMap::new();
    let take = |random: &mut Random, key: u64| -> u64 {
        let pinned = map.pin();
        match random.below(5) {
            0 => u64::from(pinned.remove(&key).is_some()),
            1 => u64::from(pinned.remove_if(&key, |_, token| token % 2 == 0).is_some()),
            2 => u64::from(pinned.try_compute(key, |token| token.map(|_| None).ok_or(())).is_ok()),
            3 => pinned.extract_if(|&its, _| its == key).count() as u64,
            _ => pinned.drain().count() as u64,
        }
    };
    let (put, taken) = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let take = &take;
                let map = &map;
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    let mut sums = (0, 0);
                    for _ in 0..ROUNDS / 2 {
                        let key = random.below(8);
                        sums.0 += u64::from(map.pin().try_insert(key, random.below(2)).is_ok());
                        sums.1 += take(&mut random, key);
                    }
                    sums
                })
            })
            .collect();
        let sums = threads.into_iter().map(|thread| thread.join().unwrap());
        sums.fold((0, 0), |all, sums| (all.0 + sums.0, all.1 + sums.1))
    });
    assert_eq!(put, taken + map.len() as u64);
    assert_eq!(map.len(), map.into_iter().count());
}
