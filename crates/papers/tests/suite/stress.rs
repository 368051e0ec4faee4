//! Readers, updaters and a resizer at once.
//!
//! Each updater has keys of its own, so it knows what each operation on them must return.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use relativist_papers::tables::{Resize, Table};

use relativist_testing::random::Random;

/// Keys below this are there from the beginning to the end.
const RESIDENT: u64 = 400;
/// Keys of each updater.
const OWN: u64 = 200;
const UPDATERS: u64 = 2;

fn value(key: u64) -> u64 {
    !key
}

/// Returns the number of resizes. The environment can set fewer for sanitizers, and more for long
/// runs.
pub fn resizes() -> u64 {
    std::env::var("RELATIVIST_STRESS_RESIZES").map_or(40, |resizes| resizes.parse().unwrap())
}

pub fn fixed<T: Table>() {
    run::<T>(|_| (0..20).for_each(|_| thread::yield_now()));
}

pub fn resized<T: Resize>() {
    run::<T>(|table| {
        let mut random = Random::new(2);
        for _ in 0..resizes() {
            let buckets = 8 << random.below(10);
            table.resize_to(buckets);
            assert_eq!(table.buckets(), buckets);
        }
    });
}

/// Readers and updaters go on at least until `work` is done.
fn run<T: Table>(work: impl Fn(&T) + Sync) {
    let table = T::with_buckets(8);
    let done = AtomicBool::new(false);
    (0..RESIDENT).for_each(|key| assert!(table.insert(key, value(key))));
    let models: Vec<HashMap<u64, u64>> = thread::scope(|scope| {
        for seed in 0..2 {
            let (table, done) = (&table, &done);
            scope.spawn(move || look_up(table, done, seed));
        }
        let updaters: Vec<_> = (0..UPDATERS)
            .map(|updater| {
                let (table, done) = (&table, &done);
                scope.spawn(move || update(table, done, updater))
            })
            .collect();
        work(&table);
        // Relaxed: a signal only.
        done.store(true, Relaxed);
        updaters.into_iter().map(|updater| updater.join().unwrap()).collect()
    });
    for key in 0..RESIDENT {
        assert_eq!(table.get(key), Some(value(key)));
    }
    for (updater, model) in models.iter().enumerate() {
        let first = RESIDENT + updater as u64 * OWN;
        (first..first + OWN).for_each(|key| assert_eq!(table.get(key), model.get(&key).copied()));
    }
}

/// Rounds of a thread: until the others are done, but a few at least.
pub fn rounds(done: &AtomicBool) -> impl Iterator<Item = u64> {
    (0..).take_while(|&round| round < 100 || !done.load(Relaxed))
}

fn look_up<T: Table>(table: &T, done: &AtomicBool, seed: u64) {
    let mut random = Random::new(3 + seed);
    for _ in rounds(done) {
        let key = random.below(RESIDENT);
        assert_eq!(table.get(key), Some(value(key)), "resident {key}");
        let key = RESIDENT + random.below(OWN * UPDATERS);
        assert!(table.get(key).is_none_or(|found| found == value(key)), "{key}");
    }
}

fn update<T: Table>(table: &T, done: &AtomicBool, updater: u64) -> HashMap<u64, u64> {
    let mut random = Random::new(5 + updater);
    let mut model = HashMap::new();
    for _ in rounds(done) {
        let key = RESIDENT + updater * OWN + random.below(OWN);
        if random.below(2) == 0 {
            assert_eq!(table.insert(key, value(key)), model.insert(key, value(key)).is_none(), "{key}");
        } else {
            assert_eq!(table.remove(key), model.remove(&key), "{key}");
        }
        assert_eq!(table.get(key), model.get(&key).copied(), "{key}");
    }
    model
}
