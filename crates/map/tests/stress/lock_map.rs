//! Threads that change values in place, while others remove them.

use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use relativist::lock_map;

use super::Form;
use crate::hashing::{Hashing, MIXED};

type LockMap<K, V, S = RandomState> = lock_map::Map<K, V, S, Form>;

/// What the threads of [`no_change_is_lost`] have added, and what was removed.
static ADDED: AtomicU64 = AtomicU64::new(0);
static SWEPT: AtomicU64 = AtomicU64::new(0);
/// A number, and whether a sweep has decided to remove it.
#[derive(Default)]
struct Counter(u64, bool);
impl Counter {
    fn sweep(&mut self, is_swept: bool) -> bool {
        if is_swept {
            SWEPT.fetch_add(self.0, Relaxed);
        }
        self.1 = is_swept;
        is_swept
    }
}
impl Drop for Counter {
    fn drop(&mut self) {
        SWEPT.fetch_add(if self.1 { 0 } else { self.0 }, Relaxed);
    }
}

/// A change that was made through a guard is seen by whoever removes the entry: sweeps, removals
/// and `clear` beside threads that add, while the map grows and shrinks.
#[test]
fn no_change_is_lost() {
    const KEYS: u64 = 50;
    let map = LockMap::<u64, Counter, Hashing>::with_hasher(MIXED);
    let (done, sweeps, seed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let rounds = || (0..).take_while(|_| !done.load(Relaxed));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut random = relativist_testing::random::Random::new(seed.fetch_add(1, Relaxed));
                for _ in (0..).take_while(|&round| round < 50_000 || sweeps.load(Relaxed) < 500) {
                    let key = random.below(KEYS);
                    let is_added = match random.below(3) {
                        0 => map.lock(&key).map(|mut counter| counter.0 += 1).is_some(),
                        1 => map.try_lock(&key).is_ok_and(|found| found.map(|mut counter| counter.0 += 1).is_some()),
                        _ => {
                            map.entry(key).or_default().0 += 1;
                            true
                        }
                    };
                    ADDED.fetch_add(u64::from(is_added), Relaxed);
                }
                done.store(true, Relaxed);
            });
        }
        // Values that are removed without a condition count themselves when they are dropped.
        scope.spawn(|| {
            for _ in rounds() {
                map.retain(|_, counter| !counter.sweep(counter.0 % 3 == 0));
                sweeps.fetch_add(1, Relaxed);
            }
        });
        scope.spawn(|| {
            for round in rounds() {
                match round % 5 {
                    0 => map.extract_if(|key, counter| counter.sweep(key % 2 == 0)).take(5).for_each(drop),
                    1 => drop(map.remove(&(round % KEYS))),
                    2 => drop(map.remove_if(&(round % KEYS), |_, counter| counter.sweep(counter.0 > 1))),
                    3 => drop(map.insert(round % KEYS, Counter::default())),
                    _ => map.clear(),
                }
            }
        });
        scope.spawn(|| {
            for round in rounds() {
                (1000..1000 + round % 3000).for_each(|key| drop(map.insert(key, Counter::default())));
                (1000..1000 + round % 3000).for_each(|key| drop(map.remove(&key)));
            }
        });
    });
    drop(map);
    assert_eq!(SWEPT.load(Relaxed), ADDED.load(Relaxed));
}

#[test]
fn increments_of_many_threads_are_exact() {
    let map = LockMap::from([(1, 0u64)]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20_000).for_each(|_| *map.lock(&1).unwrap() += 1));
        }
    });
    assert_eq!(map.get_copied(&1), Some(80_000));
}
