//! Histories of calls of several threads on a map, and a checker of linearizability: whether the
//! results can be explained by calls that take effect one after the other, each at some instant
//! between its beginning and its end.
//!
//! The search is that of Wing and Gong ("Testing and Verifying Concurrent Objects", JPDC 1993),
//! which remembers the states that led nowhere (Lowe, "Testing for Linearizability", 2017).
//!
//! Another operation takes a line in [`Call`], one in [`Call::random`], one in `perform`, and one
//! in [`Call::apply`].

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use relativist::lock_map::{self, Entry};
use relativist::{Map, Stores};
use relativist_testing::random::Random;

/// Keys are below this, and below the number that the [`Recorder`] was given.
pub const KEYS: usize = 8;

/// The value of a key, if it has one.
pub type Value = Option<u64>;

/// A call on a map. Each value is written once, so it identifies its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Get(u64),
    Insert(u64, u64),
    TryInsert(u64, u64),
    GetOrInsert(u64, u64),
    Update(u64, u64),
    /// Inserts or removes.
    Toggle(u64, u64),
    /// Key, the value that is expected, and the one that replaces it.
    CompareExchange(u64, u64, u64),
    Remove(u64),
    RemoveIfEven(u64),
    Clear,
}

use Call::{Clear, CompareExchange, Get, GetOrInsert, Insert, Remove, RemoveIfEven, Toggle, TryInsert, Update};

impl Call {
    /// Returns a random call, with a value that was not used before. `hint` returns the value that
    /// the key had a moment ago.
    fn random(random: &mut Random, kinds: u64, keys: u64, value: u64, hint: impl FnOnce(u64) -> Value) -> Self {
        let key = random.below(keys);
        match random.below(kinds) {
            0..14 => Get(key),
            14..20 => Insert(key, value),
            20..23 => TryInsert(key, value),
            23..25 => GetOrInsert(key, value),
            25..28 => Update(key, value),
            28..31 => Toggle(key, value),
            31..34 => CompareExchange(key, hint(key).unwrap_or(0), value),
            34..37 => Remove(key),
            37..39 => RemoveIfEven(key),
            _ => Clear,
        }
    }

    /// Performs the call on the values of all keys, and returns its result.
    fn apply(self, values: &mut [Value; KEYS]) -> Value {
        let slot = match self {
            Clear => {
                *values = Default::default();
                return None;
            }
            Get(key) | Remove(key) | RemoveIfEven(key) | Insert(key, _) | TryInsert(key, _) => key,
            GetOrInsert(key, _) | Update(key, _) | Toggle(key, _) | CompareExchange(key, ..) => key,
        };
        let slot = &mut values[slot as usize];
        match self {
            Clear => unreachable!(),
            Get(_) => *slot,
            Insert(_, value) => slot.replace(value),
            TryInsert(_, value) => std::mem::replace(slot, slot.or(Some(value))),
            GetOrInsert(_, value) => Some(*slot.get_or_insert(value)),
            Update(_, value) => std::mem::replace(slot, slot.map(|_| value)),
            Toggle(_, value) => std::mem::replace(slot, slot.is_none().then_some(value)),
            CompareExchange(_, expected, value) => {
                std::mem::replace(slot, if *slot == Some(expected) { Some(value) } else { *slot })
            }
            Remove(_) => slot.take(),
            RemoveIfEven(_) => slot.take_if(|value| *value % 2 == 0),
        }
    }
}

/// An object whose history can be recorded.
pub trait Table {
    fn perform(&self, call: Call) -> Value;
}

impl<S: BuildHasher, F: Stores<u64, u64>> Table for &Map<u64, u64, S, F> {
    fn perform(&self, call: Call) -> Value {
        let pinned = self.pin();
        let mut seen = None;
        match call {
            Get(key) => pinned.get(&key).copied(),
            Insert(key, value) => pinned.insert(key, value).copied(),
            TryInsert(key, value) => pinned.try_insert(key, value).err().map(|error| *error.current),
            GetOrInsert(key, value) => Some(*pinned.get_or_insert(key, value)),
            Update(key, value) => pinned.update(key, |&old| (seen = Some(old), value).1).and(seen),
            Toggle(key, value) => {
                let toggle = |current: Option<&u64>| {
                    seen = current.copied();
                    Ok::<_, ()>(seen.is_none().then_some(value))
                };
                let _ = pinned.try_compute(key, toggle);
                seen
            }
            CompareExchange(key, expected, value) => match pinned.compare_exchange(key, &expected, value) {
                Ok(_) => Some(expected),
                Err(error) => error.current.copied(),
            },
            Remove(key) => pinned.remove(&key).copied(),
            RemoveIfEven(key) => pinned.remove_if(&key, |_, value| value % 2 == 0).map(|(_, &value)| value),
            Clear => {
                pinned.clear();
                None
            }
        }
    }
}

