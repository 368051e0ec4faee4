//! Models of moves of an entry to another key during lookups and updates, explored by loom: all
//! interleavings up to a number of preemptions, and what the memory model allows loads to see.
//!
//! ```sh
//! RUSTFLAGS="--cfg relativist_loom" cargo test --release -p relativist-baselines --test loom
//! ```
//!
//! K1 to K7 are the guarantees of `key_move`. A table has two chains, for even and for odd keys.
#![cfg(relativist_loom)]

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use loom::cell::UnsafeCell;
use loom::thread;
use relativist_papers::tables::key_move::{KeyMove, MoveError};
use relativist_rcu::{Guard, barrier, read};

/// The hash of a key is the key.
#[derive(Clone, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The value of an entry, which is the entry's first key. Loom fails the model if a read races with
/// the write before it is published, or with that of its drop.
struct Value(UnsafeCell<u64>);

const DROPPED: u64 = u64::MAX;

// SAFETY: loom checks that no other access races with a write.
unsafe impl Sync for Value {}
// SAFETY: a number may be sent to any thread.
unsafe impl Send for Value {}

impl Value {
    fn get(&self) -> u64 {
        // SAFETY: loom checks that no write races with this.
        self.0.with(|value| unsafe { *value })
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: loom checks that no read races with this.
        self.0.with_mut(|value| unsafe { *value = DROPPED });
    }
}

struct Scene(KeyMove<BuildHasherDefault<Identity>, Value>);

impl Scene {
    /// Each entry of a chain is before those that are named before it.
    fn new(keys: &[u64]) -> Arc<Self> {
        let scene = Self(KeyMove::new(2));
        keys.iter().for_each(|&key| scene.insert(key));
        Arc::new(scene)
    }

    fn insert(&self, key: u64) {
        assert!(self.0.insert(key, Value(UnsafeCell::new(key))), "{key} is present");
    }

    fn move_key(&self, old: u64, new: u64) {
        assert_eq!(self.0.move_key(old, new), Ok(()), "{old} to {new}");
    }

    /// Returns the value of a key.
    fn find(&self, key: u64, guard: &Guard) -> Option<u64> {
        self.0.find(key, guard).map(Value::get)
    }

    /// Looks a key up in a section of its own.
    fn has(&self, key: u64) -> bool {
        self.find(key, &read()).is_some()
    }

    /// Checks that the table has these keys of the first six, when no other thread uses it.
    fn assert_holds(&self, keys: &[u64]) {
        (0..6).for_each(|key| assert_eq!(self.has(key), keys.contains(&key), "{key}"));
    }
}

/// Starts a thread that uses the scene.
fn alongside<T: 'static>(
    scene: &Arc<Scene>,
    action: impl FnOnce(&Scene) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let scene = scene.clone();
    thread::spawn(move || action(&scene))
}

/// Explores a model with three preemptions, or `LOOM_MAX_PREEMPTIONS`.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.max_branches = 10_000;
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        model();
    });
    println!("{} executions", executions.load(Relaxed));
}

/// Between chains, and within one.
const WAYS: [(u64, u64); 2] = [(0, 1), (0, 4)];

/// K1, K2.
#[test]
fn lookups_in_one_section() {
    for (old, new) in WAYS {
        explore(move || {
            let scene = Scene::new(&[old]);
            let mover = alongside(&scene, move |scene| scene.move_key(old, new));
            let guard = read();
            let found = [old, new, old].map(|key| scene.find(key, &guard));
            drop(guard);
            assert!(found.contains(&Some(old)), "under neither key");
            assert!(found.contains(&None), "under both keys");
            mover.join().unwrap();
            scene.assert_holds(&[new]);
        });
    }
}

/// K1.
#[test]
fn lookups_in_sections_of_their_own() {
    for (old, new) in WAYS {
        explore(move || {
            let scene = Scene::new(&[old]);
            let mover = alongside(&scene, move |scene| scene.move_key(old, new));
            if scene.has(new) {
                assert!(!scene.has(old), "under the old key after the new one");
            } else if !scene.has(old) {
                assert!(scene.has(new), "under neither key");
            }
            mover.join().unwrap();
        });
    }
}

