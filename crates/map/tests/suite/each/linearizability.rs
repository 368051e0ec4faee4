//! B3: operations on a key are linearizable, while the table is resized under them.

use std::array::from_fn;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use relativist_testing::random::Random;

use super::{HashMap, resize};
use crate::alongside::alongside;
use crate::hashing::{EQUAL, Hashing, IDENTITY, TOGETHER};
use crate::history::{Call, Event, KEYS, Recorder, Table, Value, is_linearizable};

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
/// faulty table that `table` builds on it. Returns the first history that is not linearizable.
fn search<'m, T: Table + Sync>(
    map: &'m Map,
    keys: usize,
    disturb: impl FnMut() + Send,
    table: impl Fn(&'m Map) -> T,
) -> Option<Vec<Vec<Event>>> {
    let rounds = || {
        (0..ROUNDS).find_map(|round| {
            map.pin().clear();
            let history = history(&table(map), keys, round);
            (!is_linearizable(&history)).then(|| history.to_vec())
        })
    };
    alongside(disturb, rounds)
}

/// Other keys come and go, and the map is resized by hand as well.
fn resize_at_random(map: &Map) -> impl FnMut() + Send {
    const OTHERS: std::ops::Range<u64> = 8..300;
    let mut random = Random::new(0);
    move || match random.below(4) {
        0 => {
            OTHERS.for_each(|key| _ = map.pin().insert(key, key));
            OTHERS.for_each(|key| _ = map.pin().remove(&key));
        }
        _ => resize(map, &mut random),
    }
}

fn assert_linearizable(keys: usize, hashing: Hashing) {
    let map = Map::with_hasher(hashing);
    let history = search(&map, keys, resize_at_random(&map), |map| map);
    assert!(history.is_none(), "B3: not linearizable: {history:#?}");
}

/// The mixed hashes of neighbours lie far apart: they share a bucket only while the table is small.
#[test]
fn keys_in_different_buckets() {
    assert_linearizable(FEW, IDENTITY);
}

#[test]
fn keys_with_the_same_hash() {
    assert_linearizable(FEW, EQUAL);
}

#[test]
fn keys_that_always_share_a_bucket() {
    assert_linearizable(FEW, TOGETHER);
}

/// They share buckets with others while the table is small: some are in later segments then.
#[test]
fn many_keys_in_different_buckets() {
    assert_linearizable(KEYS, IDENTITY);
}

#[test]
fn many_keys_with_the_same_hash() {
    assert_linearizable(KEYS, EQUAL);
}

#[test]
fn many_keys_that_always_share_a_bucket() {
    assert_linearizable(KEYS, TOGETHER);
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
    /// A clear is not atomic: it removes one key after the other.
    TornClear,
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
            Call::Clear if self.fault == Fault::TornClear => {
                (0..KEYS as u64).for_each(|key| {
                    self.map.pin().remove(&key);
                    thread::yield_now();
                });
                None
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
    for fault in [Fault::StaleRead, Fault::LostInsert, Fault::LostRemove, Fault::TornUpdate, Fault::TornClear] {
        let map = Map::with_hasher(IDENTITY);
        let faulty = |map| Faulty { map, fault, calls: AtomicU64::new(0), stale: Default::default() };
        assert!(search(&map, FEW, resize_at_random(&map), faulty).is_some(), "{fault:?} went unnoticed");
    }
}
