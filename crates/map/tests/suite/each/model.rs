//! Random sequences of operations, all that the map has, compared with what std's map does.

use std::borrow::Borrow;
use std::collections::HashMap as Model;
use std::hash::{Hash, Hasher};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use relativist::Relocatable;
use relativist::{Change, CompareExchangeError};

use super::HashMap;
use crate::hashing::{EQUAL, Hashing, IDENTITY, MIXED, TOGETHER};

/// Tags distinguish equal keys.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub id: u64,
    pub tag: u8,
}

// SAFETY: two numbers.
unsafe impl Relocatable for Key {}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl Borrow<u64> for Key {
    fn borrow(&self) -> &u64 {
        &self.id
    }
}

#[derive(Debug, Clone)]
enum Operation {
    Insert(Key, u32),
    TryInsert(Key, u32),
    GetOrInsert(Key, u32),
    GetOrInsertWith(Key, u32),
    Update(Key, u32),
    UpdateOrInsert(Key, u32),
    UpdateOrInsertWith(Key, u32),
    Compute(Key, Decision),
    CompareExchange(Key, u32, u32),
    Remove(u64),
    RemoveEntry(u64),
    RemoveIf(u64, u32),
    Get(u64),
    Extend(Vec<(Key, u32)>),
    ExtendCopies(Vec<(Key, u32)>),
    Retain(u32),
    ExtractIf(u32, usize),
    Drain(usize),
    Collect,
    Clone,
    Clear,
    Reserve(usize),
    ShrinkToFit,
}

/// What the closure given to `compute` does.
#[derive(Debug, Clone, Copy)]
enum Decision {
    Set(u32),
    Remove,
    Abort,
}

pub fn keys() -> impl Strategy<Value = Key> {
    (0..48u64, any::<u8>()).prop_map(|(id, tag)| Key { id, tag })
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    use Operation::*;
    // A small range, so that compared values are sometimes equal.
    let value = || 0..8u32;
    let id = || 0..48u64;
    let entry = || (keys(), value());
    let decision = prop_oneof![value().prop_map(Decision::Set), Just(Decision::Remove), Just(Decision::Abort)];
    let on_entries = prop_oneof![
        16 => entry().prop_map(|(key, value)| Insert(key, value)),
        6 => entry().prop_map(|(key, value)| TryInsert(key, value)),
        3 => entry().prop_map(|(key, value)| GetOrInsert(key, value)),
        3 => entry().prop_map(|(key, value)| GetOrInsertWith(key, value)),
        4 => entry().prop_map(|(key, value)| Update(key, value)),
        3 => entry().prop_map(|(key, value)| UpdateOrInsert(key, value)),
        3 => entry().prop_map(|(key, value)| UpdateOrInsertWith(key, value)),
        8 => (keys(), decision).prop_map(|(key, decision)| Compute(key, decision)),
        8 => (entry(), value()).prop_map(|((key, current), new)| CompareExchange(key, current, new)),
        8 => id().prop_map(Remove),
        3 => id().prop_map(RemoveEntry),
        4 => (id(), value()).prop_map(|(id, value)| RemoveIf(id, value)),
        6 => id().prop_map(Get),
    ];
    let on_all = prop_oneof![
        2 => vec(entry(), 0..20).prop_map(Extend),
        1 => vec(entry(), 0..20).prop_map(ExtendCopies),
        2 => (1..4u32).prop_map(Retain),
        2 => (1..4u32, 0..20usize).prop_map(|(modulus, most)| ExtractIf(modulus, most)),
        1 => (0..20usize).prop_map(Drain),
        1 => Just(Collect),
        1 => Just(Clone),
        1 => Just(Clear),
        4 => (0..1000usize).prop_map(Reserve),
        4 => Just(ShrinkToFit),
    ];
    vec(prop_oneof![4 => on_entries, 1 => on_all], 1..120)
}

/// The map and its model. In the model values carry the tag of their key.
struct Pair {
    map: HashMap<Key, u32, Hashing>,
    model: Model<u64, (u8, u32)>,
    hashing: Hashing,
}

impl Pair {
    fn new(capacity: usize, hashing: Hashing) -> Self {
        let map = HashMap::with_capacity_and_hasher(capacity, hashing);
        Self { map, model: Model::new(), hashing }
    }