/// K2: a second move takes effect when the section that saw the first has ended.
#[test]
fn lookups_during_two_moves() {
    for others_entry in [false, true] {
        explore(move || {
            let scene = Scene::new(&[0, 3]);
            let mover = alongside(&scene, move |scene| {
                scene.move_key(0, 1);
                scene.move_key(if others_entry { 3 } else { 1 }, 0);
            });
            let guard = read();
            let found = [0, 1, 0].map(|key| scene.find(key, &guard));
            drop(guard);
            let mut own = found.map(|value| value == Some(0)).into_iter();
            assert!(own.clone().any(|found| found), "under neither key: {found:?}");
            assert!(own.any(|found| !found), "under both keys: {found:?}");
            mover.join().unwrap();
            scene.assert_holds(if others_entry { &[0, 1] } else { &[0, 3] });
        });
    }
}

/// K3: a lookup that is at an entry when the entry leaves the chain still finds those after it.
#[test]
fn lookups_of_other_entries() {
    for (old, new) in WAYS {
        for resident in [2, 3] {
            explore(move || {
                let scene = Scene::new(&[2, 3, old]);
                let mover = alongside(&scene, move |scene| scene.move_key(old, new));
                assert_eq!(scene.find(resident, &read()), Some(resident), "a resident was missed");
                mover.join().unwrap();
            });
        }
    }
}

/// K1: what a lookup finds in flight, or in the new chain, it finds as it was inserted.
#[test]
fn lookups_of_an_entry_that_was_just_inserted() {
    for (old, new) in WAYS {
        explore(move || {
            let scene = Scene::new(&[]);
            let mover = alongside(&scene, move |scene| {
                scene.insert(old);
                scene.move_key(old, new);
            });
            let guard = read();
            let found = [old, new].map(|key| scene.find(key, &guard));
            assert!(found.into_iter().flatten().all(|value| value == old));
            drop(guard);
            mover.join().unwrap();
        });
    }
}

/// K1, K7: a removal takes its turn after a move, and removes the entry for good.
#[test]
fn a_removal_by_another_thread() {
    explore(|| {
        let scene = Scene::new(&[0]);
        let remover = alongside(&scene, |scene| {
            let is_removed = scene.0.remove(1);
            assert!(!is_removed || !scene.has(1), "found after its removal");
            is_removed
        });
        scene.move_key(0, 1);
        let is_removed = remover.join().unwrap();
        scene.assert_holds(if is_removed { &[] } else { &[1] });
    });
}

/// K4, K7: a value stays as long as the section that found it, whatever becomes of the entry.
#[test]
fn references_to_a_moved_entry() {
    explore(|| {
        let scene = Scene::new(&[0]);
        let mover = alongside(&scene, |scene| {
            scene.move_key(0, 1);
            assert!(scene.0.remove(1));
            barrier();
        });
        let guard = read();
        if let Some(value) = scene.0.find(1, &guard).or_else(|| scene.0.find(0, &guard)) {
            assert_eq!(value.get(), 0);
            thread::yield_now();
            assert_eq!(value.get(), 0, "dropped while a reader had it");
        }
        drop(guard);
        mover.join().unwrap();
    });
}

/// K6: two threads move the same entry, or two entries to the same key: one of them fails.
#[test]
fn moves_by_two_threads() {
    for (one, other) in [((0, 1), (0, 4)), ((0, 1), (2, 1))] {
        explore(move || {
            let scene = Scene::new(&[0, 2]);
            let mover = alongside(&scene, move |scene| scene.0.move_key(one.0, one.1));
            let second = scene.0.move_key(other.0, other.1);
            let error = if one.0 == other.0 { MoveError::NotFound } else { MoveError::Taken };
            let (old, new) = match (mover.join().unwrap(), second) {
                (Ok(()), Err(failed)) if failed == error => one,
                (Err(failed), Ok(())) if failed == error => other,
                results => panic!("{results:?}"),
            };
            scene.assert_holds(&[2 - old, new]);
        });
    }
}
