//! The same for maps with a private domain.

use std::sync::Arc;

use relativist::{Builder, PrivateMap, Resizing};
use relativist_rcu::barrier;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{JoinHandle, spawn};

use crate::hashing::{Hashing, UNMIXED};
use crate::history::{Recorder, check};
use crate::tracked::{Tally, Tracked};
use crate::{PLACES, explore};

type Map<V> = PrivateMap<u64, V, Hashing>;

fn map<V>(hashing: Hashing) -> Map<V> {
    Builder::new().resizing(Resizing::Manual).hasher(hashing).build_private().unwrap()
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

/// T1, T7, T11: entries come and go, and are dropped in two steps, while the table is resized. A
/// handle that was made before is used by another thread: what it finds stays, and it delays no
/// resize.
#[test]
fn entries_wait_for_a_handle_that_moves() {
    static TALLY: Tally = Tally::new();
    const RESIDENTS: [u64; 3] = [1, 5, 9];
    explore(2000, || {
        let owned = Box::into_raw(Box::new(map(PLACES)));
        // SAFETY: it lives until all threads have been joined.
        let map: &'static Map<Tracked> = unsafe { &*owned };
        [1, 4, 5, 9].iter().for_each(|&key| insert(map, key, &TALLY));
        let pinned = map.pin();
        let coming = pinned.get(&4).expect("no other thread removes it yet");
        let threads: [JoinHandle<()>; 3] = [
            spawn(move || resize_at_random(map)),
            spawn(move || {
                for key in [4, 0, 3] {
                    insert(map, key, &TALLY);
                    insert(map, 5, &TALLY); // replaces a resident
                    map.pin().remove(&key).expect("no other thread removes it").assert_of(key);
                    map.reclaim();
                    barrier();
                }
            }),
            spawn({
                let address = std::ptr::from_ref(coming) as usize;
                move || {
                    for _ in 0..3 {
                        for key in RESIDENTS {
                            pinned.get(&key).unwrap_or_else(|| panic!("T1: {key} was missed")).assert_of(key);
                        }
                        let mut seen: Vec<u64> =
                            pinned.iter().inspect(|&(&key, value)| value.assert_of(key)).map(|(&k, _)| k).collect();
                        seen.retain(|key| RESIDENTS.contains(key));
                        assert_eq!(seen, RESIDENTS, "T7");
                    }
                    // SAFETY: it was found by this handle, which moved here.
                    unsafe { &*(address as *const Tracked) }.assert_of(4);
                }
            }),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        while map.reclaim() > 0 {}
        assert_eq!(TALLY.live(), RESIDENTS.len() as u64);
        // SAFETY: from a box, and all threads that use it have ended.
        drop(unsafe { Box::from_raw(owned) });
        TALLY.assert_live(0);
    });
}

/// T3: three threads operate on three keys at random while the table is resized.
#[test]
fn histories() {
    for hashing in [UNMIXED, Hashing(|n| (UNMIXED.0)(n << 62))] {
        explore(1000, move || {
            let map = Arc::new(map(hashing));
            let recorder = Arc::new(Recorder::new(3));
            let threads: [_; 3] = std::array::from_fn(|_| {
                let (map, recorder, seed) = (map.clone(), recorder.clone(), thread_rng().r#gen());
                spawn(move || recorder.record(&&*map, 8, seed))
            });
            let resizer = {
                let map = map.clone();
                spawn(move || resize_at_random(&map))
            };
            let histories = threads.map(|thread| thread.join().unwrap());
            resizer.join().unwrap();
            let result = check(&histories);
            assert!(result.is_ok(), "T3: not linearizable: {result:#?}");
        });
    }
}
