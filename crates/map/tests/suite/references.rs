//! T8: what was found stays valid and unchanged as long as the guard.

use std::hash::RandomState;
use std::thread;

use relativist::read;

use crate::tested::{HashMap, manual};
use crate::tracked::{Tally, Tracked};

pub fn filled(tally: &'static Tally) -> HashMap<u64, Tracked> {
    let map = manual::<u64, Tracked, _>(RandomState::new());
    (&map).extend((0..100).map(|n| (n, Tracked::new(n, tally))));
    map
}

#[test]
fn outlives_removal_and_replacement() {
    static TALLY: Tally = Tally::new();
    let map = filled(&TALLY);
    let guard = read();
    let removed = map.get(&1, &guard).unwrap();
    let replaced = map.get(&2, &guard).unwrap();
    let id = replaced.id();
    thread::scope(|scope| {
        scope.spawn(|| {
            map.pin().remove(&1).unwrap().assert_of(1);
            map.pin().insert(2, Tracked::new(2, &TALLY)).unwrap().assert_of(2);
            map.pin().clear();
        });
    });
    // A generous amount of work that would reuse memory freed too early.
    (200..5000).for_each(|n| assert!(map.insert(n, Tracked::new(n, &TALLY), &guard).is_none()));
    removed.assert_of(1);
    replaced.assert_of(2);
    assert_eq!(replaced.id(), id);
    assert!(map.get(&2, &guard).is_none());
}

#[test]
fn what_updates_return_outlives_them() {
    static TALLY: Tally = Tally::new();
    let map = filled(&TALLY);
    let guard = read();
    let first = map.insert(1, Tracked::new(1, &TALLY), &guard).unwrap();
    let second = map.remove(&1, &guard).unwrap();
    assert_ne!(first.id(), second.id());
    let third = map.try_insert(1, Tracked::new(1, &TALLY), &guard).map_err(|_| "occupied").unwrap();
    map.clear(&guard);
    [first, second, third].iter().for_each(|value| value.assert_of(1));
    assert!(map.try_insert(3, Tracked::new(3, &TALLY), &guard).is_ok());
    let error = map.try_insert(3, Tracked::new(3, &TALLY), &guard).err().expect("3 is there");
    map.remove(&3, &guard);
    error.current.assert_of(3);
    error.value.assert_of(3);
}
