//! Random sequences of operations on a set, all that it has, compared with what std's set does.

use std::collections::{HashMap as Model, HashSet as StdSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::HashSet;
use super::model::{Key, keys, run};
use crate::hashing::{Hashing, MIXED};

#[derive(Debug, Clone)]
enum Operation {
    Insert(Key),
    Replace(Key),
    GetOrInsert(Key),
    Remove(u64),
    Take(u64),
    Extend(Vec<Key>),
    ExtendCopies(Vec<Key>),
    Retain(u64),
    ExtractIf(u64, usize),
    Drain(usize),
    Clear,
    Clone,
    Collect,
    Reserve(usize),
    ShrinkToFit,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    use Operation::*;
    let id = || 0..48u64;
    vec(
        prop_oneof![
            16 => keys().prop_map(Insert),
            6 => keys().prop_map(Replace),
            6 => keys().prop_map(GetOrInsert),
            8 => id().prop_map(Remove),
            4 => id().prop_map(Take),
            2 => vec(keys(), 0..20).prop_map(Extend),
            1 => vec(keys(), 0..20).prop_map(ExtendCopies),
            1 => (1..4u64).prop_map(Retain),
            1 => (1..4u64, 0..20usize).prop_map(|(modulus, most)| ExtractIf(modulus, most)),
            1 => (0..20usize).prop_map(Drain),
            1 => Just(Clear),
            1 => Just(Clone),
            1 => Just(Collect),
            2 => (0..1000usize).prop_map(Reserve),
            2 => Just(ShrinkToFit),
        ],
        1..100,
    )
}

type Set = HashSet<Key, Hashing>;

/// Applies the operation to the set and to its model, a map from keys to tags.
fn apply(set: &mut Set, model: &mut Model<u64, u8>, operation: Operation) {
    match operation {
        Operation::Insert(key) => {
            assert_eq!(set.pin().insert(key), !model.contains_key(&key.id));
            model.entry(key.id).or_insert(key.tag);
        }
        Operation::Replace(key) => {
            assert_eq!(set.pin().replace(key).map(|old| old.tag), model.insert(key.id, key.tag));
        }
        Operation::GetOrInsert(key) => {
            assert_eq!(set.pin().get_or_insert(key).tag, *model.entry(key.id).or_insert(key.tag));
        }
        Operation::Remove(id) => assert_eq!(set.pin().remove(&id), model.remove(&id).is_some()),
        Operation::Take(id) => assert_eq!(set.pin().take(&id).map(|old| old.tag), model.remove(&id)),
        Operation::Extend(keys) => {
            keys.iter().for_each(|key| _ = model.entry(key.id).or_insert(key.tag));
            (&*set).extend(keys);
        }
        Operation::ExtendCopies(keys) => {
            keys.iter().for_each(|key| _ = model.entry(key.id).or_insert(key.tag));
            set.extend(&keys);
        }
        Operation::Retain(modulus) => {
            set.pin().retain(|key| key.id % modulus == 0);
            model.retain(|id, _| id % modulus == 0);
        }
        Operation::ExtractIf(modulus, most) => {
            for key in set.pin().extract_if(|key| key.id % modulus == 0).take(most) {
                assert_eq!(key.id % modulus, 0);
                assert_eq!(model.remove(&key.id), Some(key.tag));
            }
        }
        Operation::Drain(most) => {
            for key in set.pin().drain().take(most) {
                assert_eq!(model.remove(&key.id), Some(key.tag));
            }
            model.clear();
        }
        Operation::Clear => {
            set.pin().clear();
            model.clear();
        }
        Operation::Clone => *set = set.clone(),
        Operation::Collect => {
            let hasher = *set.as_map().hasher();
            let old = std::mem::replace(set, HashSet::with_hasher(hasher));
            set.extend(old);
        }
        Operation::Reserve(additional) => set.as_map().reserve(additional),
        Operation::ShrinkToFit => set.as_map().shrink_to_fit().unwrap(),
    }
}

fn assert_equal(set: &Set, model: &Model<u64, u8>) {
    let pinned = set.pin();
    for id in 0..48 {
        assert_eq!(pinned.contains(&id), model.contains_key(&id));
        assert_eq!(pinned.get(&id).map(|key| key.tag), model.get(&id).copied());
    }
    let seen: Model<u64, u8> = pinned.iter().map(|key| (key.id, key.tag)).collect();
    assert_eq!((&seen, pinned.iter().count()), (model, model.len()));
    assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
}

#[test]
fn do_what_sets_do() {
    for hashing in [MIXED, Hashing(|n| n % 5)] {
        run(&operations(), |operations| {
            let mut set = Set::with_hasher(hashing);
            let mut model = Model::new();
            for operation in operations {
                apply(&mut set, &mut model, operation);
                assert_equal(&set, &model);
            }
        });
    }
}

fn sorted<'a>(elements: impl Iterator<Item = &'a u8>) -> Vec<u8> {
    let mut elements: Vec<u8> = elements.copied().collect();
    elements.sort();
    elements
}

/// Compares the set algebra of random pairs of sets with that of std's sets.
#[test]
fn combine_as_sets_do() {
    let elements = || vec(0..12u8, 0..8);
    run(&(elements(), elements()), |(a, b)| {
        let [ours_a, ours_b] = [&a, &b].map(|elements| elements.iter().copied().collect::<HashSet<u8>>());
        let [std_a, std_b] = [a, b].map(|elements| elements.into_iter().collect::<StdSet<u8>>());
        let (pinned, others) = (ours_a.pin(), ours_b.pin());
        assert_eq!(sorted(pinned.union(&others)), sorted(std_a.union(&std_b)));
        assert_eq!(sorted(pinned.intersection(&others)), sorted(std_a.intersection(&std_b)));
        assert_eq!(sorted(pinned.difference(&others)), sorted(std_a.difference(&std_b)));
        assert_eq!(sorted(pinned.symmetric_difference(&others)), sorted(std_a.symmetric_difference(&std_b)));
        assert_eq!(pinned.is_subset(&others), std_a.is_subset(&std_b));
        assert_eq!(pinned.is_superset(&others), std_a.is_superset(&std_b));
        assert_eq!(pinned.is_disjoint(&others), std_a.is_disjoint(&std_b));
        assert_eq!(ours_a == ours_b, std_a == std_b);
        assert_eq!(sorted((&ours_a | &ours_b).pin().iter()), sorted((&std_a | &std_b).iter()));
        assert_eq!(sorted((&ours_a & &ours_b).pin().iter()), sorted((&std_a & &std_b).iter()));
        assert_eq!(sorted((&ours_a - &ours_b).pin().iter()), sorted((&std_a - &std_b).iter()));
        assert_eq!(sorted((&ours_a ^ &ours_b).pin().iter()), sorted((&std_a ^ &std_b).iter()));
    });
}

#[test]
fn can_be_made_and_shown() {
    let set: HashSet<_> = HashSet::from([1]);
    let pinned = set.pin();
    assert_eq!(format!("{set:?} {pinned:?} {:?}", set.clone().into_iter().next()), "{1} {1} Some(1)");
    assert!((pinned.len(), pinned.is_empty()) == (1, false) && std::ptr::eq(pinned.set(), &set));
    assert_eq!((&pinned).into_iter().collect::<Vec<_>>(), [&1]);
    assert!(HashSet::<u8>::new().is_empty() && HashSet::<u8>::default().is_empty());
    assert!(HashSet::<u8>::with_capacity(100).as_map().capacity() >= 100);
    assert!(HashSet::<u8, _>::with_capacity_and_hasher(100, MIXED).as_map().capacity() >= 100);
}
