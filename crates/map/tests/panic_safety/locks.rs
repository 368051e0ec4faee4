//! All operations of lock maps that call user code.

use rayon::prelude::*;
use relativist::lock_map::{self, Entry};

use super::Form;
use super::explore::{Subject, test};
use super::operations::Effect::{Entries, Step};
use super::operations::{Operation, key, new};
use crate::parts::{Name, Part, Ticking, in_pool, tick, ticked};

type Map<K = Part, V = Part> = lock_map::Map<K, V, Ticking, Form>;
type OccupiedEntry<'m> = lock_map::OccupiedEntry<'m, Part, Part, Ticking, Form>;

impl Subject for Map {
    fn new() -> Self {
        let map = Self::with_hasher(Ticking::default());
        (0..4).for_each(|n| map.put(n, n + 10));
        map
    }

    fn iterated(&self) -> Vec<(u64, u64)> {
        self.iter().map(|entry| (entry.key().n(), entry.n())).collect()
    }

    fn found(&self, key: u64) -> Option<u64> {
        let found = self.lock(&Name(key)).map(|value| value.n());
        assert_eq!(self.contains_key(&Name(key)), found.is_some());
        found
    }

    fn len(&self) -> usize {
        Self::len(self)
    }

    fn room(&self) -> usize {
        self.capacity()
    }

    fn put(&self, key: u64, value: u64) {
        self.insert(Part::new(key), Part::new(value));
    }

    fn remove(&self, key: u64) {
        Self::remove(self, &Name(key));
    }

    fn grow_and_shrink(&self) {
        self.try_reserve(1000).unwrap();
        if self.len() < 100 {
            self.shrink_to_fit().unwrap();
        }
    }
}

fn made() -> Part {
    ticked(new())
}

