//! Random sequences of operations, compared with what std's map does.

use std::borrow::Borrow;
use std::collections::HashMap as Model;
use std::hash::{Hash, Hasher};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use relativist::{HashMap, Resizing};

use crate::hashing::{Hashing, IDENTITY, MIXED};

/// Equal keys can be told apart by their tags.
#[derive(Debug, Clone, Copy)]
struct Key {
    id: u64,
    tag: u8,
}

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
    Remove(u64),
    Get(u64),
    Extend(Vec<(Key, u32)>),
    Collect,
    Clear,
    ResizeTo(usize),
    Reserve(usize),
    ShrinkToFit,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let id = || 0..48u64;
    let key = || (id(), any::<u8>()).prop_map(|(id, tag)| Key { id, tag });
    vec(
        prop_oneof![
            20 => (key(), any::<u32>()).prop_map(|(key, value)| Operation::Insert(key, value)),
            8 => (key(), any::<u32>()).prop_map(|(key, value)| Operation::TryInsert(key, value)),
            12 => id().prop_map(Operation::Remove),
            8 => id().prop_map(Operation::Get),
            2 => vec((key(), any::<u32>()), 0..20).prop_map(Operation::Extend),
            1 => Just(Operation::Collect),
            1 => Just(Operation::Clear),
            6 => (0..300usize).prop_map(Operation::ResizeTo),
            1 => (0..300usize).prop_map(Operation::Reserve),
            2 => Just(Operation::ShrinkToFit),
        ],
        1..120,
    )
}

/// The map and its model. In the model values carry the tag of their key.
struct Pair {
    map: HashMap<Key, u32, Hashing>,
    model: Model<u64, (u8, u32)>,
    hashing: Hashing,
}

impl Pair {
    fn new(resizing: Resizing, hashing: Hashing) -> Self {
        let map = HashMap::<Key, u32>::builder().resizing(resizing).hasher(hashing).build().unwrap();
        Self { map, model: Model::new(), hashing }
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Insert(key, value) => self.insert(key, value),
            Operation::TryInsert(key, value) => self.try_insert(key, value),
            Operation::Remove(id) => {
                let expected = self.model.remove(&id).map(|(_, value)| value);
                assert_eq!(self.map.pin().remove(&id).copied(), expected);
            }
            Operation::Get(id) => self.assert_found(id),
            Operation::Extend(entries) => {
                self.model.extend(entries.iter().map(|&(key, value)| (key.id, (key.tag, value))));
                (&self.map).extend(entries);
            }
            Operation::Collect => {
                let entries: Vec<_> = self.map.pin().iter().map(|(&key, &value)| (key, value)).collect();
                self.map = HashMap::with_hasher(self.hashing);
                self.map.extend(entries);
            }
            Operation::Clear => {
                self.map.pin().clear();
                self.model.clear();
            }
            Operation::ResizeTo(buckets) => self.map.resize_to(buckets).unwrap(),
            Operation::Reserve(additional) => self.map.reserve(additional),
            Operation::ShrinkToFit => self.map.shrink_to_fit().unwrap(),
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
            assert!(seen.insert(key.id, (key.tag, value)).is_none(), "T7: {} was seen twice", key.id);
        }
        assert_eq!(seen, self.model);
        assert_eq!((self.map.len(), self.map.is_empty()), (self.model.len(), self.model.is_empty()));
        assert_eq!(self.map.stats().entries, self.model.len());
    }
}

fn check(hashing: Hashing) {
    for resizing in [Resizing::Manual, Resizing::Automatic] {
        let config = Config { cases: 60, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let result = runner.run(&operations(), |operations| {
            let mut pair = Pair::new(resizing, hashing);
            for operation in operations {
                pair.apply(operation);
                pair.assert_equal();
            }
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("{resizing:?}: {error}"));
    }
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
    check(Hashing(|_| 42));
}

#[test]
fn with_few_hashes() {
    check(Hashing(|n| n % 5));
}

#[test]
fn with_only_high_bits() {
    check(Hashing(|n| n << 58));
}
