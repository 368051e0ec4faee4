//! K1 to K7: moves of entries to other keys, also those that fail, alone and during lookups. (The
//! numbers are those of `key_move`.)

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use foldhash::fast::FixedState;
use relativist_papers::tables::Table;
use relativist_papers::tables::key_move::{KeyMove, MoveError};
use relativist_rcu::{barrier, read};

use relativist_testing::random::Random;

use crate::stress::{resizes, rounds};

/// K1, K4, K6: compares the table with std's map. A key of the model has its value and the value's
/// address, which a move takes along.
#[test]
fn a_move_is_a_removal_and_an_insertion_of_the_same_entry() {
    for buckets in [1, 2, 16] {
        let table = KeyMove::<FixedState>::new(buckets);
        let found = |key| table.find(key, &read()).map(|value| (*value, std::ptr::from_ref(value)));
        let mut model = HashMap::new();
        let mut random = Random::new(11);
        for round in 0..5000 {
            let (key, other) = (random.below(40), random.below(40));
            match random.below(4) {
                0 if table.insert(key, round) => drop(model.insert(key, found(key).unwrap())),
                0 => assert!(model.contains_key(&key)),
                1 => assert_eq!(table.remove(key), model.remove(&key).is_some()),
                _ => {
                    let expected = match (model.contains_key(&key), model.contains_key(&other)) {
                        (false, _) => Err(MoveError::NotFound),
                        (true, true) => Err(MoveError::Taken),
                        (true, false) => Ok(()),
                    };
                    assert_eq!(table.move_key(key, other), expected, "{key} to {other}");
                    if expected.is_ok() {
                        let entry = model.remove(&key).unwrap();
                        model.insert(other, entry);
                    }
                }
            }
            assert!((0..40).all(|key| found(key) == model.get(&key).copied()), "{buckets} buckets, round {round}");
        }
    }
}

/// K6.
#[test]
fn a_move_that_fails_changes_nothing() {
    let table = KeyMove::<FixedState>::new(2);
    assert!(table.insert(1, 10) && table.insert(2, 20));
    for (old, new, error) in [
        (3, 4, MoveError::NotFound),
        (3, 1, MoveError::NotFound),
        (3, 3, MoveError::NotFound),
        (1, 2, MoveError::Taken),
        (1, 1, MoveError::Taken),
    ] {
        assert_eq!(table.move_key(old, new), Err(error), "{old} to {new}");
        assert_eq!([1, 2, 3, 4].map(|key| table.get(key)), [Some(10), Some(20), None, None]);
    }
    assert_eq!(MoveError::Taken.to_string(), "the new key is in the table");
    assert_eq!(MoveError::NotFound.to_string(), "the old key is not in the table");
}

#[test]
fn updates_inside_a_read_section_panic() {
    let table = KeyMove::<FixedState>::new(2);
    assert!(table.insert(1, 10));
    let updates: [&dyn Fn(); 3] = [&|| assert!(!table.insert(1, 20)), &|| assert!(!table.remove(1)), &|| {
        assert_eq!(table.move_key(1, 2), Err(MoveError::NotFound))
    }];
    let guard = read();
    for update in updates {
        let panic = catch_unwind(AssertUnwindSafe(update)).unwrap_err();
        assert!(panic.downcast_ref::<&str>().is_some_and(|message| message.contains("inside a read section")));
    }
    assert_eq!(table.find(1, &guard), Some(&10));
    drop(guard);
    assert_eq!(table.move_key(1, 2), Ok(()));
    assert_eq!((table.get(1), table.get(2)), (None, Some(10)));
}

/// A value that must be dropped once, and not while a reader has a reference to it.
#[derive(Debug)]
struct Counted {
    key: u64,
    is_alive: AtomicBool,
    alive: &'static AtomicU64,
}

impl Counted {
    fn new(key: u64, alive: &'static AtomicU64) -> Self {
        alive.fetch_add(1, Relaxed);
        Self { key, is_alive: true.into(), alive }
    }

    fn assert_is(&self, key: u64) {
        assert!(self.is_alive.load(Relaxed), "the value of {key} was dropped");
        assert_eq!(self.key, key);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // A panic in a destructor that was deferred would not fail the test.
        if self.is_alive.swap(false, Relaxed) {
            self.alive.fetch_sub(1, Relaxed);
        } else {
            std::process::abort();
        }
    }
}