/// Keys 0 to 3 are present, 4 and 5 are absent. Keys 0, 1, 2 and 4 have the same hash.
const LOCK_MAP: &[Operation<Map>] = &[
    ("LockMap::lock", Step, |map| _ = map.lock(&Name(2)).map(|_| tick())),
    ("LockMap::lock, absent", Step, |map| _ = map.lock(&Name(4))),
    ("LockMap::lock, changes the value", Step, |map| {
        if let Some(mut value) = map.lock(&Name(2)) {
            *value = made();
        }
    }),
    ("LockMap::try_lock", Step, |map| _ = map.try_lock(&Name(2)).map(|_| tick())),
    ("LockMap::get_copied", Step, |_| {
        let numbers: Map<u64, u64> = Map::default();
        numbers.insert(1, 2);
        assert_eq!(numbers.get_copied(&1), Some(2));
    }),
    ("LockMap::get_cloned", Step, |map| _ = map.get_cloned(&Name(2))),
    ("LockMap::contains_key", Step, |map| _ = map.contains_key(&key(2))),
    ("LockMap::iter", Step, |map| map.iter().for_each(|_| tick())),
    ("LockMap::alter_all", Entries, |map| {
        map.alter_all(|key, value| {
            if key.n() < 1000 {
                *value = made();
            }
        });
    }),
    ("LockMap::insert, absent", Step, |map| _ = map.insert(key(4), new())),
    ("LockMap::insert, present", Step, |map| _ = map.insert(key(2), new())),
    ("LockMap::entry, absent", Step, |map| _ = map.entry(key(4))),
    ("LockMap::entry, present", Step, |map| _ = map.entry(key(2))),
    ("LockMap::entry_ref, absent", Step, |map| _ = map.entry_ref(&Name(4)).or_insert_with(made)),
    ("LockMap::entry_ref, present", Step, |map| _ = map.entry_ref(&Name(2)).or_insert_with(made)),
    ("LockMap::remove", Step, |map| _ = map.remove(&Name(1))),
    ("LockMap::remove, absent", Step, |map| _ = map.remove(&key(4))),
    ("LockMap::remove_entry", Step, |map| _ = map.remove_entry(&Name(1))),
    ("LockMap::remove_if, true", Step, |map| _ = map.remove_if(&Name(1), |_, _| ticked(true))),
    ("LockMap::remove_if, false", Step, |map| _ = map.remove_if(&Name(1), |_, _| ticked(false))),
    ("LockMap::retain", Entries, |map| map.retain(|key, _| ticked(key.n() % 2 == 0))),
    ("LockMap::extract_if", Entries, |map| {
        map.extract_if(|key, _| ticked(key.n() % 2 == 0)).for_each(|_| tick());
    }),
    ("LockMap::clear", Entries, |map| map.clear()),
    ("LockMap::try_reserve", Step, |map| map.try_reserve(500).unwrap()),
    ("LockMap::shrink_to_fit", Step, |map| {
        if map.len() < 100 {
            map.shrink_to_fit().unwrap();
        }
    }),
    ("Entry::key", Step, |map| assert_eq!((map.entry(key(1)).key().n(), map.entry(key(4)).key().n()), (1, 4))),
    ("Entry::and_modify, present", Step, |map| _ = map.entry(key(2)).and_modify(|value| *value = made())),
    ("Entry::and_modify, absent", Step, |map| {
        let captured = new();
        _ = map.entry(key(4)).and_modify(move |_| drop(captured));
    }),
    ("Entry::or_insert, absent", Step, |map| _ = map.entry(key(4)).or_insert(new())),
    ("Entry::or_insert, present", Step, |map| _ = map.entry(key(2)).or_insert(new())),
    ("Entry::or_insert_with, absent", Step, |map| _ = map.entry(key(4)).or_insert_with(made)),
    ("Entry::or_insert_with_key, absent", Step, |map| _ = map.entry(key(4)).or_insert_with_key(|_| made())),
    ("Entry::or_try_insert_with, absent", Step, |map| {
        _ = map.entry(key(4)).or_try_insert_with(|| Ok::<_, ()>(made()));
    }),
    ("Entry::or_try_insert_with, fails", Step, |map| {
        _ = map.entry(key(4)).or_try_insert_with(|| Err(Box::new(made())));
    }),
    ("Entry::or_default, absent", Step, |map| _ = map.entry(key(4)).or_default()),
    ("Entry::insert, present", Step, |map| _ = map.entry(key(2)).insert(new())),
    ("Entry::insert_entry, absent", Step, |map| _ = map.entry(key(4)).insert_entry(new())),
    ("Entry::insert_entry, present", Step, |map| _ = map.entry(key(2)).insert_entry(new())),
    ("OccupiedEntry::key", Step, |map| _ = occupied(map, |entry| entry.key().n())),
    ("OccupiedEntry::get", Step, |map| _ = occupied(map, |entry| entry.get().n())),
    ("OccupiedEntry::get_mut", Step, |map| occupied(map, |mut entry| *entry.get_mut() = made())),
    ("OccupiedEntry::into_ref", Step, |map| occupied(map, |entry| *entry.into_ref() = made())),
    ("OccupiedEntry::insert", Step, |map| _ = occupied(map, |mut entry| entry.insert(new()).n())),
    ("OccupiedEntry::remove", Step, |map| _ = occupied(map, |entry| entry.remove().n())),
    ("OccupiedEntry::remove_entry", Step, |map| _ = occupied(map, |entry| entry.remove_entry().1.n())),
    ("Clone", Step, |map| drop(map.clone())),
    ("Debug", Step, |map| _ = format!("{map:?}")),
    ("Extend", Entries, |mut map| map.extend((3..6).map(|n| ticked((key(n), new()))))),
    ("FromIterator", Step, |_| drop((3..6).map(|n| ticked((key(n), new()))).collect::<Map>())),
    ("IntoIterator", Step, |map| map.clone().into_iter().take(2).for_each(|_| tick())),
    ("Serialize", Step, |map| _ = serde_json::to_string(map)),
    ("Deserialize", Step, |map| {
        if let Ok(json) = serde_json::to_string(map) {
            _ = serde_json::from_str::<Map>(&json);
        }
    }),
    ("ParallelIterator", Step, |map| in_pool(|| map.par_iter().for_each(|_| tick()))),
    ("FromParallelIterator", Step, |_| {
        in_pool(|| drop((0..6).into_par_iter().map(|n| ticked((key(n), new()))).collect::<Map>()));
    }),
];

fn occupied<R>(map: &Map, act: impl FnOnce(OccupiedEntry<'_>) -> R) -> R {
    let Entry::Occupied(entry) = map.entry(key(1)) else { panic!("it is in the map") };
    act(entry)
}

#[allow(dead_code, reason = "used for one form")]
pub fn names() -> impl Iterator<Item = &'static str> {
    LOCK_MAP.iter().map(|(name, ..)| *name)
}

#[test]
fn lock_maps_survive_each_panic() {
    test(LOCK_MAP);
}