    #[expect(clippy::too_many_lines, reason = "a few lines for each operation of the map")]
    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Insert(key, value) => self.insert(key, value),
            Operation::TryInsert(key, value) => self.try_insert(key, value),
            Operation::GetOrInsert(key, value) => {
                let &mut (_, expected) = self.model.entry(key.id).or_insert((key.tag, value));
                assert_eq!(self.map.pin().get_or_insert(key, value), &expected);
            }
            Operation::GetOrInsertWith(key, value) => self.get_or_insert_with(key, value),
            Operation::Update(key, by) => {
                let expected = self.model.get_mut(&key.id).map(|entry| {
                    *entry = (key.tag, entry.1 ^ by);
                    entry.1
                });
                assert_eq!(self.map.pin().update(key, |value| value ^ by).copied(), expected);
            }
            Operation::UpdateOrInsert(key, by) => {
                let expected = self.update_or_insert(key, by);
                assert_eq!(self.map.pin().update_or_insert(key, |value| value ^ by, 7), &expected);
            }
            Operation::UpdateOrInsertWith(key, by) => {
                let expected = self.update_or_insert(key, by);
                assert_eq!(self.map.pin().update_or_insert_with(key, |value| value ^ by, || 7), &expected);
            }
            Operation::Compute(key, decision) => self.compute(key, decision),
            Operation::CompareExchange(key, current, new) => self.compare_exchange(key, current, new),
            Operation::Remove(id) => {
                let expected = self.model.remove(&id).map(|(_, value)| value);
                assert_eq!(self.map.pin().remove(&id).copied(), expected);
            }
            Operation::RemoveEntry(id) => {
                let expected = self.model.remove(&id);
                assert_eq!(self.map.pin().remove_entry(&id).map(|(key, &value)| (key.tag, value)), expected);
            }
            Operation::RemoveIf(id, least) => {
                let expected = self.model.remove(&id);
                let (removed, kept) = (expected.filter(|&(_, value)| value >= least), expected);
                if let Some(kept) = kept.filter(|_| removed.is_none()) {
                    self.model.insert(id, kept);
                }
                let pinned = self.map.pin();
                let got = pinned.remove_if(&id, |key, &value| key.id == id && value >= least);
                assert_eq!(got.map(|(key, &value)| (key.tag, value)), removed);
            }
            Operation::Get(id) => self.assert_found(id),
            Operation::Extend(entries) => {
                self.model.extend(entries.iter().map(|&(key, value)| (key.id, (key.tag, value))));
                (&self.map).extend(entries);
            }
            Operation::ExtendCopies(entries) => {
                self.model.extend(entries.iter().map(|&(key, value)| (key.id, (key.tag, value))));
                self.map.extend(entries.iter().map(|(key, value)| (key, value)));
            }
            Operation::Retain(modulus) => {
                self.map.pin().retain(|key, value| (key.id as u32 + value) % modulus == 0);
                self.model.retain(|&id, (_, value)| (id as u32 + *value) % modulus == 0);
            }
            Operation::ExtractIf(modulus, most) => {
                let pinned = self.map.pin();
                for (key, &value) in pinned.extract_if(|key, _| key.id as u32 % modulus == 0).take(most) {
                    assert!(key.id as u32 % modulus == 0);
                    assert_eq!(self.model.remove(&key.id), Some((key.tag, value)));
                }
                let left = self.model.keys().filter(|&&id| id as u32 % modulus == 0).count();
                assert!(left == 0 || most < 48, "{left} were not extracted");
            }
            Operation::Drain(most) => {
                for (key, &value) in self.map.pin().drain().take(most) {
                    assert_eq!(self.model.remove(&key.id), Some((key.tag, value)));
                }
                self.model.clear();
            }
            Operation::Collect => {
                let map = std::mem::replace(&mut self.map, HashMap::with_hasher(self.hashing));
                self.map.extend(map);
            }
            Operation::Clone => {
                let clone = self.map.clone();
                assert!(clone == self.map);
                self.map = clone;
            }
            Operation::Clear => {
                self.map.pin().clear();
                self.model.clear();
            }
            Operation::Reserve(additional) => self.map.reserve(additional),
            Operation::ShrinkToFit => self.map.shrink_to_fit().unwrap(),
        }
    }

    fn get_or_insert_with(&mut self, key: Key, value: u32) {
        let expected = self.model.get(&key.id).map_or(value, |&(_, value)| value);
        let mut called = false;
        let pinned = self.map.pin();
        let got = pinned.get_or_insert_with(key, || {
            called = true;
            value
        });
        assert_eq!((*got, called), (expected, !self.model.contains_key(&key.id)));
        self.model.entry(key.id).or_insert((key.tag, value));
    }

    /// Performs the operation on the model, with 7 as the value to insert.
    fn update_or_insert(&mut self, key: Key, by: u32) -> u32 {
        let value = self.model.get(&key.id).map_or(7, |(_, value)| value ^ by);
        self.model.insert(key.id, (key.tag, value));
        value
    }

    fn compute(&mut self, key: Key, decision: Decision) {
        let old = self.model.get(&key.id).map(|&(_, value)| value);
        let pinned = self.map.pin();
        let got = pinned.try_compute(key, |current| {
            assert_eq!(current.copied(), old);
            match decision {
                Decision::Set(value) => Ok(Some(value)),
                Decision::Remove => Ok(None),
                Decision::Abort => Err(current),
            }
        });
        match decision {
            Decision::Set(new) => {
                self.model.insert(key.id, (key.tag, new));
                assert_eq!(got, Ok(Change { old: old.as_ref(), new: Some(&new) }));
            }
            Decision::Remove => {
                self.model.remove(&key.id);
                assert_eq!(got, Ok(Change { old: old.as_ref(), new: None }));
            }
            Decision::Abort => assert_eq!(got, Err(old.as_ref())),
        }
    }

    fn compare_exchange(&mut self, key: Key, current: u32, new: u32) {
        let old = self.model.get(&key.id).map(|&(_, value)| value);
        let pinned = self.map.pin();
        let got = pinned.compare_exchange(key, &current, new);
        if old == Some(current) {
            self.model.insert(key.id, (key.tag, new));
            assert_eq!(got, Ok(&current));
        } else {
            assert_eq!(got, Err(CompareExchangeError { current: old.as_ref(), new }));
        }
    }

    fn insert(&mut self, key: Key, value: u32) {
        let expected = self.model.insert(key.id, (key.tag, value)).map(|(_, value)| value);
        assert_eq!(self.map.pin().insert(key, value).copied(), expected);
    }

    fn try_insert(&mut self, key: Key, value: u32) {
        let pinned = self.map.pin();
        match (pinned.try_insert(key, value), self.model.get(&key.id)) {
            (Ok(&inserted), None) => assert_eq!(inserted, value),
            (Err(error), Some(&(_, current))) => assert_eq!((*error.current, error.value), (current, value)),
            (got, expected) => panic!("{got:?}, but the model has {expected:?}"),
        }
        self.model.entry(key.id).or_insert((key.tag, value));
    }

    fn assert_found(&self, id: u64) {
        let expected = self.model.get(&id).copied();
        let pinned = self.map.pin();
        assert_eq!(pinned.get_key_value(&id).map(|(key, &value)| (key.tag, value)), expected);
        assert_eq!(pinned.get(&id).copied(), expected.map(|(_, value)| value));
        assert_eq!(pinned.contains_key(&id), expected.is_some());
    }

    fn assert_equal(&self) {
        (0..48).for_each(|id| self.assert_found(id));
        let pinned = self.map.pin();
        let mut seen = Model::new();
        for (key, &value) in &pinned {
            assert!(seen.insert(key.id, (key.tag, value)).is_none(), "B7: {} was seen twice", key.id);
        }
        assert_eq!(seen, self.model);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        keys.extend(pinned.keys().map(|key| (key.id, key.tag)));
        values.extend(pinned.values());
        let pairs = keys.into_iter().zip(values);
        assert!(pairs.eq(pinned.iter().map(|(key, value)| ((key.id, key.tag), value))), "all in the same order");
        assert_eq!((self.map.len(), self.map.is_empty()), (self.model.len(), self.model.is_empty()));
    }
}

fn check(hashing: Hashing) {
    run(&(0..50usize, operations()), |(capacity, operations)| {
        let mut pair = Pair::new(capacity, hashing);
        for operation in operations {
            pair.apply(operation);
            pair.assert_equal();
        }
    });
}

/// Runs a test on random input, the same each time. `RELATIVIST_MODEL_CASES` sets the number of
/// inputs.
pub fn run<S: Strategy>(strategy: &S, test: impl Fn(S::Value)) {
    let cases = std::env::var("RELATIVIST_MODEL_CASES").map_or(60, |count| count.parse().expect("a number"));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let pass = |value| {
        test(value);
        Ok(())
    };
    runner.run(strategy, pass).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn with_a_good_hash() {
    check(MIXED);
}

#[test]
fn with_the_identity() {
    check(IDENTITY);
}

#[test]
fn with_all_hashes_equal() {
    check(EQUAL);
}

#[test]
fn with_few_hashes() {
    check(Hashing(|n| n % 5));
}

#[test]
fn with_one_bucket() {
    check(TOGETHER);
}

#[test]
fn with_only_high_bits() {
    check(Hashing(|n| n << 58));
}
