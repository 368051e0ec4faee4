//! The same for flat maps.

use std::sync::Arc;

use relativist::flat::{Builder, FlatMap};
use relativist::{Relocatable, Resizing};
use relativist_rcu::{barrier, clock};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{JoinHandle, spawn};

use crate::hashing::{Hashing, UNMIXED};
use crate::history::{Recorder, check};
use crate::tracked::{Tally, Tracked};
use crate::{PLACES, explore};

type Map<V> = Arc<FlatMap<u64, V, Hashing>>;

fn map<V: Relocatable>(hashing: Hashing) -> Map<V> {
    Arc::new(Builder::new().resizing(Resizing::Manual).hasher(hashing).build().unwrap())
}

/// Starts a thread that does something with the map.
fn alongside<V: Send + Sync + 'static>(map: &Map<V>, work: impl FnOnce(&Map<V>) + Send + 'static) -> JoinHandle<()> {
    let map = map.clone();
    spawn(move || work(&map))
}

fn insert(map: &Map<Tracked>, key: u64, tally: &'static Tally) {
    if let Some(old) = map.pin().insert(key, Tracked::new(key, tally)) {
        old.assert_of(key);
    }
}

fn resize_at_random<V>(map: &Map<V>) {
    for _ in 0..3 {
        map.resize_to(2 << thread_rng().gen_range(0..3)).unwrap();
    }
}

/// T1, T7, T8: lookups find residents, and iterations see each of them once and intact, while other
/// entries come and go and the table is resized. Its first bucket has entries in later segments.
#[test]
fn residents_are_found() {
    static TALLY: Tally = Tally::new();
    const RESIDENTS: [u64; 4] = [1, 5, 6, 9];
    explore(20_000, || {
        let map = map(PLACES);
        RESIDENTS.iter().for_each(|&key| insert(&map, key, &TALLY));
        let threads = [
            alongside(&map, resize_at_random),
            alongside(&map, |map| {
                for key in [4, 0, 3, 4] {
                    insert(map, key, &TALLY);
                    insert(map, 5, &TALLY); // replaces a resident
                    map.pin().remove(&key).expect("no other thread removes it").assert_of(key);
                    clock::drive(); // Slots may be used again.
                }
                barrier();
            }),
            alongside(&map, |map| {
                for _ in 0..3 {
                    let pinned = map.pin();
                    for key in RESIDENTS {
                        pinned.get(&key).unwrap_or_else(|| panic!("T1: {key} was missed")).assert_of(key);
                    }
                    let mut seen: Vec<u64> =
                        pinned.iter().inspect(|&(&key, value)| value.assert_of(key)).map(|(&k, _)| k).collect();
                    seen.retain(|key| RESIDENTS.contains(key));
                    seen.sort_unstable();
                    assert_eq!(seen, RESIDENTS, "T7");
                }
            }),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut left: Vec<u64> = map.pin().keys().copied().collect();
        left.sort_unstable();
        assert_eq!(left, RESIDENTS);
        drop(map);
        TALLY.assert_live(0);
    });
}

/// T3: three threads operate on some keys at random while the table is resized.
fn assert_linearizable(hashing: Hashing, keys: usize) {
    explore(3000, move || {
        let map = map(hashing);
        let recorder = Arc::new(Recorder::new(keys));
        let threads: [_; 3] = std::array::from_fn(|_| {
            let (map, recorder, seed) = (map.clone(), recorder.clone(), thread_rng().r#gen());
            spawn(move || recorder.record(&&*map, 8, seed))
        });
        let resizer = alongside(&map, resize_at_random);
        let histories = threads.map(|thread| thread.join().unwrap());
        resizer.join().unwrap();
        let result = check(&histories);
        assert!(result.is_ok(), "T3: not linearizable: {result:#?}");
    });
}

#[test]
fn histories_of_keys_in_different_buckets() {
    assert_linearizable(Hashing(|n| (UNMIXED.0)(n << 62)), 3);
}

/// More keys than a first segment has slots.
#[test]
fn histories_of_keys_in_one_bucket() {
    assert_linearizable(UNMIXED, 6);
}
