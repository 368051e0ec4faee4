//! Every key and every value is dropped exactly once, by its last owner.

use std::hash::{Hash, Hasher};

use relativist::Relocatable;
use relativist::read;

use super::{HashMap, reclaim};
use crate::tracked::{Tally, Tracked};

/// A key that is tracked, too.
struct Key(u64, Tracked);

// SAFETY: both fields are `Relocatable`.
unsafe impl Relocatable for Key {}

impl Key {
    fn new(n: u64, tally: &'static Tally) -> Self {
        Self(n, Tracked::new(n, tally))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.1.assert_of(self.0);
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

type Map = HashMap<Key, Tracked>;

fn insert(map: &Map, keys: std::ops::Range<u64>, tally: &'static Tally) {
    for n in keys {
        map.pin().insert(Key::new(n, tally), Tracked::new(n, tally));
    }
}

#[test]
fn whatever_happens_to_the_entry() {
    static TALLY: Tally = Tally::new();
    let map = Map::new();
    insert(&map, 0..100, &TALLY);
    reclaim(&map);
    TALLY.assert_live(200);
    insert(&map, 0..50, &TALLY); // replaced
    reclaim(&map);
    TALLY.assert_live(200);
    for n in 0..25 {
        assert!(map.pin().remove(&Key::new(n, &TALLY)).is_some());
        assert!(map.pin().try_insert(Key::new(n + 50, &TALLY), Tracked::new(n, &TALLY)).is_err());
    }
    reclaim(&map);
    TALLY.assert_live(150);
    map.pin().clear();
    reclaim(&map);
    TALLY.assert_live(0);
    insert(&map, 0..100, &TALLY);
    map.reserve(5000);
    map.shrink_to_fit().unwrap();
    reclaim(&map);
    TALLY.assert_live(200);
    drop(map);
    TALLY.assert_live(0);
}

/// Some buckets have moved to the next array, and others have not.
#[test]
fn when_the_map_goes_during_a_resize() {
    static TALLY: Tally = Tally::new();
    for round in 0..50 {
        let map = Map::new();
        insert(&map, 0..100 * round, &TALLY);
        let moved_on = map.capacity();
        (100 * round..)
            .take_while(|_| map.capacity() == moved_on)
            .take(900)
            .for_each(|n| insert(&map, n..n + 1, &TALLY));
        if round % 3 == 0 {
            map.pin().clear();
        }
    }
    TALLY.assert_live(0);
}

#[test]
fn when_the_map_goes_inside_a_read_section() {
    static TALLY: Tally = Tally::new();
    let map = Map::new();
    insert(&map, 0..100, &TALLY);
    let guard = read();
    assert!(map.pin().remove(&Key::new(7, &TALLY)).is_some());
    drop(map);
    drop(guard);
    TALLY.assert_live(0);
}

#[test]
fn when_the_map_goes_on_another_thread() {
    static TALLY: Tally = Tally::new();
    let map = Map::new();
    insert(&map, 0..100, &TALLY);
    std::thread::spawn(move || drop(map)).join().unwrap();
    TALLY.assert_live(0);
}

#[test]
fn when_the_map_is_consumed() {
    static TALLY: Tally = Tally::new();
    let map = Map::new();
    insert(&map, 0..100, &TALLY);
    let mut entries = map.into_iter();
    let taken: Vec<_> = entries.by_ref().take(40).collect();
    taken.iter().for_each(|(key, value)| value.assert_of(key.0));
    assert_eq!(entries.size_hint().0, 60);
    TALLY.assert_live(200);
    drop(entries);
    TALLY.assert_live(80);
    drop(taken);
    TALLY.assert_live(0);
}

/// Entries that are moved out belong to the caller at once, also inside a read section.
#[test]
fn when_the_map_is_consumed_inside_a_read_section() {
    static TALLY: Tally = Tally::new();
    let map = Map::new();
    insert(&map, 0..100, &TALLY);
    let guard = read();
    map.into_iter().for_each(|(key, value)| value.assert_of(key.0));
    drop(guard);
    TALLY.assert_live(0);
}

#[test]
fn when_entries_are_removed_in_bulk() {
    static TALLY: Tally = Tally::new();
    let map = Map::new();
    insert(&map, 0..100, &TALLY);
    map.pin().retain(|key, _| key.0 < 80);
    reclaim(&map);
    TALLY.assert_live(160);
    assert_eq!(map.pin().extract_if(|_, _| true).take(10).count(), 10);
    reclaim(&map);
    TALLY.assert_live(140);
    map.pin().drain().take(10).for_each(|(key, value)| value.assert_of(key.0));
    reclaim(&map);
    TALLY.assert_live(0);
}

/// Operations drop values that they do not insert, and keys that they replace.
#[test]
fn when_an_operation_changes_nothing_or_much() {
    static TALLY: Tally = Tally::new();
    let map = Map::new();
    let (key, value) = (|n| Key::new(n, &TALLY), |n| Tracked::new(n, &TALLY));
    for n in [1, 1] {
        map.pin().get_or_insert(key(n), value(n));
        map.pin().get_or_insert_with(key(n), || value(n));
        map.pin().update(key(n), |_| value(n)).unwrap().assert_of(n);
        map.pin().update_or_insert(key(n), |_| value(n), value(n));
        map.pin().update_or_insert(key(n + 1), |_| value(n + 1), value(n + 1));
        assert!(map.pin().update(key(9), |_| value(9)).is_none());
        assert!(map.pin().try_compute(key(n), |_| Ok::<_, ()>(Some(value(n)))).is_ok());
        assert!(map.pin().try_compute(key(n), |_| Err::<Option<Tracked>, _>(value(n))).is_err());
        reclaim(&map);
        TALLY.assert_live(4);
    }
    assert!(map.pin().remove_entry(&key(1)).is_some());
    assert!(map.pin().remove_if(&key(2), |_, _| true).is_some());
    reclaim(&map);
    TALLY.assert_live(0);
}
