//! T3: operations on a key are linearizable, while the table is resized under them.

use std::array::from_fn;
use std::mem::take;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use relativist::{HashMap, Resizing};

use crate::beside::beside;
use crate::hashing::{Hashing, IDENTITY};
use crate::histories::{Event, Operation, is_linearizable};
use crate::random::Random;

const KEYS: usize = 3;
const THREADS: usize = 4;
const OPERATIONS: usize = 300;
const ROUNDS: u64 = 25;

type Map = HashMap<u64, u64, Hashing>;
type Histories = [Vec<Event>; KEYS];

/// Tells the order of calls and returns, and makes values that differ.
struct Clock(AtomicU64);

impl Clock {
    fn now(&self) -> u64 {
        self.0.fetch_add(1, SeqCst)
    }
}

fn operate(map: &Map, key: u64, choice: u64, clock: &Clock) -> Event {
    let pinned = map.pin();
    let value = clock.now();
    let call = clock.now();
    let operation = match choice {
        0..5 => Operation::Get { found: pinned.get(&key).copied() },
        5..7 => Operation::Insert { value, replaced: pinned.insert(key, value).copied() },
        7 => Operation::TryInsert { value, current: pinned.try_insert(key, value).err().map(|error| *error.current) },
        _ => Operation::Remove { removed: pinned.remove(&key).copied() },
    };
    Event { call, end: clock.now(), operation }
}

/// What one thread does to the keys, and what comes of it.
fn histories(map: &Map, seed: u64, clock: &Clock) -> Histories {
    let mut random = Random::new(seed);
    let mut histories = Histories::default();
    for _ in 0..OPERATIONS {
        let key = random.below(KEYS as u64);
        histories[key as usize].push(operate(map, key, random.below(10), clock));
    }
    histories
}

fn check_rounds(hashing: Hashing) {
    let map = HashMap::<u64, u64>::builder().resizing(Resizing::Manual).hasher(hashing).build().unwrap();
    let mut random = Random::new(0);
    let resize = || map.resize_to(2 << random.below(6)).unwrap();
    let history = beside(resize, || (0..ROUNDS).find_map(|round| check_round(&map, round).err()));
    assert!(history.is_none(), "T3: not linearizable: {history:#?}");
    let stats = map.stats();
    assert!(stats.grows > 0 && stats.shrinks > 0);
}

/// Gives back the history of a key that has none that explains it.
fn check_round(map: &Map, round: u64) -> Result<(), [Vec<Event>; THREADS]> {
    map.pin().clear();
    let clock = &Clock(AtomicU64::new(0));
    let together = &Barrier::new(THREADS);
    let mut threads: [Histories; THREADS] = thread::scope(|scope| {
        let threads: [_; THREADS] = from_fn(|thread| {
            scope.spawn(move || {
                together.wait();
                histories(map, round << 8 | thread as u64, clock)
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    for key in 0..KEYS {
        let history = threads.each_mut().map(|keys| take(&mut keys[key]));
        if !is_linearizable(&history) {
            return Err(history);
        }
    }
    Ok(())
}

/// The mixed hashes of neighbours lie far apart: they share a bucket only while the table is small.
#[test]
fn keys_in_different_buckets() {
    check_rounds(IDENTITY);
}

#[test]
fn keys_with_the_same_hash() {
    check_rounds(Hashing(|_| 7));
}

/// The mixed hashes differ in the lowest bits only: the chain is never cut.
#[test]
fn keys_that_always_share_a_bucket() {
    // The inverse of the constant that hashes are mixed with.
    check_rounds(Hashing(|n| n.wrapping_mul(0xF1DE_83E1_9937_733D)));
}
