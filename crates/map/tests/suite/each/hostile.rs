//! B8, B9: incorrect safe code gets wrong answers at worst. With `Hash`, `Eq` and `Equivalent` that
//! lie, and with forgotten iterators, nothing is used after it was freed, and nothing is dropped
//! twice.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::mem::forget;
use std::thread;

use relativist::Equivalent;
use relativist::Relocatable;

use super::{HashMap, reclaim, resize};
use crate::hashing::{Hashing, IDENTITY};
use crate::tracked::{Tally, Tracked};
use relativist_testing::random::Random;

thread_local! {
    /// How often keys lie, in a thousand, and the seed of the next decision.
    static LIES: Cell<u64> = const { Cell::new(0) };
    static DICE: Cell<u64> = const { Cell::new(1) };
}

fn lies() -> bool {
    let mut random = Random::new(DICE.get());
    let roll = random.below(1000);
    DICE.set(random.below(u64::MAX));
    roll < LIES.get()
}

/// A key that sometimes has a wrong hash, and sometimes compares wrongly.
pub struct Liar {
    pub number: u64,
    tracked: Tracked,
}

// SAFETY: both fields are `Relocatable`.
unsafe impl Relocatable for Liar {}

impl Liar {
    pub fn new(number: u64, tally: &'static Tally) -> Self {
        Self { number, tracked: Tracked::new(number, tally) }
    }
}

impl Hash for Liar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(if lies() { self.number + 1 } else { self.number });
    }
}

impl PartialEq for Liar {
    fn eq(&self, other: &Self) -> bool {
        other.tracked.assert_of(other.number);
        (self.number == other.number) != lies()
    }
}

impl Eq for Liar {}

/// Equal to every key with its hash.
#[derive(Hash)]
pub struct Anything(pub u64);

impl Equivalent<Liar> for Anything {
    fn equivalent(&self, key: &Liar) -> bool {
        key.tracked.assert_of(key.number);
        lies()
    }
}

/// A value that may be cloned.
pub struct Value(u64, &'static Tally, Tracked);

// SAFETY: all fields are `Relocatable`.
unsafe impl Relocatable for Value {}

impl Value {
    pub fn new(number: u64, tally: &'static Tally) -> Self {
        Self(number, tally, Tracked::new(number, tally))
    }

    pub fn check(&self) -> u64 {
        self.2.assert_of(self.0);
        self.0
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        Self::new(self.check(), self.1)
    }
}

pub type Map = HashMap<Liar, Value, Hashing>;

fn check((key, value): (&Liar, &Value)) -> u64 {
    key.tracked.assert_of(key.number);
    value.check()
}

/// Does one operation, chosen at random. What it returns must be intact.
fn operate(map: &Map, random: &mut Random, tally: &'static Tally) {
    let n = random.below(64);
    let key = || Liar::new(n, tally);
    let value = || Value::new(n, tally);
    let pinned = map.pin();
    match random.below(21) {
        0 => _ = pinned.insert(key(), value()).map(Value::check),
        1 => _ = pinned.try_insert(key(), value()).map(Value::check).map_err(|error| error.current.check()),
        2 => _ = pinned.get_or_insert_with(key(), value).check(),
        3 => _ = pinned.update(key(), |old| Value::new(old.check(), tally)).map(Value::check),
        4 => _ = pinned.update_or_insert(key(), Value::clone, value()).check(),
        5 => {
            let decide = |old: Option<&Value>| Ok::<_, ()>(old.filter(|old| old.check() % 2 == 0).cloned());
            let change = pinned.try_compute(key(), decide).unwrap();
            let _ = (change.old.map(Value::check), change.new.map(Value::check));
        }
        6 | 7 => _ = pinned.remove_entry(&key()).map(check),
        8 => _ = pinned.remove_if(&Anything(n), |key, value| check((key, value)) > 7).map(check),
        9 => _ = pinned.get_many([&Anything(n), &Anything(n + 1)]).map(|value| value.map(Value::check)),
        10 => _ = pinned.keys().map(|key| key.tracked.assert_of(key.number)).count(),
        11 => _ = pinned.extract_if(|_, _| lies()).map(check).count(),
        12 => _ = pinned.iter().map(check).count(),
        13 if n == 0 => pinned.clear(),
        14 => {
            let keys = (n..n + 40).step_by(2);
            map.insert_many(keys.map(|n| (Liar::new(n, tally), Value::new(n, tally))));
        }
        15 | 16 => {
            drop(pinned);
            resize(map, random);
        }
        _ => _ = pinned.get_key_value(&key()).map(check),
    }
}

#[test]
fn keys_that_lie_are_dropped_once() {
    static TALLY: Tally = Tally::new();
    let map = Map::with_hasher(IDENTITY);
    thread::scope(|scope| {
        for seed in 1..=3 {
            let map = &map;
            scope.spawn(move || {
                LIES.set(100);
                DICE.set(seed);
                let mut random = Random::new(seed);
                (0..2000).for_each(|_| operate(map, &mut random, &TALLY));
            });
        }
    });
    // A key may be in the map several times now, and then an iteration may skip it. But the counts
    // are right.
    let len = map.len();
    let seen = map.pin().iter().map(check).count();
    assert!(0 < seen && seen <= len, "{seen} of {len}");
    reclaim(&map);
    TALLY.assert_live(2 * len as u64);
    let mut entries = map.into_iter();
    entries.by_ref().take(len / 2).for_each(|(key, value)| _ = check((&key, &value)));
    TALLY.assert_live(2 * (len - len / 2) as u64);
    drop(entries);
    TALLY.assert_live(0);
}

/// A key whose hash is 0 and the largest number in turn.
#[derive(PartialEq, Eq)]
struct Alternating;

// SAFETY: it has no bytes.
unsafe impl Relocatable for Alternating {}

thread_local! {
    static NEXT_HASH: Cell<u64> = const { Cell::new(0) };
}

impl Hash for Alternating {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(NEXT_HASH.replace(!NEXT_HASH.get()));
    }
}

/// Each entry is looked for in the bucket of the other one.
#[test]
fn draining_ends_although_hashes_alternate() {
    for next_hash in [0, u64::MAX] {
        let map: HashMap<_, _, _> = HashMap::with_hasher(IDENTITY);
        (0..2).for_each(|n| assert_eq!(map.pin().insert(Alternating, n), None));
        NEXT_HASH.set(next_hash);
        assert!(map.pin().drain().count() <= 2);
        NEXT_HASH.set(0);
    }
}

/// Nothing relies on their destructors, which do not run.
#[test]
fn forgotten_iterators_leave_the_rest() {
    static TALLY: Tally = Tally::new();
    let map: HashMap<u64, Tracked> = (0..100).map(|n| (n, Tracked::new(n, &TALLY))).collect();
    let pinned = map.pin();
    let mut drain = pinned.drain();
    let first: Vec<_> = drain.by_ref().take(10).collect();
    forget(drain);
    first.iter().for_each(|(key, value)| value.assert_of(**key));
    drop(pinned);
    assert_eq!((map.len(), map.pin().iter().count()), (90, 90));
    reclaim(&map);
    TALLY.assert_live(90);
    let mut entries = map.into_iter();
    assert_eq!(entries.by_ref().take(10).count(), 10);
    TALLY.assert_live(80);
    // Leaks what is left of the map.
    forget(entries);
    TALLY.assert_live(80);
}
