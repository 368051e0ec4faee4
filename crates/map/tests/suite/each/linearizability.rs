//! T3: operations on a key are linearizable, while the table is resized under them.

use std::array::from_fn;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use relativist_testing::wait_until;

use crate::alongside::alongside;
use crate::hashing::{Hashing, IDENTITY, UNMIXED};
use crate::history::{Call, Event, KEYS, Recorder, Table, Value, check};
use super::HashMap;
use relativist_testing::random::Random;

const THREADS: usize = 4;
const CALLS: usize = 300;
const ROUNDS: u64 = 25;

/// A number of keys that fit in one segment of a flat map.
const FEW: usize = 3;

type Map = HashMap<u64, u64, Hashing>;

/// Returns the history of several threads that use an empty table.
fn history(table: &(impl Table + Sync), keys: usize, round: u64) -> [Vec<Event>; THREADS] {
    let (recorder, together) = (&Recorder::new(keys), &Barrier::new(THREADS));
    thread::scope(|scope| {
        let threads: [_; THREADS] = from_fn(|thread| {
            scope.spawn(move || {
                together.wait();
                recorder.record(table, CALLS, round << 8 | thread as u64)
            })
        });
        threads.map(|thread| thread.join().unwrap())
    })
}

/// Records histories of a table while another thread repeats `disturb`. The table is the map, or a
/// faulty table that `table` builds on it. Returns the part that is not linearizable of the first
/// such history.
fn search<'m, T: Table + Sync>(
    map: &'m Map,
    keys: usize,
    disturb: impl FnMut() + Send,
    table: impl Fn(&'m Map) -> T,
) -> Option<Vec<Vec<Event>>> {
    let rounds = || {
        (0..ROUNDS).find_map(|round| {
            (0..KEYS as u64).for_each(|key| _ = map.pin().remove(&key));
            check(&history(&table(map), keys, round)).err()
        })
    };
    alongside(disturb, rounds)
}

fn resize_at_random(map: &Map) -> impl FnMut() + Send {
    let mut random = Random::new(0);
    move || map.resize_to(2 << random.below(6)).unwrap()
}

fn map(hashing: Hashing) -> Map {
    manual(hashing)
}

fn assert_linearizable_during(map: &Map, keys: usize, disturb: impl FnMut() + Send) {
    let part = search(map, keys, disturb, |map| map);
    assert!(part.is_none(), "T3: not linearizable: {part:#?}");
    let stats = map.stats();
    assert!(stats.grows > 0 && stats.shrinks > 0);
}

fn assert_linearizable(keys: usize, hashing: Hashing) {
    let map = map(hashing);
    assert_linearizable_during(&map, keys, resize_at_random(&map));
}

/// The mixed hashes of neighbours lie far apart: they share a bucket only while the table is small.
#[test]
fn keys_in_different_buckets() {
    assert_linearizable(FEW, IDENTITY);
}

#[test]
fn keys_with_the_same_hash() {
    assert_linearizable(FEW, Hashing(|_| 7));
}

/// The mixed hashes differ in the lowest bits only: the chain is never cut.
#[test]
fn keys_that_always_share_a_bucket() {
    assert_linearizable(FEW, UNMIXED);
}

/// They share buckets with each other while the table is small: in a flat map some of them are in
/// later segments then.
#[test]
fn many_keys_in_different_buckets() {
    assert_linearizable(KEYS, IDENTITY);
}

#[test]
fn many_keys_with_the_same_hash() {
    assert_linearizable(KEYS, Hashing(|_| 7));
}

/// In a flat map they have different tags.
#[test]
fn many_keys_that_always_share_a_bucket() {
    assert_linearizable(KEYS, Hashing(|n| (UNMIXED.0)(n << 20)));
}

/// Three threads resize the map at a time, and a reader stays for some of the time.
#[test]
fn keys_in_a_map_that_many_threads_resize() {
    let map = map(Hashing(|n| n / 3));
    let mut random = Random::new(1);
    let resize = || {
        thread::scope(|scope| {
            for bits in [0; 3].map(|_| random.below(6)) {
                let map = &map;
                scope.spawn(move || map.resize_to(2 << bits).unwrap());
            }
            let pinned = map.pin();
            thread::yield_now();
            (0..KEYS as u64).for_each(|key| _ = pinned.get(&key));
        });
    };
    assert_linearizable_during(&map, KEYS, resize);
}

/// Other keys come and go, so that the worker resizes the map.
#[test]
fn keys_in_an_automatic_map() {
    const OTHERS: std::ops::Range<u64> = 100..1100;
    let map: Map = HashMap::with_hasher(IDENTITY);
    let fill_and_empty = || {
        OTHERS.for_each(|key| _ = map.pin().insert(key, key));
        wait_until("the map to grow", || map.buckets() > 300);
        let grown = map.buckets();
        OTHERS.for_each(|key| _ = map.pin().remove(&key));
        wait_until("the map to shrink", || map.buckets() < grown);
    };
    assert_linearizable_during(&map, KEYS, fill_and_empty);
}

/// What a faulty table sometimes does wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// A lookup finds what was there before the last insertion.
    StaleRead,
    /// An insertion is not done.
    LostInsert,
    /// A removal is not done.
    LostRemove,
    /// An update is not atomic: it looks, and then inserts.
    TornUpdate,
}

struct Faulty<'m> {
    map: &'m Map,
    fault: Fault,
    calls: AtomicU64,
    stale: [AtomicU64; KEYS],
}

impl Faulty<'_> {
    fn is_time_for(&self, fault: Fault) -> bool {
        self.fault == fault && self.calls.fetch_add(1, Relaxed) % 8 == 7
    }
}

impl Table for Faulty<'_> {
    fn perform(&self, call: Call) -> Value {
        match call {
            Call::Get(key) if self.stale[key as usize].load(Relaxed) != 0 && self.is_time_for(Fault::StaleRead) => {
                Some(self.stale[key as usize].load(Relaxed))
            }
            Call::Insert(key, _) if self.is_time_for(Fault::LostInsert) => self.map.perform(Call::Get(key)),
            Call::Remove(key) if self.is_time_for(Fault::LostRemove) => self.map.perform(Call::Get(key)),
            Call::Update(key, value) if self.fault == Fault::TornUpdate => {
                let seen = self.map.perform(Call::Get(key));
                thread::yield_now();
                seen.and_then(|_| self.map.perform(Call::Insert(key, value))).and(seen)
            }
            Call::Insert(key, _) => {
                let replaced = self.map.perform(call);
                self.stale[key as usize].store(replaced.unwrap_or(0), Relaxed);
                replaced
            }
            _ => self.map.perform(call),
        }
    }
}

/// Shows that `search` finds the faults that it looks for.
#[test]
fn faulty_tables_are_caught() {
    for fault in [Fault::StaleRead, Fault::LostInsert, Fault::LostRemove, Fault::TornUpdate] {
        let map = map(IDENTITY);
        let faulty = |map| Faulty { map, fault, calls: AtomicU64::new(0), stale: Default::default() };
        assert!(search(&map, FEW, resize_at_random(&map), faulty).is_some(), "{fault:?} went unnoticed");
    }
}
