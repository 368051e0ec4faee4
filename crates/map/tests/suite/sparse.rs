//! T7 in sparse tables: iterations pass empty buckets, and see all entries.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use relativist::{HashMap, Resizing};

use crate::alongside::alongside;
use crate::hashing::{Hashing, IDENTITY, MIXED};
use relativist_testing::random::Random;

type Map = HashMap<u64, u64, Hashing>;

#[derive(Debug, Clone)]
enum Operation {
    Insert(u64),
    Remove(u64),
    /// Inserts the second number of keys, beginning with the first.
    InsertFrom(u64, u64),
    RemoveFrom(u64, u64),
    ResizeTo(u32),
    Iterate,
    Scan(usize),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let key = || 0..600u64;
    vec(
        prop_oneof![
            6 => key().prop_map(Operation::Insert),
            6 => key().prop_map(Operation::Remove),
            1 => (key(), 0..300u64).prop_map(|(key, n)| Operation::InsertFrom(key, n)),
            2 => (key(), 0..300u64).prop_map(|(key, n)| Operation::RemoveFrom(key, n)),
            1 => (11..15u32).prop_map(Operation::ResizeTo),
            6 => Just(Operation::Iterate),
            2 => (1..50usize).prop_map(Operation::Scan),
        ],
        1..120,
    )
}

struct Pair {
    map: Map,
    model: BTreeMap<u64, u64>,
}

impl Pair {
    fn new(hashing: Hashing) -> Self {
        let map = HashMap::<u64, u64>::builder().resizing(Resizing::Manual).hasher(hashing).build().unwrap();
        map.resize_to(1 << 12).unwrap();
        Self { map, model: BTreeMap::new() }
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Insert(key) => self.insert(key),
            Operation::Remove(key) => self.remove(key),
            Operation::InsertFrom(key, n) => (key..key + n).for_each(|key| self.insert(key)),
            Operation::RemoveFrom(key, n) => (key..key + n).for_each(|key| self.remove(key)),
            Operation::ResizeTo(bits) => self.map.resize_to(1 << bits).unwrap(),
            Operation::Iterate => self.assert_equal(self.map.pin().iter().map(|(&key, &value)| (key, value)).collect()),
            Operation::Scan(n) => self.assert_equal(self.scan(n)),
        }
    }

    fn insert(&mut self, key: u64) {
        self.map.pin().insert(key, !key);
        self.model.insert(key, !key);
    }

    fn remove(&mut self, key: u64) {
        self.map.pin().remove(&key);
        self.model.remove(&key);
    }

    fn scan(&self, n: usize) -> Vec<(u64, u64)> {
        let mut entries = Vec::new();
        let mut next = Some(0);
        while let Some(cursor) = next {
            next = self.map.pin().scan(cursor, n, |&key, &value| entries.push((key, value)));
        }
        entries
    }

    fn assert_equal(&self, mut entries: Vec<(u64, u64)>) {
        entries.sort_unstable();
        assert!(entries.iter().copied().eq(self.model.iter().map(|(&key, &value)| (key, value))), "T7: {entries:?}");
    }
}

fn check(hashing: Hashing) {
    let config = Config { cases: 24, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let result = runner.run(&operations(), |operations| {
        let mut pair = Pair::new(hashing);
        operations.into_iter().for_each(|operation| pair.apply(operation));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn with_a_good_hash() {
    check(MIXED);
}

#[test]
fn with_the_identity() {
    check(IDENTITY);
}

/// All entries are in neighbouring buckets.
#[test]
fn with_neighbouring_hashes() {
    // Multiples of the inverse of the constant that hashes are mixed with, so that neighbours share
    // a bucket.
    check(Hashing(|n| (n << 44).wrapping_mul(0xF1DE_83E1_9937_733D)));
}

/// Residents are seen, and so is what the iterating thread has itself inserted, while others
/// insert, remove and iterate, and the table is resized.
#[test]
fn beside_updates_and_resizes() {
    const RESIDENTS: u64 = 100;
    let map = Pair::new(MIXED).map;
    (0..RESIDENTS).for_each(|key| _ = map.pin().insert(key, !key));
    let mut random = Random::new(3);
    let disturb = || {
        map.resize_to(1 << (12 + random.below(3))).unwrap();
        for key in 1000..1200 {
            map.pin().insert(key, !key);
        }
        for key in 1000..1200 {
            map.pin().remove(&key);
            if key % 50 == 0 {
                map.pin().iter().for_each(|(key, value)| assert_eq!(*value, !key));
            }
        }
    };
    alongside(disturb, || {
        for round in 0..150 {
            let own = 2000 + round % 7;
            map.pin().insert(own, !own);
            let (mut residents, mut seen_own) = (0, 0);
            map.pin().iter().for_each(|(&key, _)| {
                residents += u64::from(key < RESIDENTS);
                seen_own += u64::from(key == own);
            });
            assert_eq!((residents, seen_own), (RESIDENTS, 1), "T7");
            map.pin().remove(&own);
        }
    });
}
