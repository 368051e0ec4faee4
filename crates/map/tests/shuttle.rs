//! Models that are too large for loom, run by shuttle under many schedules, random ones and ones
//! with few preemptions (PCT). Seeds are fixed, so each run is the same. Memory is sequentially
//! consistent here; loom checks weaker orders.
//!
//! ```sh
//! RUSTFLAGS="--cfg relativist_loom --cfg relativist_shuttle" cargo test --release -p relativist --test shuttle
//! ```
//!
//! T1 to T11 are the guarantees of `relativist::design`.
#![cfg(relativist_shuttle)]

#[path = "shuttle/cache.rs"]
mod cache;
#[path = "shuttle/flat.rs"]
mod flat;
#[path = "support/hashing.rs"]
mod hashing;
#[path = "support/history.rs"]
mod history;
#[path = "shuttle/private.rs"]
mod private;
#[path = "support/random.rs"]
mod random;
#[path = "support/tracked.rs"]
#[expect(dead_code, reason = "the tests here do not compare values")]
mod tracked;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use relativist::{HashMap, Resizing};
use relativist_rcu::barrier;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::thread::{JoinHandle, spawn};
use shuttle::{Config, Runner};

use hashing::{Hashing, UNMIXED};
use history::{Recorder, check};
use random::Random;
use tracked::{Tally, Tracked};

const SEED: u64 = 1;

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.silence_warnings = true;
    config
}

/// Runs a model under this number of schedules of either kind.
fn explore(schedules: usize, model: impl Fn() + Copy + Send + Sync + 'static) {
    const PREEMPTIONS: usize = 3;
    Runner::new(RandomScheduler::new_from_seed(SEED, schedules), config()).run(model);
    Runner::new(PctScheduler::new_from_seed(SEED, PREEMPTIONS, schedules), config()).run(model);
}

/// Keys are places in the order of the table, of which there are sixteen: half of them in each of
/// the two buckets of the smallest table.
const PLACES: Hashing = Hashing(|n| (UNMIXED.0)(n << 60));

type Map<V> = Arc<HashMap<u64, V, Hashing>>;

fn map<V>(hashing: Hashing) -> Map<V> {
    Arc::new(HashMap::<u64, V>::builder().resizing(Resizing::Manual).hasher(hashing).build().unwrap())
}

fn insert(map: &Map<Tracked>, key: u64, tally: &'static Tally) {
    if let Some(old) = map.pin().insert(key, Tracked::new(key, tally)) {
        old.assert_of(key);
    }
}

/// Starts a thread that does something with the map.
fn alongside<V: Send + Sync + 'static>(map: &Map<V>, work: impl FnOnce(&Map<V>) + Send + 'static) -> JoinHandle<()> {
    let map = map.clone();
    spawn(move || work(&map))
}

/// Grows by 2 and by 4, and shrinks.
fn resize<V>(map: &Map<V>) {
    for buckets in [8, 4, 2, 4] {
        map.resize_to(buckets).unwrap();
    }
}

fn resize_at_random<V>(map: &Map<V>) {
    for _ in 0..3 {
        map.resize_to(2 << thread_rng().gen_range(0..3)).unwrap();
    }
}

/// Returns the contents of the map. Checks that all kinds of lookups agree.
fn keys(map: &Map<Tracked>) -> Vec<u64> {
    let pinned = map.pin();
    let keys: Vec<u64> = pinned.iter().inspect(|&(&key, value)| value.assert_of(key)).map(|(&key, _)| key).collect();
    assert!(keys.is_sorted_by(|a, b| a < b), "T7: iterated in the order {keys:?}");
    assert_eq!(keys.len(), map.len());
    (0..16).for_each(|key| assert_eq!(pinned.contains_key(&key), keys.contains(&key), "lookup of {key}"));
    keys
}

/// T1, T7, T8: lookups find residents, and iterations see each of them once and intact, while other
/// entries come and go and the table is resized.
#[test]
fn residents_are_found() {
    static TALLY: Tally = Tally::new();
    const RESIDENTS: [u64; 3] = [1, 5, 9];
    explore(3000, || {
        let map = map(PLACES);
        RESIDENTS.iter().for_each(|&key| insert(&map, key, &TALLY));
        let threads = [
            alongside(&map, resize),
            alongside(&map, |map| {
                for key in [4, 0, 3] {
                    insert(map, key, &TALLY);
                    insert(map, 5, &TALLY); // replaces a resident
                    map.pin().remove(&key).expect("no other thread removes it").assert_of(key);
                    barrier();
                }
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
                    assert_eq!(seen, RESIDENTS, "T7");
                }
            }),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(keys(&map), RESIDENTS);
        drop(map);
        TALLY.assert_live(0);
    });
}

