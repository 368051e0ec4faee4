//! B8: what was found stays valid and unchanged as long as the guard.

use std::thread;

use relativist_testing::{ROUNDS, assert_meet};

use super::HashMap;
use crate::tracked::{Tally, Tracked};

fn filled(tally: &'static Tally) -> HashMap<u64, Tracked> {
    (0..100).map(|n| (n, Tracked::new(n, tally))).collect()
}

#[test]
fn outlives_removal_and_replacement() {
    static TALLY: Tally = Tally::new();
    let map = filled(&TALLY);
    let pinned = map.pin();
    let removed = pinned.get(&1).unwrap();
    let replaced = pinned.get(&2).unwrap();
    let id = replaced.id();
    thread::scope(|scope| {
        scope.spawn(|| {
            map.pin().remove(&1).unwrap().assert_of(1);
            map.pin().insert(2, Tracked::new(2, &TALLY)).unwrap().assert_of(2);
            map.pin().clear();
        });
    });
    // A generous amount of work that would reuse memory freed too early.
    (200..5000).for_each(|n| assert!(pinned.insert(n, Tracked::new(n, &TALLY)).is_none()));
    removed.assert_of(1);
    replaced.assert_of(2);
    assert_eq!(replaced.id(), id);
    assert!(pinned.get(&2).is_none());
}

#[test]
fn what_updates_return_outlives_them() {
    static TALLY: Tally = Tally::new();
    let map = filled(&TALLY);
    let pinned = map.pin();
    let first = pinned.insert(1, Tracked::new(1, &TALLY)).unwrap();
    let second = pinned.remove(&1).unwrap();
    assert_ne!(first.id(), second.id());
    let third = pinned.try_insert(1, Tracked::new(1, &TALLY)).map_err(|_| "occupied").unwrap();
    pinned.clear();
    [first, second, third].iter().for_each(|value| value.assert_of(1));
    assert!(pinned.try_insert(3, Tracked::new(3, &TALLY)).is_ok());
    let error = pinned.try_insert(3, Tracked::new(3, &TALLY)).err().expect("3 is there");
    pinned.remove(&3);
    error.current.assert_of(3);
    error.value.assert_of(3);
}

/// B8: boxed entries never move: neither when the map is resized, nor when others are updated.
#[test]
fn boxed_entries_stay_in_their_places() {
    static TALLY: Tally = Tally::new();
    if !<super::Form as relativist::Form>::BOXED {
        return;
    }
    let map = filled(&TALLY);
    let places = || -> Vec<usize> { (0..100).map(|n| std::ptr::from_ref(map.pin().get(&n).unwrap()).addr()).collect() };
    let before = places();
    for room in [5000, 0, 300] {
        map.shrink_to_fit().unwrap();
        map.reserve(room);
        (100..200).for_each(|n| assert!(map.pin().insert(n, Tracked::new(n, &TALLY)).is_none()));
        (100..200).for_each(|n| assert!(map.pin().remove(&n).is_some()));
        assert_eq!(places(), before);
    }
}

/// B3 in real time: when an update has returned, every lookup that begins finds it done, whatever
/// its key and thread.
#[test]
fn two_threads_that_insert_and_look_find_each_other() {
    let map: HashMap<u64, ()> = HashMap::with_capacity(2 * ROUNDS as usize);
    assert_meet(|own, other| {
        let pinned = map.pin();
        pinned.insert(own, ());
        pinned.contains_key(&other)
    });
}
