//! One thread does the same to the table and to std's map.

use std::collections::HashMap;

use relativist_bucket::{Boxed, Holds, Inline, Private, Table};

use crate::scene::{Chosen, Entry, PART, Random};

fn check<F: Holds<Entry>>(table: &Table<Entry, F>, model: &HashMap<u64, u64>, keys: Chosen) {
    let section = table.enter();
    let mut seen: Vec<(u64, u64)> = section.iter(&keys).map(|entry| (entry.key, *entry.boxed)).collect();
    seen.sort_unstable();
    let mut wanted: Vec<(u64, u64)> = model.iter().map(|(&key, &value)| (key, value)).collect();
    wanted.sort_unstable();
    assert_eq!(seen, wanted);
    assert_eq!(table.len(), model.len());
}

/// `space` keys, of which `shared` have the same hash.
fn behaves_like_a_map<F: Holds<Entry>>(space: u64, shared: u64, operations: u64, keeps_guard: bool) {
    let keys = Chosen { shared };
    let table: Table<Entry, F> = Table::new(0).unwrap();
    let mut model = HashMap::new();
    let mut random = Random(space ^ shared);
    let kept = keeps_guard.then(|| table.enter());
    let mut growing = true;
    for value in 0..operations {
        let key = random.below(space);
        let hash = keys.hash_of(key);
        let is_it = |entry: &Entry| entry.key == key;
        if random.below(operations / 8 + 1) == 0 {
            growing = !growing;
        }
        let section = table.enter();
        let found = section.find(hash, is_it);
        assert_eq!(found.map(|entry| *entry.boxed), model.get(&key).copied());
        match random.below(if growing { 8 } else { 16 }) {
            0..4 => {
                let old = section.insert(hash, Entry::new(key, value), &keys);
                assert_eq!(old.map(|entry| *entry.boxed), model.insert(key, value));
            }
            4 => match (section.try_insert(hash, Entry::new(key, value), &keys), model.get(&key)) {
                (Err((current, _)), Some(&present)) => assert_eq!(current.value, present),
                (Ok(_), None) => _ = model.insert(key, value),
                _ => panic!("{key} is in only one of them"),
            },
            5 => {
                if let Some(found) = found {
                    let new = section.replace(hash, found, Entry::new(key, value), &keys).unwrap();
                    assert_eq!(*new.boxed, value);
                    assert!(section.replace(hash, found, Entry::new(key, 0), &keys).is_err());
                    model.insert(key, value);
                }
            }
            6 => {
                if let Some(found) = found {
                    assert!(section.remove_exactly(hash, found, &keys));
                    assert!(!section.remove_exactly(hash, found, &keys));
                    model.remove(&key);
                }
            }
            _ => {
                let removed = section.remove(hash, is_it, &keys);
                assert_eq!(removed.map(|entry| *entry.boxed), model.remove(&key));
            }
        }
        drop(section);
        if value % (operations / 16) == 0 {
            check(&table, &model, keys);
        }
        if random.below(operations / 2) == 0 {
            table.clear().unwrap();
            model.clear();
        }
    }
    check(&table, &model, keys);
    drop(kept);
    resizes_by_hand(table, &model, keys);
}

/// The entries survive a shrink and a growth, and can be taken out.
fn resizes_by_hand<F: Holds<Entry>>(table: Table<Entry, F>, model: &HashMap<u64, u64>, keys: Chosen) {
    const MORE: usize = 10_000 / PART as usize;
    table.shrink_to_fit(&keys).unwrap();
    assert!(table.buckets() <= (model.len() / 2).next_power_of_two().max(2), "{} {}", table.buckets(), model.len());
    check(&table, model, keys);
    table.reserve(MORE, &keys).unwrap();
    assert!(table.capacity() >= MORE);
    check(&table, model, keys);
    let mut entries: Vec<u64> = table.into_entries().map(|entry| entry.key).collect();
    entries.sort_unstable();
    entries.dedup();
    assert_eq!(entries.len(), model.len());
}

fn each_case<F: Holds<Entry>>() {
    for keeps_guard in [false, true] {
        for (space, shared, operations) in
            [(20, 1, 2_000), (5_000, 1, 40_000), (5_000, 3, 20_000), (60, 60, 4_000), (3_000, 20, 20_000)]
        {
            behaves_like_a_map::<F>(space, shared, operations / PART, keeps_guard);
        }
    }
}

#[test]
fn boxed_entries() {
    each_case::<Boxed>();
}

#[test]
fn inline_entries() {
    each_case::<Inline>();
}

#[test]
fn private_entries() {
    each_case::<Private>();
}

/// The table grows by itself when it has 4.5 entries per bucket, and shrinks by itself.
#[test]
fn sizes() {
    const KEYS: u64 = 100_000 / PART;
    fn grows_and_shrinks<F: Holds<Entry>>() {
        let keys = Chosen { shared: 1 };
        let table: Table<Entry, F> = Table::new(0).unwrap();
        let empty = table.buckets();
        for key in 0..KEYS {
            table.enter().insert(keys.hash_of(key), Entry::new(key, 0), &keys);
            let load = table.len() / table.buckets();
            assert!(load <= 6, "{load} entries per bucket at {key}");
        }
        let most = table.buckets();
        assert!(most >= KEYS as usize / 6);
        for key in 0..KEYS {
            table.enter().remove(keys.hash_of(key), |entry| entry.key == key, &keys).expect("it is there");
        }
        assert!(table.is_empty());
        table.shrink_to_fit(&keys).unwrap();
        assert_eq!(table.buckets(), empty);
    }
    grows_and_shrinks::<Boxed>();
    grows_and_shrinks::<Inline>();
    grows_and_shrinks::<Private>();
}
/// A table that was made for many entries, and shrinks in several steps, keeps its entries.
#[test]
fn shrinks_below_its_first_size() {
    fn keeps<F: Holds<Entry>>() {
        let keys = Chosen { shared: 1 };
        let table: Table<Entry, F> = Table::new(10_000).unwrap();
        (0..50).for_each(|key| assert!(table.enter().insert(keys.hash_of(key), Entry::new(key, 0), &keys).is_none()));
        table.shrink_to_fit(&keys).unwrap();
        assert_eq!(table.buckets(), 16);
        let section = table.enter();
        for key in 0..50 {
            assert!(section.find(keys.hash_of(key), |entry| entry.key == key).is_some(), "{key}");
        }
    }
    keeps::<Boxed>();
    keeps::<Inline>();
    keeps::<Private>();
}
