//! All operations of maps and sets that call user code, if both kinds of map have them. `tested.rs`
//! has those of one kind.
//!
//! The part of a name before a comma is the function or trait that it covers, which `coverage.rs`
//! checks.

use rayon::prelude::*;
use relativist::Resizing;

use crate::explore::Effect::{self, Entries, Step};
use crate::parts::{Name, Part, Ticking, in_pool, tick, ticked};
use crate::tested::{Builder, CAPACITY, HashMap, HashSet, build};

pub type Map = HashMap<Part, Part, Ticking>;
pub type Set = HashSet<Part, Ticking>;

/// Maps of numbers, in which only the hasher can panic.
type Numbers = HashMap<u64, u64, Ticking>;
type NumberSet = HashSet<u64, Ticking>;

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

pub fn builder() -> Builder<Ticking> {
    Builder::new().capacity(CAPACITY).resizing(Resizing::Manual).hasher(Ticking::default())
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
    ("HashMap::get", Step, |map| _ = map.pin().get(&Name(2))),
    ("HashMap::get, absent", Step, |map| _ = map.pin().get(&Name(4))),
    ("HashMap::get_key_value", Step, |map| _ = map.pin().get_key_value(&Name(2))),
    ("HashMap::contains_key", Step, |map| _ = map.pin().contains_key(&key(2))),
    ("HashMap::get_many", Step, |map| _ = map.pin().get_many([&Name(2), &Name(3), &Name(4)])),
    ("HashMap::get_each", Step, |map| map.pin().get_each([&Name(2), &Name(4)].map(ticked), |_, _| tick())),
    ("HashMap::get_copied", Step, |_| {
        let numbers: HashMap<u64, u64, Ticking> = HashMap::default();
        numbers.pin().insert(1, 2);
        assert_eq!(numbers.get_copied(&1), Some(2));
    }),
    ("HashMap::get_cloned", Step, |map| _ = map.get_cloned(&Name(2))),
    ("HashMap::get_cloned, absent", Step, |map| _ = map.get_cloned(&Name(4))),
    ("HashMap::contains", Step, |map| _ = map.contains(&key(2))),
    ("HashMap::insert, absent", Step, |map| _ = map.pin().insert(key(4), new())),
    ("HashMap::insert, present", Step, |map| _ = map.pin().insert(key(2), new())),
    ("HashMap::checked_insert, absent", Step, |map| _ = map.pin().checked_insert(key(5), new()).is_ok()),
    ("HashMap::checked_insert, present", Step, |map| _ = map.pin().checked_insert(key(2), new()).is_ok()),
    ("HashMap::try_insert, absent", Step, |map| _ = map.pin().try_insert(key(4), new()).is_ok()),
    ("HashMap::try_insert, present", Step, |map| _ = map.pin().try_insert(key(2), new()).is_ok()),
    ("HashMap::get_or_insert, absent", Step, |map| _ = map.pin().get_or_insert(key(4), new())),
    ("HashMap::get_or_insert, present", Step, |map| _ = map.pin().get_or_insert(key(2), new())),
    ("HashMap::get_or_insert_with, absent", Step, |map| _ = map.pin().get_or_insert_with(key(4), made)),
    ("HashMap::get_or_insert_with, present", Step, |map| _ = map.pin().get_or_insert_with(key(2), made)),
    ("HashMap::get_or_insert_with, absent until it is called", Entries, |map| {
        map.pin().get_or_insert_with(key(4), || (map.pin().insert(key(4), new()), made()).1);
    }),
    ("HashMap::update, absent", Step, |map| _ = map.pin().update(key(4), |_| made())),
    ("HashMap::update, present", Step, |map| _ = map.pin().update(key(2), |_| made())),
    ("HashMap::update, changed meanwhile", Step, |map| {
        let mut is_first = true;
        map.pin().update(key(2), |value| {
            if std::mem::take(&mut is_first) {
                map.pin().insert(key(2), Part::new(value.n()));
            }
            made()
        });
    }),
    ("HashMap::update_or_insert, absent", Step, |map| _ = map.pin().update_or_insert(key(4), |_| made(), new())),
    ("HashMap::update_or_insert, present", Step, |map| _ = map.pin().update_or_insert(key(2), |_| made(), new())),
    ("HashMap::update_or_insert_with, absent", Step, |map| {
        map.pin().update_or_insert_with(key(5), |_| made(), made);
    }),
    ("HashMap::update_or_insert_with, present", Step, |map| {
        map.pin().update_or_insert_with(key(0), |_| made(), made);
    }),
    ("HashMap::update_or_insert_with, absent until it is called", Entries, |map| {
        map.pin().update_or_insert_with(key(4), |_| made(), || (map.pin().insert(key(4), made()), new()).1);
    }),
    ("HashMap::compute, inserts", Step, |map| {
        map.pin().compute(key(4), |_| ticked(Ok::<_, ()>(Some(new())))).unwrap();
    }),
    ("HashMap::compute, replaces", Step, |map| {
        map.pin().compute(key(2), |_| ticked(Ok::<_, ()>(Some(new())))).unwrap();
    }),
    ("HashMap::compute, removes", Step, |map| {
        map.pin().compute(key(1), |_| ticked(Ok::<_, ()>(None))).unwrap();
    }),
    ("HashMap::compute, fails", Step, |map| _ = map.pin().compute(key(1), |_| ticked(Err(Box::new(new()))))),
    ("HashMap::compute, changed meanwhile", Step, |map| {
        let mut is_first = true;
        let _ = map.pin().compute(key(1), |value| {
            if std::mem::take(&mut is_first) {
                value.map(|value| map.pin().insert(key(1), Part::new(value.n())).is_some());
            }
            ticked(Ok::<_, ()>(Some(new())))
        });
    }),
    ("HashMap::compare_exchange", Step, |map| _ = map.pin().compare_exchange(key(2), &Part::new(12), new()).is_ok()),
    ("HashMap::compare_exchange, another value", Step, |map| {
        let _ = map.pin().compare_exchange(key(2), &new(), new()).is_ok();
    }),
    ("HashMap::compare_exchange, absent", Step, |map| {
        let _ = map.pin().compare_exchange(key(4), &new(), new()).is_ok();
    }),
    ("HashMap::remove", Step, |map| _ = map.pin().remove(&Name(1))),
    ("HashMap::remove, absent", Step, |map| _ = map.pin().remove(&key(4))),
    ("HashMap::remove_entry", Step, |map| _ = map.pin().remove_entry(&Name(3))),
    ("HashMap::remove_if, true", Step, |map| _ = map.pin().remove_if(&Name(1), |_, _| ticked(true))),
    ("HashMap::remove_if, false", Step, |map| _ = map.pin().remove_if(&Name(1), |_, _| ticked(false))),
    ("HashMap::clear", Entries, |map| map.pin().clear()),
    ("HashMap::retain", Entries, |map| map.pin().retain(|key, _| ticked(key.n() % 2 == 0))),
    ("HashMap::extract_if", Entries, |map| {
        map.pin().extract_if(|key, _| ticked(key.n() % 2 == 0)).for_each(|_| tick());
    }),
    ("HashMap::drain", Entries, |map| map.pin().drain().for_each(|_| tick())),
    ("HashMap::iter", Step, |map| map.pin().iter().for_each(|_| tick())),
    ("HashMap::keys", Step, |map| map.pin().keys().for_each(|_| tick())),
    ("HashMap::values", Step, |map| map.pin().values().for_each(|_| tick())),
    ("IntoIterator for &Pinned", Step, |map| (&map.pin()).into_iter().for_each(|_| tick())),
    ("HashMap::scan", Step, |map| {
        let mut next = Some(0);
        while let Some(cursor) = next {
            next = map.pin().scan(cursor, 1, |_, _| tick());
        }
    }),
    ("Debug for HashMap", Step, |map| _ = format!("{map:?}")),
    ("Debug for Pinned", Step, |map| _ = format!("{:?}", map.pin())),
    ("PartialEq for HashMap", Step, |map| assert!(*map == map.clone())),
    ("Clone for HashMap", Step, |map| drop(map.clone())),
    ("IntoIterator for HashMap", Step, |map| map.clone().into_iter().for_each(|_| tick())),
    ("IntoIterator for HashMap, dropped on the way", Step, |map| {
        map.clone().into_iter().take(2).for_each(|_| tick());
    }),
    ("Default for HashMap", Step, |_| drop(Map::default())),
    ("Serialize for HashMap", Step, |map| _ = serde_json::to_string(map).unwrap()),
    ("Deserialize for HashMap", Step, |_| drop(serde_json::from_str::<Map>(r#"{"1": "2", "3": "4", "1": "5"}"#))),
    ("IntoParallelIterator for &Pinned", Step, |map| {
        let many: Map = build(builder().capacity(512));
        (0..40).for_each(|n| _ = many.pin().insert(key(n), new()));
        in_pool(|| {
            map.pin().par_iter().for_each(|_| tick());
            many.pin().par_iter().for_each(|_| tick());
        });
    }),
];

/// These wait for readers or for resizes.
pub const MAP_WAITING: &[Operation<Map>] = &[
    ("HashMap::clear, with the destructors", Entries, |map| {
        map.pin().clear();
        relativist_rcu::barrier();
    }),
    ("FromIterator for HashMap", Step, |_| drop(Map::from_iter(entries(0..6)))),
    ("Extend for HashMap", Step, |map| map.clone().extend(entries(1..6))),
    ("Extend for HashMap, of references", Step, |_| {
        let mut numbers = Numbers::default();
        numbers.extend([(&1, &2), (&3, &4)].map(ticked));
    }),
    ("HashMap::insert_many", Entries, |map| _ = map.insert_many(entries(1..6))),
    ("Extend for &HashMap", Entries, |mut map| map.extend(entries(1..6))),
    ("FromParallelIterator for HashMap", Step, |_| in_pool(|| drop(parallel_entries().collect::<Map>()))),
    ("ParallelExtend for HashMap", Step, |map| in_pool(|| map.clone().par_extend(parallel_entries()))),
    ("ParallelExtend for &HashMap", Entries, |mut map| in_pool(|| map.par_extend(parallel_entries()))),
];

pub const SET: &[Operation<Set>] = &[
    ("HashSet::contains", Step, |set| _ = set.pin().contains(&Name(2))),
    ("HashSet::get", Step, |set| _ = set.pin().get(&Name(2))),
    ("HashSet::insert, absent", Step, |set| _ = set.pin().insert(key(4))),
    ("HashSet::insert, present", Step, |set| _ = set.pin().insert(key(2))),
    ("HashSet::replace, absent", Step, |set| _ = set.pin().replace(key(4))),
    ("HashSet::replace, present", Step, |set| _ = set.pin().replace(key(2))),
    ("HashSet::get_or_insert, absent", Step, |set| _ = set.pin().get_or_insert(key(4))),
    ("HashSet::get_or_insert, present", Step, |set| _ = set.pin().get_or_insert(key(2))),
    ("HashSet::remove", Step, |set| _ = set.pin().remove(&Name(1))),
    ("HashSet::take", Step, |set| _ = set.pin().take(&Name(2))),
    ("HashSet::clear", Entries, |set| set.pin().clear()),
    ("HashSet::retain", Entries, |set| set.pin().retain(|element| ticked(element.n() > 1))),
    ("HashSet::extract_if", Entries, |set| {
        set.pin().extract_if(|element| ticked(element.n() > 1)).for_each(|_| tick())
    }),
    ("HashSet::drain", Entries, |set| set.pin().drain().for_each(|_| tick())),
    ("HashSet::iter", Step, |set| set.pin().iter().for_each(|_| tick())),
    ("IntoIterator for &PinnedSet", Step, |set| (&set.pin()).into_iter().for_each(|_| tick())),
    ("HashSet::union", Step, |set| set.pin().union(&other()).for_each(|_| tick())),
    ("HashSet::intersection", Step, |set| set.pin().intersection(&other()).for_each(|_| tick())),
    ("HashSet::difference", Step, |set| set.pin().difference(&other()).for_each(|_| tick())),
    ("HashSet::symmetric_difference", Step, |set| set.pin().symmetric_difference(&other()).for_each(|_| tick())),
    ("HashSet::is_subset", Step, |set| _ = set.pin().is_subset(&set.clone())),
    ("HashSet::is_superset", Step, |set| _ = set.pin().is_superset(&set.clone())),
    ("HashSet::is_disjoint", Step, |set| _ = set.pin().is_disjoint(&other())),
    ("operators of HashSet", Step, |set| {
        let other = other();
        drop((set | &other, set & &other, set - &other, set ^ &other));
    }),
    ("Debug for HashSet", Step, |set| _ = format!("{set:?}")),
    ("Debug for PinnedSet", Step, |set| _ = format!("{:?}", set.pin())),
    ("PartialEq for HashSet", Step, |set| assert!(*set == set.clone())),
    ("Clone for HashSet", Step, |set| drop(set.clone())),
    ("IntoIterator for HashSet", Step, |set| set.clone().into_iter().for_each(|_| tick())),
    ("Default for HashSet", Step, |_| drop(Set::default())),
    ("Serialize for HashSet", Step, |set| _ = serde_json::to_string(set).unwrap()),
    ("Deserialize for HashSet", Step, |_| drop(serde_json::from_str::<Set>(r#"["1", "2", "1"]"#))),
    ("IntoParallelIterator for &PinnedSet", Step, |set| in_pool(|| set.pin().par_iter().for_each(|_| tick()))),
];

/// See [`MAP_WAITING`].
pub const SET_WAITING: &[Operation<Set>] = &[
    ("FromIterator for HashSet", Step, |_| drop((0..6).map(|n| ticked(key(n))).collect::<Set>())),
    ("Extend for HashSet", Step, |set| set.clone().extend((1..6).map(|n| ticked(key(n))))),
    ("Extend for HashSet, of references", Step, |_| NumberSet::default().extend([&1, &2].map(ticked))),
    ("Extend for &HashSet", Entries, |mut set| set.extend((1..6).map(|n| ticked(key(n))))),
    ("FromParallelIterator for HashSet", Step, |_| {
        in_pool(|| drop((0..6).into_par_iter().map(|n| ticked(key(n))).collect::<Set>()));
    }),
    ("ParallelExtend for HashSet", Step, |set| {
        in_pool(|| set.clone().par_extend((1..6).into_par_iter().map(|n| ticked(key(n)))));
    }),
    ("ParallelExtend for &HashSet", Entries, |mut set| {
        in_pool(|| set.par_extend((1..6).into_par_iter().map(|n| ticked(key(n)))));
    }),
];

fn other() -> Set {
    let set = Set::default();
    (2..6).for_each(|n| _ = set.pin().insert(key(n)));
    set
}
