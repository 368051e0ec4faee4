//! Models of the locks of lock maps, explored by loom: all interleavings up to a number of
//! preemptions, and what the memory model allows loads to see.
//!
//! ```sh
//! RUSTFLAGS="--cfg relativist_loom" cargo test --release -p relativist --test loom
//! ```
//!
//! Loom fails a model if two threads use a value at the same time, or if a thread sleeps for ever.
#![cfg(relativist_loom)]

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use relativist::lock_map::{self, Entry, Stores};
use relativist::{Boxed, Form, Inline};

#[expect(dead_code, reason = "for models that take longer")]
#[path = "../../../table/tests/loom/models.rs"]
mod models;
use models::explore;

thread_local! {
    /// The number of values that are not dropped yet. All threads of a model run on one thread.
    static ALIVE: Cell<isize> = const { Cell::new(0) };
}

/// A value, which notices when two threads use it.
struct Value(UnsafeCell<u64>);

// SAFETY: a number may be sent to any thread.
unsafe impl Send for Value {}

impl Value {
    fn new(value: u64) -> Self {
        ALIVE.set(ALIVE.get() + 1);
        Self(UnsafeCell::new(value))
    }

    fn add(&mut self, n: u64) -> u64 {
        // SAFETY: it is borrowed mutably; loom checks that.
        self.0.with_mut(|value| unsafe {
            *value += n;
            *value
        })
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - 1);
        self.add(0);
    }
}

/// Hashes a number to itself.
#[derive(Clone, Copy, Default)]
struct Same(u64);

impl BuildHasher for Same {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Same {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Map<F = Boxed> = lock_map::Map<u64, Value, Same, F>;
type Flat = Map<Inline>;

/// Runs each action in a thread, on a map in which key 0 has the value `first`, if any. Then checks
/// that the values that the actions return and the one in the map make the sum.
fn check<F: Stores<u64, Value>>(
    preemptions: usize,
    first: Option<u64>,
    sum: u64,
    actions: &'static [fn(&Map<F>) -> u64],
) {
    explore(preemptions, move || {
        ALIVE.set(0);
        let map = Arc::new(Map::<F>::default());
        first.map(|first| map.insert(0, Value::new(first)));
        let spawn = |action: &'static fn(&Map<F>) -> u64| {
            let map = Arc::clone(&map);
            thread::spawn(move || action(&map))
        };
        let threads: Vec<_> = actions[1..].iter().map(spawn).collect();
        let mut taken = actions[0](&map);
        threads.into_iter().for_each(|thread| taken += thread.join().unwrap());
        let map = Arc::into_inner(map).expect("no other thread uses it");
        let left: u64 = map.into_iter().map(|(_, mut value)| value.add(0)).sum();
        assert_eq!(taken + left, sum, "{taken} were taken out, and {left} are left");
        relativist_rcu::barrier();
        assert_eq!(ALIVE.get(), 0, "values that are not dropped, or dropped twice");
    });
}

/// Adds 1 if the key is present. Returns what was *not* added, so that sums are equal.
fn add_if_present<F: Form>(map: &Map<F>) -> u64 {
    match map.lock(&0) {
        Some(mut value) => {
            value.add(1);
            0
        }
        None => 1,
    }
}

fn take<F: Stores<u64, Value>>(map: &Map<F>) -> u64 {
    map.remove(&0).map_or(0, |mut value| value.add(0))
}

fn sweep<F: Stores<u64, Value>>(map: &Map<F>) -> u64 {
    let mut swept = 0;
    map.retain(|_, value| {
        swept += value.add(0);
        false
    });
    swept
}

fn count<F: Stores<u64, Value>>(map: &Map<F>) -> u64 {
    map.entry(0).or_insert_with(|| Value::new(0)).add(1);
    0
}

/// Leaves a key vacant that is absent.
fn ask<F: Stores<u64, Value>>(map: &Map<F>) -> u64 {
    match map.entry(0) {
        Entry::Vacant(vacant) => drop(vacant),
        Entry::Occupied(mut entry) => _ = entry.get_mut().add(0),
    }
    0
}

fn replace<F: Stores<u64, Value>>(map: &Map<F>) -> u64 {
    map.insert(0, Value::new(5)).map_or(0, |mut value| value.add(0))
}

#[test]
fn two_changes() {
    check::<Boxed>(2, Some(10), 12, &[add_if_present, add_if_present]);
}

#[test]
fn a_change_and_a_removal() {
    check::<Boxed>(2, Some(10), 11, &[take, add_if_present]);
}

#[test]
fn two_removals() {
    check::<Boxed>(2, Some(10), 10, &[take, take]);
}

#[test]
fn a_sweep_and_a_change() {
    check::<Boxed>(2, Some(10), 11, &[sweep, add_if_present]);
}

#[test]
fn entries_and_vacant_keys() {
    check::<Boxed>(2, None, 2, &[count, count]);
    check::<Boxed>(2, None, 1, &[ask, count]);
}

#[test]
fn an_insertion_and_a_removal() {
    check::<Boxed>(2, Some(10), 15, &[take, replace]);
    check::<Boxed>(2, Some(10), 20, &[replace, replace]);
}

/// Adds 1 if the key is present, some time after it has locked it.
fn add_slowly(map: &Flat) -> u64 {
    let Some(mut value) = map.lock(&0) else { return 1 };
    thread::yield_now();
    value.add(1);
    0
}

/// B13: moves the entry to a larger array, unless it is locked.
fn grow(map: &Flat) -> u64 {
    map.try_reserve(10).unwrap();
    0
}

#[test]
fn changes_and_a_growth() {
    check(2, Some(10), 11, &[grow, add_slowly]);
    check(1, Some(10), 12, &[grow, add_if_present, add_if_present]);
}

#[test]
fn a_removal_and_a_growth() {
    check(2, Some(10), 10, &[grow, take]);
    check(1, Some(10), 11, &[grow, take, add_if_present]);
}

#[test]
fn an_entry_and_a_growth() {
    check(2, None, 1, &[grow, count]);
    check(2, None, 0, &[grow, ask]);
}

#[test]
fn a_sweep_and_a_growth() {
    check(1, Some(10), 11, &[grow, sweep, add_if_present]);
}