/// K7.
#[test]
fn values_are_dropped_once() {
    static ALIVE: AtomicU64 = AtomicU64::new(0);
    let table = KeyMove::<FixedState, Counted>::new(4);
    let assert_alive = |expected| {
        barrier();
        assert_eq!(ALIVE.load(Relaxed), expected);
    };
    (0..20).for_each(|key| assert!(table.insert(key, Counted::new(key, &ALIVE))));
    assert!(!table.insert(7, Counted::new(7, &ALIVE)), "it is present");
    assert_alive(20);
    (0..10).for_each(|key| assert_eq!(table.move_key(key, key + 100), Ok(())));
    assert_alive(20);
    (0..5).for_each(|key| assert!(table.remove(key + 100) && !table.remove(key)));
    assert_alive(15);
    drop(table);
    assert_alive(0);
}

/// Keys below this are there from the beginning to the end.
const RESIDENTS: u64 = 100;
/// Each mover moves its entries back and forth between two keys.
const MOVED: u64 = 20;
const MOVERS: u64 = 2;

/// Returns the two keys of a moved entry. Its value has the first.
fn names(entry: u64) -> [u64; 2] {
    [RESIDENTS + entry, 2 * RESIDENTS + entry]
}

/// K1 to K4, K7: readers look for entries that are moved, for residents, and for an entry that is
/// inserted and removed again.
#[test]
fn a_moved_entry_is_found_under_one_of_its_keys() {
    static ALIVE: AtomicU64 = AtomicU64::new(0);
    const PASSING: u64 = 3 * RESIDENTS;
    let table = KeyMove::<FixedState, Counted>::new(16);
    let insert = |key| assert!(table.insert(key, Counted::new(key, &ALIVE)));
    (0..RESIDENTS).for_each(insert);
    (0..MOVED * MOVERS).for_each(|entry| insert(names(entry)[0]));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (table, done) = (&table, &done);
            scope.spawn(move || look_up(table, done, Random::new(3 + seed)));
        }
        scope.spawn(|| {
            for _ in rounds(&done) {
                insert(PASSING);
                assert!(table.remove(PASSING));
            }
        });
        let movers: Vec<_> = (0..MOVERS)
            .map(|mover| {
                let table = &table;
                scope.spawn(move || move_back_and_forth(table, mover))
            })
            .collect();
        let results: Vec<_> = movers.into_iter().map(|mover| mover.join()).collect();
        // Relaxed: a signal only.
        done.store(true, Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    let guard = read();
    (0..RESIDENTS).for_each(|key| table.find(key, &guard).unwrap().assert_is(key));
    for [one, other] in (0..MOVED * MOVERS).map(names) {
        assert!(table.find(one, &guard).is_some() != table.find(other, &guard).is_some(), "{one}");
    }
    drop((guard, table));
    barrier();
    assert_eq!(ALIVE.load(Relaxed), 0);
}

fn move_back_and_forth(table: &KeyMove<FixedState, Counted>, mover: u64) {
    let mut random = Random::new(5 + mover);
    for _ in 0..10 * resizes() {
        let [one, other] = names(mover * MOVED + random.below(MOVED));
        assert_eq!(table.move_key(one, other).or_else(|_| table.move_key(other, one)), Ok(()), "{one}, {other}");
    }
}

fn look_up(table: &KeyMove<FixedState, Counted>, done: &AtomicBool, mut random: Random) {
    for _ in rounds(done) {
        let [one, other] = names(random.below(MOVED * MOVERS));
        let guard = read();
        let found = [one, other, one].map(|key| table.find(key, &guard));
        found.iter().flatten().for_each(|value| value.assert_is(one));
        assert!(found.iter().any(Option::is_some), "K1: {one} and {other} were not found");
        assert!(found.iter().any(Option::is_none), "K2: {one} and {other} were found");
        let mut values = found.iter().flatten();
        let first = values.next().unwrap();
        assert!(values.all(|value| std::ptr::eq(*value, *first)), "K4: {one} has moved in memory");
        let resident = random.below(RESIDENTS);
        table.find(resident, &guard).expect("K3: a resident").assert_is(resident);
    }
}