impl<S: BuildHasher, F: lock_map::Stores<u64, u64>> Table for &lock_map::Map<u64, u64, S, F> {
    fn perform(&self, call: Call) -> Value {
        match call {
            Get(key) => self.get_copied(&key),
            Insert(key, value) => self.insert(key, value),
            TryInsert(key, value) => match self.entry(key) {
                Entry::Occupied(entry) => Some(*entry.get()),
                Entry::Vacant(entry) => {
                    entry.insert(value);
                    None
                }
            },
            GetOrInsert(key, value) => Some(*self.entry(key).or_insert(value)),
            Update(key, value) => self.lock(&key).map(|mut current| std::mem::replace(&mut *current, value)),
            Toggle(key, value) => match self.entry(key) {
                Entry::Occupied(entry) => Some(entry.remove()),
                Entry::Vacant(entry) => {
                    entry.insert(value);
                    None
                }
            },
            CompareExchange(key, expected, value) => self.lock(&key).map(|mut current| {
                let found = *current;
                if found == expected {
                    *current = value;
                }
                found
            }),
            Remove(key) => self.remove(&key),
            RemoveIfEven(key) => self.remove_if(&key, |_, value| *value % 2 == 0),
            Clear => unreachable!("it is not one step"),
        }
    }
}

/// A call, what it returned, and when it began and ended.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    pub begin: u64,
    pub end: u64,
    pub call: Call,
    pub result: Value,
}

/// Records the calls of threads. One clock orders all calls, and also supplies values that are
/// unique.
pub struct Recorder {
    clock: AtomicU64,
    keys: u64,
    /// Below which number a random one chooses the call.
    kinds: u64,
}

impl Recorder {
    /// Records calls on this number of keys.
    pub fn new(keys: usize) -> Self {
        assert!(keys <= KEYS);
        Self { clock: AtomicU64::new(0), keys: keys as u64, kinds: 40 }
    }

    /// Records calls other than [`Clear`], for maps that do not clear in one step.
    pub fn without_clear(keys: usize) -> Self {
        Self { kinds: 39, ..Self::new(keys) }
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    /// Makes this number of calls at random, and returns the history of the calling thread.
    pub fn record<T: Table>(&self, table: &T, calls: usize, seed: u64) -> Vec<Event> {
        let mut random = Random::new(seed);
        let mut record = || {
            let call = Call::random(&mut random, self.kinds, self.keys, self.now(), |key| table.perform(Get(key)));
            let begin = self.now();
            let result = table.perform(call);
            Event { begin, end: self.now(), call, result }
        };
        (0..calls).map(|_| record()).collect()
    }
}

/// A state of the search: how many calls of each thread have taken effect, and the values of keys
/// after them.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    done: Vec<usize>,
    values: [Value; KEYS],
}

impl State {
    /// Returns the states to which one more call may lead.
    fn successors(&self, threads: &[Vec<Event>]) -> Vec<State> {
        let next = || self.done.iter().zip(threads).map(|(&done, events)| events.get(done));
        // A call cannot take effect after the end of another one that has not taken effect yet.
        let first_end = next().flatten().map(|event| event.end).min().unwrap_or(0);
        let mut successors = Vec::new();
        for (thread, event) in next().enumerate() {
            let Some(event) = event.filter(|event| event.begin <= first_end) else { continue };
            let mut state = self.clone();
            state.done[thread] += 1;
            if event.call.apply(&mut state.values) == event.result {
                successors.push(state);
            }
        }
        successors
    }

    fn is_final(&self, threads: &[Vec<Event>]) -> bool {
        self.done.iter().zip(threads).all(|(&done, events)| done == events.len())
    }
}

/// Returns whether a history is linearizable. The map was empty at first; `threads` has the events
/// of each thread.
pub fn is_linearizable(threads: &[Vec<Event>]) -> bool {
    let start = State { done: vec![0; threads.len()], values: Default::default() };
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
