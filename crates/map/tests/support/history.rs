//! What threads did to a map and what came of it, and whether that can be explained by the operations having taken effect one
//! after the other, each at some moment between its call and its return.
//!
//! The search is that of Wing and Gong ("Testing and Verifying Concurrent Objects", JPDC 1993), which remembers the states that
//! led nowhere (Lowe, "Testing for Linearizability", 2017). Keys that no operation connects are looked at one by one.
//!
//! Another operation of the map takes a line in each of [`Operation`], [`Operation::keys`] if it has more than one key,
//! [`Operation::apply`], and [`Recorder::operate`].

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use relativist::HashMap;

use crate::random::Random;

/// Keys are below this.
pub const KEYS: usize = 3;

type Value = Option<u64>;

/// What was done, and what was returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Get { key: u64, found: Value },
    Insert { key: u64, value: u64, replaced: Value },
    TryInsert { key: u64, value: u64, current: Value },
    Remove { key: u64, removed: Value },
}

impl Operation {
    fn keys(self) -> impl Iterator<Item = u64> {
        let (Self::Get { key, .. } | Self::Insert { key, .. } | Self::TryInsert { key, .. } | Self::Remove { key, .. }) =
            self;
        std::iter::once(key)
    }

    /// Does to `map` what the operation does, and says whether it would have returned what it did.
    fn apply(self, map: &mut [Value; KEYS]) -> bool {
        match self {
            Self::Get { key, found } => map[key as usize] == found,
            Self::Insert { key, value, replaced } => map[key as usize].replace(value) == replaced,
            Self::TryInsert { key, value, current } => {
                let before = map[key as usize];
                map[key as usize] = before.or(Some(value));
                before == current
            }
            Self::Remove { key, removed } => map[key as usize].take() == removed,
        }
    }
}

/// An operation, and the times of its call and its return.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    pub call: u64,
    pub end: u64,
    pub operation: Operation,
}

/// What histories are recorded of.
pub trait Table {
    fn get(&self, key: u64) -> Value;
    fn insert(&self, key: u64, value: u64) -> Value;
    /// The value that was in the way.
    fn try_insert(&self, key: u64, value: u64) -> Value;
    fn remove(&self, key: u64) -> Value;
}

impl<S: BuildHasher> Table for &HashMap<u64, u64, S> {
    fn get(&self, key: u64) -> Value {
        self.pin().get(&key).copied()
    }

    fn insert(&self, key: u64, value: u64) -> Value {
        self.pin().insert(key, value).copied()
    }

    fn try_insert(&self, key: u64, value: u64) -> Value {
        self.pin().try_insert(key, value).err().map(|error| *error.current)
    }

    fn remove(&self, key: u64) -> Value {
        self.pin().remove(&key).copied()
    }
}

/// Writes down what threads do, in the order of one clock for all, which also makes values that differ.
#[derive(Default)]
pub struct Recorder {
    clock: AtomicU64,
}

impl Recorder {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    /// Does one of the operations to one of the keys.
    fn operate(&self, table: &impl Table, key: u64, choice: u64, value: u64) -> Operation {
        match choice {
            0..5 => Operation::Get { key, found: table.get(key) },
            5..7 => Operation::Insert { key, value, replaced: table.insert(key, value) },
            7 => Operation::TryInsert { key, value, current: table.try_insert(key, value) },
            _ => Operation::Remove { key, removed: table.remove(key) },
        }
    }

    /// Does so many operations at random, and returns the history of the calling thread.
    pub fn record(&self, table: &impl Table, operations: usize, seed: u64) -> Vec<Event> {
        let mut random = Random::new(seed);
        let mut record = || {
            let (key, choice, value) = (random.below(KEYS as u64), random.below(10), self.now());
            let call = self.now();
            let operation = self.operate(table, key, choice, value);
            Event { call, end: self.now(), operation }
        };
        (0..operations).map(|_| record()).collect()
    }
}

/// How far the search has come: how many operations of each thread have taken effect, and to what end.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    done: Vec<usize>,
    map: [Value; KEYS],
}

impl State {
    /// The states that one more operation may lead to.
    fn successors(&self, threads: &[Vec<Event>]) -> Vec<State> {
        let next = || self.done.iter().zip(threads).map(|(&done, events)| events.get(done));
        // Nobody takes effect after another one has returned that has not yet taken effect.
        let first_end = next().flatten().map(|event| event.end).min().unwrap_or(0);
        let mut successors = Vec::new();
        for (thread, event) in next().enumerate() {
            let Some(event) = event.filter(|event| event.call <= first_end) else { continue };
            let mut state = self.clone();
            state.done[thread] += 1;
            if event.operation.apply(&mut state.map) {
                successors.push(state);
            }
        }
        successors
    }

    fn is_final(&self, threads: &[Vec<Event>]) -> bool {
        self.done.iter().zip(threads).all(|(&done, events)| done == events.len())
    }
}

/// Whether the history of a map that was empty at first, thread by thread, is linearizable; if not, the part of it that isn't.
pub fn check(threads: &[Vec<Event>]) -> Result<(), Vec<Vec<Event>>> {
    for keys in connected(threads) {
        let touches = |event: &&Event| event.operation.keys().any(|key| keys[key as usize]);
        let part: Vec<Vec<Event>> =
            threads.iter().map(|events| events.iter().filter(touches).copied().collect()).collect();
        if !is_linearizable(&part) {
            return Err(part);
        }
    }
    Ok(())
}

/// The sets of keys that no operation connects.
fn connected(threads: &[Vec<Event>]) -> Vec<[bool; KEYS]> {
    let mut sets: Vec<[bool; KEYS]> = (0..KEYS).map(|key| std::array::from_fn(|other| other == key)).collect();
    for event in threads.iter().flatten() {
        let (ours, mut others): (Vec<_>, Vec<_>) =
            sets.into_iter().partition(|set| event.operation.keys().any(|key| set[key as usize]));
        others.push(std::array::from_fn(|key| ours.iter().any(|set| set[key])));
        sets = others;
    }
    sets
}

fn is_linearizable(threads: &[Vec<Event>]) -> bool {
    let start = State { done: vec![0; threads.len()], map: [None; KEYS] };
    let mut seen = HashSet::new();
    let mut open = vec![start];
    while let Some(state) = open.pop() {
        if state.is_final(threads) {
            return true;
        }
        for successor in state.successors(threads) {
            if seen.insert(successor.clone()) {
                open.push(successor);
            }
        }
    }
    false
}
