//! All operations of maps and sets that call user code.
//!
//! The part of a name before a comma is the function or trait that it covers, which `coverage.rs`
//! checks for functions.

use rayon::prelude::*;
use relativist_rcu::barrier;

use super::Form;
use crate::parts::{Name, Part, Ticking, in_pool, tick, ticked};
use Effect::{Entries, Step};

/// What an operation that panics may have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// All or nothing.
    Step,
    /// Some entries are as before, some as after.
    Entries,
}

pub type Map<K = Part, V = Part> = relativist::Map<K, V, Ticking, Form>;
pub type Set<T = Part> = relativist::Set<T, Ticking, Form>;

type Handle<'s> = relativist::PinnedSet<'s, Part, Ticking, Form>;

pub type Operation<S> = (&'static str, Effect, fn(&S));

/// The value that operations put in.
const NEW: u64 = 90;

pub fn key(n: u64) -> Part {
    Part::new(n)
}

pub fn new() -> Part {
    Part::new(NEW)
}

fn made() -> Part {
    ticked(new())
}

/// Entries, from an iterator that may panic.
fn entries(keys: std::ops::Range<u64>) -> impl Iterator<Item = (Part, Part)> {
    keys.map(|n| ticked((key(n), new())))
}

fn parallel_entries() -> impl ParallelIterator<Item = (Part, Part)> {
    (0..6).into_par_iter().map(|n| ticked((key(n), new())))
}

/// Keys 0 to 3 are present, 4 and 5 are absent. Keys 0, 1, 2 and 4 have the same hash.
pub const MAP: &[Operation<Map>] = &[
    ("Map::get", Step, |map| _ = map.pin().get(&Name(2))),
    ("Map::get, absent", Step, |map| _ = map.pin().get(&Name(4))),
    ("Map::get_key_value", Step, |map| _ = map.pin().get_key_value(&Name(2))),
    ("Map::contains_key", Step, |map| _ = map.pin().contains_key(&key(2))),
    ("Map::get_many", Step, |map| _ = map.pin().get_many([&Name(2), &Name(3), &Name(4)])),
    ("Map::get_copied", Step, |_| {
        let numbers: Map<u64, u64> = Map::default();
        numbers.pin().insert(1, 2);
        assert_eq!(numbers.get_copied(&1), Some(2));
    }),
    ("Map::get_cloned", Step, |map| _ = map.get_cloned(&Name(2))),
    ("Map::get_cloned, absent", Step, |map| _ = map.get_cloned(&Name(4))),
    ("Map::contains_key, without a handle", Step, |map| _ = map.contains_key(&key(2))),
    ("Map::insert, absent", Step, |map| _ = map.pin().insert(key(4), new())),
    ("Map::insert, present", Step, |map| _ = map.pin().insert(key(2), new())),
    ("Map::try_insert, absent", Step, |map| _ = map.pin().try_insert(key(4), new()).is_ok()),
    ("Map::try_insert, present", Step, |map| _ = map.pin().try_insert(key(2), new()).is_ok()),
    ("Map::get_or_insert, absent", Step, |map| _ = map.pin().get_or_insert(key(4), new())),
    ("Map::get_or_insert, present", Step, |map| _ = map.pin().get_or_insert(key(2), new())),
    ("Map::get_or_insert_with, absent", Step, |map| _ = map.pin().get_or_insert_with(key(4), made)),
    ("Map::get_or_insert_with, present", Step, |map| _ = map.pin().get_or_insert_with(key(2), made)),
    ("Map::get_or_insert_with, absent until it is called", Entries, |map| {
        map.pin().get_or_insert_with(key(4), || (map.pin().insert(key(4), new()), made()).1);
    }),
    ("Map::update, absent", Step, |map| _ = map.pin().update(key(4), |_| made())),
    ("Map::update, present", Step, |map| _ = map.pin().update(key(2), |_| made())),
    ("Map::update, changed meanwhile", Step, |map| {
        let mut is_first = true;
        map.pin().update(key(2), |value| {
            if std::mem::take(&mut is_first) {
                map.pin().insert(key(2), Part::new(value.n()));
            }
            made()
        });
    }),
    ("Map::update_or_insert, absent", Step, |map| _ = map.pin().update_or_insert(key(4), |_| made(), new())),
    ("Map::update_or_insert, present", Step, |map| _ = map.pin().update_or_insert(key(2), |_| made(), new())),
    ("Map::update_or_insert_with, absent", Step, |map| {
        map.pin().update_or_insert_with(key(5), |_| made(), made);
    }),
    ("Map::update_or_insert_with, present", Step, |map| {
        map.pin().update_or_insert_with(key(0), |_| made(), made);
    }),
    ("Map::update_or_insert_with, absent until it is called", Entries, |map| {
        map.pin().update_or_insert_with(key(4), |_| made(), || (map.pin().insert(key(4), made()), new()).1);
    }),
    ("Map::get_or_insert_with_ref, absent", Step, |map| _ = map.pin().get_or_insert_with_ref(&Name(4), made)),
    ("Map::get_or_insert_with_ref, present", Step, |map| _ = map.pin().get_or_insert_with_ref(&Name(2), made)),
    ("Map::update_ref", Step, |map| _ = map.pin().update_ref(&Name(2), |_| made())),
    ("Map::update_or_insert_with_ref, absent", Step, |map| {
        map.pin().update_or_insert_with_ref(&Name(4), |_| made(), made);
    }),
    ("Map::compute, replaces", Step, |map| _ = map.pin().compute(key(2), |_| Some(made()))),
    ("Map::compute_ref, inserts", Step, |map| _ = map.pin().compute_ref(&Name(4), |_| Some(made()))),
    ("Map::compute_ref, removes", Step, |map| _ = map.pin().compute_ref(&Name(1), |_| ticked(None))),
    ("Map::try_compute, inserts", Step, |map| {
        map.pin().try_compute(key(4), |_| ticked(Ok::<_, ()>(Some(new())))).unwrap();
    }),
    ("Map::try_compute, replaces", Step, |map| {
        map.pin().try_compute(key(2), |_| ticked(Ok::<_, ()>(Some(new())))).unwrap();
    }),
    ("Map::try_compute, removes", Step, |map| {
        map.pin().try_compute(key(1), |_| ticked(Ok::<_, ()>(None))).unwrap();
    }),
    ("Map::try_compute, fails", Step, |map| _ = map.pin().try_compute(key(1), |_| ticked(Err(Box::new(new()))))),
    ("Map::try_compute, changed meanwhile", Step, |map| {
        let mut is_first = true;
        let _ = map.pin().try_compute(key(1), |value| {
            if std::mem::take(&mut is_first) {
                value.map(|value| map.pin().insert(key(1), Part::new(value.n())).is_some());
            }
            ticked(Ok::<_, ()>(Some(new())))
        });
    }),
    ("Map::compare_exchange", Step, |map| _ = map.pin().compare_exchange(key(2), &Part::new(12), new()).is_ok()),
    ("Map::compare_exchange, another value", Step, |map| {
        let _ = map.pin().compare_exchange(key(2), &new(), new()).is_ok();
    }),
    ("Map::compare_exchange, absent", Step, |map| {
        let _ = map.pin().compare_exchange(key(4), &new(), new()).is_ok();
    }),
    ("Map::remove", Step, |map| _ = map.pin().remove(&Name(1))),
    ("Map::remove, absent", Step, |map| _ = map.pin().remove(&key(4))),
    ("Map::remove_entry", Step, |map| _ = map.pin().remove_entry(&Name(3))),
    ("Map::remove_if, true", Step, |map| _ = map.pin().remove_if(&Name(1), |_, _| ticked(true))),
    ("Map::remove_if, false", Step, |map| _ = map.pin().remove_if(&Name(1), |_, _| ticked(false))),
    ("Map::clear", Step, |map| map.pin().clear()),
    ("Map::retain", Entries, |map| map.pin().retain(|key, _| ticked(key.n() % 2 == 0))),
    ("Map::extract_if", Entries, |map| {
        map.pin().extract_if(|key, _| ticked(key.n() % 2 == 0)).for_each(|_| tick());
    }),
    ("Map::drain", Entries, |map| map.pin().drain().for_each(|_| tick())),
    ("Map::iter", Step, |map| map.pin().iter().for_each(|_| tick())),
    ("Map::keys", Step, |map| map.pin().keys().for_each(|_| tick())),
    ("Map::values", Step, |map| map.pin().values().for_each(|_| tick())),
    ("Map::get_or_default", Step, |_| _ = Map::<Part, u64>::default().pin().get_or_default(key(1))),
    ("Map::get_mut", Step, |map| _ = map.clone().get_mut(&Name(2)).is_some()),
    ("Map::iter_mut", Step, |map| map.clone().iter_mut().for_each(|_| tick())),
    ("Map::values_mut", Step, |map| map.clone().values_mut().for_each(|_| tick())),
    ("Map::into_keys", Step, |map| map.clone().into_keys().for_each(|_| tick())),
    ("Map::into_values", Step, |map| map.clone().into_values().for_each(|_| tick())),
    ("Map::reserve", Step, |map| map.reserve(1000)),
    ("Map::try_reserve", Step, |map| map.try_reserve(1000).unwrap()),
    ("Map::shrink_to_fit", Step, |map| {
        let map = map.clone();
        map.reserve(100);
        if map.len() < 10 {
            // Without a reader for which this would wait.
            map.shrink_to_fit().unwrap();
        }
    }),
    ("IntoIterator for &Pinned", Step, |map| (&map.pin()).into_iter().for_each(|_| tick())),
    ("Debug for Map", Step, |map| _ = format!("{map:?}")),
    ("Debug for Pinned", Step, |map| _ = format!("{:?}", map.pin())),
    ("PartialEq for Map", Step, |map| assert!(*map == map.clone())),
    ("Clone for Map", Step, |map| drop(map.clone())),
    ("IntoIterator for Map", Step, |map| map.clone().into_iter().for_each(|_| tick())),
    ("IntoIterator for Map, dropped on the way", Step, |map| {
        map.clone().into_iter().take(2).for_each(|_| tick());
    }),
    ("Default for Map", Step, |_| drop(<Map>::default())),
    ("Serialize for Map", Step, |map| _ = serde_json::to_string(map).unwrap()),
    ("Deserialize for Map", Step, |_| drop(serde_json::from_str::<Map>(r#"{"1": "2", "3": "4", "1": "5"}"#))),
    ("IntoParallelIterator for &Pinned", Step, |map| {
        let many = Map::with_capacity_and_hasher(512, Ticking::default());
        (0..40).for_each(|n| _ = many.pin().insert(key(n), new()));
        in_pool(|| {
            map.pin().par_iter().for_each(|_| tick());
            many.pin().par_iter().for_each(|_| tick());
        });
    }),
    ("Map::clear, with the destructors", Step, |map| {
        map.pin().clear();
        barrier();
    }),
    ("FromIterator for Map", Step, |_| drop(Map::from_iter(entries(0..6)))),
    ("Extend for Map", Step, |map| map.clone().extend(entries(1..6))),
    ("Extend for Map, of references", Step, |_| {
        let mut numbers: Map<u64, u64> = Map::default();
        numbers.extend([(&1, &2), (&3, &4)].map(ticked));
    }),
    ("Map::insert_many", Entries, |map| _ = map.insert_many(entries(1..6))),
    ("Extend for &Map", Entries, |mut map| map.extend(entries(1..6))),
    ("FromParallelIterator for Map", Step, |_| in_pool(|| drop(parallel_entries().collect::<Map>()))),
    ("ParallelExtend for Map", Step, |map| in_pool(|| map.clone().par_extend(parallel_entries()))),
];

pub const SET: &[Operation<Set>] = &[
    ("Set::contains", Step, |set| _ = set.pin().contains(&Name(2))),
    ("Set::get", Step, |set| _ = set.pin().get(&Name(2))),
    ("Set::insert, absent", Step, |set| _ = set.pin().insert(key(4))),
    ("Set::insert, present", Step, |set| _ = set.pin().insert(key(2))),
    ("Set::replace, absent", Step, |set| _ = set.pin().replace(key(4))),
    ("Set::replace, present", Step, |set| _ = set.pin().replace(key(2))),
    ("Set::get_or_insert, absent", Step, |set| _ = set.pin().get_or_insert(key(4))),
    ("Set::get_or_insert, present", Step, |set| _ = set.pin().get_or_insert(key(2))),
    ("Set::remove", Step, |set| _ = set.pin().remove(&Name(1))),
    ("Set::take", Step, |set| _ = set.pin().take(&Name(2))),
    ("Set::clear", Step, |set| set.pin().clear()),
    ("Set::retain", Entries, |set| set.pin().retain(|element| ticked(element.n() > 1))),
    ("Set::extract_if", Entries, |set| set.pin().extract_if(|element| ticked(element.n() > 1)).for_each(|_| tick())),
    ("Set::drain", Entries, |set| set.pin().drain().for_each(|_| tick())),
    ("Set::iter", Step, |set| set.pin().iter().for_each(|_| tick())),
    ("IntoIterator for &PinnedSet", Step, |set| (&set.pin()).into_iter().for_each(|_| tick())),
    ("Set::union", Step, |set| both(set, |one, other| one.union(other).for_each(|_| tick()))),
    ("Set::intersection", Step, |set| both(set, |one, other| one.intersection(other).for_each(|_| tick()))),
    ("Set::difference", Step, |set| both(set, |one, other| one.difference(other).for_each(|_| tick()))),
    ("Set::symmetric_difference", Step, |set| {
        both(set, |one, other| one.symmetric_difference(other).for_each(|_| tick()))
    }),
    ("Set::is_subset", Step, |set| both(set, |one, other| _ = one.is_subset(other))),
    ("Set::is_superset", Step, |set| both(set, |one, other| _ = one.is_superset(other))),
    ("Set::is_disjoint", Step, |set| both(set, |one, other| _ = one.is_disjoint(other))),
    ("operators of Set", Step, |set| {
        let other = other();
        drop((set | &other, set & &other, set - &other, set ^ &other));
    }),
    ("Debug for Set", Step, |set| _ = format!("{set:?}")),
    ("Debug for PinnedSet", Step, |set| _ = format!("{:?}", set.pin())),
    ("PartialEq for Set", Step, |set| assert!(*set == set.clone())),
    ("Clone for Set", Step, |set| drop(set.clone())),
    ("IntoIterator for Set", Step, |set| set.clone().into_iter().for_each(|_| tick())),
    ("Default for Set", Step, |_| drop(<Set>::default())),
    ("Serialize for Set", Step, |set| _ = serde_json::to_string(set).unwrap()),
    ("Deserialize for Set", Step, |_| drop(serde_json::from_str::<Set>(r#"["1", "2", "1"]"#))),
    ("IntoParallelIterator for &PinnedSet", Step, |set| in_pool(|| set.pin().par_iter().for_each(|_| tick()))),
    ("FromIterator for Set", Step, |_| drop((0..6).map(|n| ticked(key(n))).collect::<Set>())),
    ("Extend for Set", Step, |set| set.clone().extend((1..6).map(|n| ticked(key(n))))),
    ("Extend for Set, of references", Step, |_| <Set<u64>>::default().extend([&1, &2].map(ticked))),
    ("Extend for &Set", Entries, |mut set| set.extend((1..6).map(|n| ticked(key(n))))),
    ("FromParallelIterator for Set", Step, |_| {
        in_pool(|| drop((0..6).into_par_iter().map(|n| ticked(key(n))).collect::<Set>()));
    }),
    ("ParallelExtend for Set", Step, |set| {
        in_pool(|| set.clone().par_extend((1..6).into_par_iter().map(|n| ticked(key(n)))));
    }),
];

fn other() -> Set {
    let set = Set::default();
    (2..6).for_each(|n| _ = set.pin().insert(key(n)));
    set
}

/// Calls an operation on two sets, with handles of both.
fn both(set: &Set, act: impl for<'s> FnOnce(&Handle<'s>, &Handle<'s>)) {
    let other = other();
    act(&set.pin(), &other.pin());
}
