//! Runs any sequence of operations on one of our maps and on a map of std, and
//! compares the results.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use relativist::{FlatMap, HashMap, Map, Stores};

#[path = "../../crates/map/tests/support/hashing.rs"]
mod hashing;

use hashing::*;

/// How the keys of an input are hashed.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Spread {
    Mixed,
    Identity,
    /// Many keys share a bucket as long as the table is small.
    Together,
    /// Four keys share a hash.
    Quarters,
    Same,
}

impl Spread {
    fn hashing(self) -> Hashing {
        match self {
            Self::Mixed => MIXED,
            Self::Identity => IDENTITY,
            Self::Together => TOGETHER,
            Self::Quarters => Hashing(|n| n / 4),
            Self::Same => Hashing(|_| 1),
        }
    }
}

/// Keys from a small range, so that operations meet on one key, or any keys.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Key {
    Low(u8),
    High(u8),
    Any(u64),
}

impl Key {
    fn number(self) -> u64 {
        match self {
            Self::Low(n) => n.into(),
            Self::High(n) => u64::from(n) << 56,
            Self::Any(n) => n,
        }
    }
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Insert(Key, u32),
    TryInsert(Key, u32),
    Remove(Key),
    Get(Key),
    GetOrInsert(Key, u32),
    Update(Key, u32),
    Toggle(Key, u32),
    CompareExchange(Key, u32, u32),
    RemoveIfEven(Key),
    RetainOdd,
    Extend(Vec<(Key, u32)>),
    Iterate,
    Clear,
    Reserve(u16),
    ShrinkToFit,
}

/// Larger tables cost time and show nothing new.
const MAX_CAPACITY: u16 = 4096;

type Model = BTreeMap<u64, u32>;

fn run<F: Stores<u64, u32>>(map: &Map<u64, u32, Hashing, F>, operations: Vec<Operation>) {
    let mut model = Model::new();
    operations.into_iter().for_each(|operation| apply(map, &mut model, operation));
    assert_same(map, &model);
}

fn apply<F: Stores<u64, u32>>(map: &Map<u64, u32, Hashing, F>, model: &mut Model, operation: Operation) {
    match operation {
        Operation::Insert(key, value) => {
            assert_eq!(map.pin().insert(key.number(), value).copied(), model.insert(key.number(), value));
        }
        Operation::TryInsert(key, value) => {
            let in_the_way = map.pin().try_insert(key.number(), value).err().map(|error| *error.current);
            assert_eq!(in_the_way, model.get(&key.number()).copied());
            model.entry(key.number()).or_insert(value);
        }
        Operation::Remove(key) => {
            assert_eq!(map.pin().remove(&key.number()).copied(), model.remove(&key.number()))
        }
        Operation::Get(key) => assert_eq!(map.pin().get(&key.number()), model.get(&key.number())),
        Operation::GetOrInsert(key, value) => {
            assert_eq!(map.pin().get_or_insert(key.number(), value), model.entry(key.number()).or_insert(value));
        }
        Operation::Update(key, by) => {
            let value = model.get_mut(&key.number()).map(|value| {
                *value = value.wrapping_add(by);
                *value
            });
            assert_eq!(map.pin().update(key.number(), |value| value.wrapping_add(by)).copied(), value);
        }
        Operation::Toggle(key, value) => {
            let toggle = |current: Option<&u32>| Ok::<_, ()>(current.is_none().then_some(value));
            map.pin().try_compute(key.number(), toggle).unwrap();
            if model.remove(&key.number()).is_none() {
                model.insert(key.number(), value);
            }
        }
        Operation::CompareExchange(key, expected, new) => {
            let pinned = map.pin();
            let current =
                pinned.compare_exchange(key.number(), &expected, new).err().map(|error| error.current.copied());
            let value = model.get_mut(&key.number());
            match value {
                Some(value) if *value == expected => assert_eq!((current, *value = new), (None, ())),
                value => assert_eq!(current, Some(value.copied())),
            }
        }
        Operation::RemoveIfEven(key) => {
            let removed = map.pin().remove_if(&key.number(), |_, value| value % 2 == 0).is_some();
            assert_eq!(removed, model.get(&key.number()).is_some_and(|value| value % 2 == 0));
            model.retain(|&other, _| !(removed && other == key.number()));
        }
        Operation::RetainOdd => {
            map.pin().retain(|_, value| value % 2 == 1);
            model.retain(|_, value| *value % 2 == 1);
        }
        Operation::Extend(entries) => {
            let entries = entries.into_iter().map(|(key, value)| (key.number(), value));
            model.extend(entries.clone());
            let mut map = map;
            map.extend(entries);
        }
        Operation::Iterate => assert_same(map, model),
        Operation::Clear => {
            map.pin().clear();
            model.clear();
        }
        Operation::Reserve(additional) => {
            let additional = usize::from(additional % MAX_CAPACITY);
            map.reserve(additional);
            assert!(map.capacity() >= model.len() + additional);
        }
        Operation::ShrinkToFit => map.shrink_to_fit().unwrap(),
    }
}

fn assert_same<F: Stores<u64, u32>>(map: &Map<u64, u32, Hashing, F>, model: &Model) {
    let pinned = map.pin();
    let mut entries: Vec<(u64, u32)> = pinned.iter().map(|(&key, &value)| (key, value)).collect();
    entries.sort_unstable();
    assert!(entries.iter().copied().eq(model.iter().map(|(&key, &value)| (key, value))));
    assert!(model.iter().all(|(key, value)| pinned.get(key) == Some(value)));
    assert_eq!(map.len(), model.len());
}

fuzz_target!(|input: (Spread, bool, Vec<Operation>)| {
    let (spread, is_flat, operations) = input;
    let hashing = spread.hashing();
    if is_flat {
        run(&FlatMap::with_hasher(hashing), operations);
    } else {
        run(&HashMap::with_hasher(hashing), operations);
    }
    // Frees all retired entries before the sanitizer looks for leaks.
    relativist_rcu::barrier();
});