/// T3: three threads operate on three keys at random while the table is resized.
fn assert_linearizable(hashing: Hashing) {
    explore(3000, move || {
        let map = map(hashing);
        let recorder = Arc::new(Recorder::new(3));
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
    assert_linearizable(Hashing(|n| (UNMIXED.0)(n << 62)));
}

#[test]
fn histories_of_keys_in_one_bucket() {
    assert_linearizable(UNMIXED);
}

/// Clearing during a resize removes all entries from before, and none from after.
#[test]
fn clear_during_a_resize() {
    static TALLY: Tally = Tally::new();
    explore(3000, || {
        let map = map(PLACES);
        [1, 4, 5, 9].into_iter().for_each(|key| insert(&map, key, &TALLY));
        let threads = [
            alongside(&map, resize_at_random),
            alongside(&map, |map| {
                map.pin().clear();
                insert(map, 4, &TALLY);
                barrier();
            }),
            alongside(&map, |map| {
                insert(map, 3, &TALLY);
                insert(map, 8, &TALLY);
                if let Some(removed) = map.pin().remove(&5) {
                    removed.assert_of(5);
                }
                barrier();
            }),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut left = keys(&map);
        assert!(left.contains(&4), "inserted after the map was cleared");
        left.retain(|&key| ![3, 4, 8].contains(&key));
        assert_eq!(left, [], "there before the map was cleared");
        drop(map);
        TALLY.assert_live(0);
    });
}

/// T10, T1: of three lookups in one section, of one key, the other, and the first again, at least
/// one finds the entry, and at least one does not. Neighbours are always found. (Resizes and
/// renames take turns.)
#[test]
fn rename_during_a_resize() {
    explore(3000, || {
        let map = map(PLACES);
        [1, 3, 5].into_iter().for_each(|key| _ = map.pin().insert(key, key));
        let threads = [
            alongside(&map, |map| resize_at_random(map)),
            alongside(&map, |map| {
                for (old, new) in [(3, 4), (4, 3), (3, 4)] {
                    map.rename(&old, new).unwrap();
                }
            }),
            alongside(&map, |map| {
                for keys in [[3, 4, 3], [4, 3, 4], [3, 4, 3]] {
                    let pinned = map.pin();
                    let seen = keys.map(|key| pinned.get(&key).copied());
                    assert!(seen.contains(&Some(3)) && seen.contains(&None), "T10: {keys:?} gave {seen:?}");
                    assert!([1, 5].iter().all(|key| pinned.contains_key(key)), "T1");
                }
            }),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let pinned = map.pin();
        assert_eq!(pinned.iter().map(|(&key, &value)| (key, value)).collect::<Vec<_>>(), [(1, 1), (4, 3), (5, 5)]);
    });
}

/// T4, T5: resizers exclude each other, and so do updates of one bucket, in any order.
#[test]
fn resizers_and_updaters_take_turns() {
    static TALLY: Tally = Tally::new();
    explore(3000, || {
        let map = map(PLACES);
        let insert_all = |map: &Map<Tracked>, keys: [u64; 3]| keys.into_iter().for_each(|key| insert(map, key, &TALLY));
        let threads = [
            alongside(&map, resize_at_random),
            alongside(&map, resize_at_random),
            alongside(&map, move |map| insert_all(map, [0, 4, 2])),
            alongside(&map, move |map| insert_all(map, [3, 1, 5])),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(keys(&map), [0, 1, 2, 3, 4, 5]);
        drop(map);
        TALLY.assert_live(0);
    });
}

/// Runs all threads in random order, and from some step on only one of them, which has to end
/// within a bounded number of steps. The others stop wherever they are, in the middle of an update
/// or a resize, with the locks that they hold.
struct Solo {
    turns: RandomScheduler,
    moments: Random,
    /// The number of steps that are left for all threads together, and then for the reader alone.
    together: u64,
    alone: u64,
}

impl Solo {
    /// The first thread that the model starts.
    const READER: usize = 1;
    const MAX_TOGETHER: u64 = 400;

    /// Creates a scheduler for this number of schedules.
    fn new(schedules: usize) -> Self {
        let turns = RandomScheduler::new_from_seed(SEED, schedules);
        Self { turns, moments: Random::new(SEED), together: 0, alone: 0 }
    }
}

static READER_IS_DONE: AtomicBool = AtomicBool::new(false);

impl Scheduler for Solo {
    fn new_execution(&mut self) -> Option<Schedule> {
        READER_IS_DONE.store(false, Relaxed);
        self.together = self.moments.below(Self::MAX_TOGETHER);
        self.alone = LOOKUPS * STEPS;
        self.turns.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        let has_started = current.is_some_and(|current| usize::from(current) > 0);
        if self.together > 0 || !has_started || READER_IS_DONE.load(Relaxed) {
            self.together = self.together.saturating_sub(1);
            return self.turns.next_task(runnable, current, is_yielding);
        }
        self.alone = self.alone.checked_sub(1).expect("T2: the reader takes more steps than its lookups may");
        let reader = runnable.iter().map(|task| task.id()).find(|&id| usize::from(id) == Self::READER);
        assert!(reader.is_some(), "T2: the reader is blocked");
        reader
    }

    fn next_u64(&mut self) -> u64 {
        self.turns.next_u64()
    }
}

/// The number of lookups of the reader, and the number of shared accesses that each may take: to
/// enter and to leave a section (the first registers the thread), to load array and head, and to
/// walk a chain, which never has more than six links.
const LOOKUPS: u64 = 12;
const STEPS: u64 = 12;

/// T2: wherever all other threads stop, lookups end, within a number of steps that only the length
/// of the chain bounds.
#[test]
fn lookups_finish_alone() {
    static TALLY: Tally = Tally::new();
    let model = || {
        let map = map(PLACES);
        [1, 5].into_iter().for_each(|key| insert(&map, key, &TALLY));
        let threads = [
            alongside(&map, |map| {
                for key in (0..6).chain(0..6) {
                    assert!(map.pin().get(&key).is_some() || ![1, 5].contains(&key), "T1: {key} was missed");
                }
                READER_IS_DONE.store(true, Relaxed);
            }),
            alongside(&map, resize),
            alongside(&map, |map| [0, 4, 2, 3].into_iter().for_each(|key| insert(map, key, &TALLY))),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(keys(&map), [0, 1, 2, 3, 4, 5]);
    };
    Runner::new(Solo::new(2000), config()).run(model);
}
