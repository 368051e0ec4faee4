//! How much memory maps take while a reader stays in its section, and after that. A program
//! of its own, because it replaces the global allocator, and because sections delay what other
//! tests have deferred.
#![cfg(not(relativist_loom))]

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use relativist::{FlatMap, read};
use relativist_rcu::barrier;
use relativist_testing::wait_until;

use counting::ALLOCATED;

#[path = "support/counting.rs"]
mod counting;

/// The bytes of a bucket, or of a later segment, of a map with entries of 16 bytes.
const SEGMENT: usize = 8 + 128;

/// Arrays are mapped from this size on, and then not counted here.
const MAX_COUNTED: usize = 2 << 20;

/// Tests take turns: they count the memory of the process, and their sections delay each other.
static TURN: Mutex<()> = Mutex::new(());

fn take_turn() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    barrier();
    turn
}

/// Returns the bytes that are allocated, without those that were at the time of `before`.
fn since(before: usize) -> usize {
    ALLOCATED.load(Relaxed).saturating_sub(before)
}

/// Waits until `bytes` and no more are allocated.
#[track_caller]
fn assert_shrinks_to(bytes: usize, before: usize) {
    wait_until(&format!("at most {bytes} bytes"), || {
        barrier();
        since(before) <= bytes
    });
}

/// The loop that users of other maps write: one handle for all insertions, in several threads. The
/// map grows, and replaced arrays take less than the present one all together.
#[test]
fn a_map_grows_under_the_handle_that_fills_it() {
    const ENTRIES: u64 = 1 << 18;
    let _turn = take_turn();
    let map = FlatMap::new();
    let pinned = map.pin();
    let before = ALLOCATED.load(Relaxed);
    for n in 0..ENTRIES / 2 {
        pinned.insert(n, n);
        if n.is_power_of_two() && n >= 64 {
            let array = map.capacity() * 2 / 9 * SEGMENT;
            // The present array, the next one, and those that were replaced; and later segments of
            // buckets that have waited for a growth.
            let most = array * 10 + n as usize * SEGMENT / 4 + (64 << 10);
            assert!(array >= MAX_COUNTED || since(before) < most, "{} bytes at {n}", since(before));
        }
    }
    thread::scope(|scope| {
        for half in 0..2 {
            let map = &map;
            scope.spawn(move || {
                let pinned = map.pin();
                (ENTRIES / 2..ENTRIES).filter(|n| n % 2 == half).for_each(|n| _ = pinned.insert(n, n));
            });
        }
    });
    assert!(map.capacity() as u64 >= ENTRIES * 9 / 10);
    assert!((0..ENTRIES).all(|n| pinned.get(&n) == Some(&n)));
    assert_eq!((map.len() as u64, pinned.iter().count() as u64), (ENTRIES, ENTRIES));
    drop(pinned);
    drop(map);
    assert_shrinks_to(64 << 10, before);
}

/// Slots cannot be used again under the handle. So buckets get more segments, and lose them later.
fn churn<V: relativist::Relocatable + PartialEq + std::fmt::Debug>(value: fn(u64) -> V, bytes: usize) {
    const KEYS: u64 = 200;
    let map = FlatMap::with_capacity(2 * KEYS as usize);
    (0..KEYS).for_each(|n| _ = map.pin().insert(n, value(n)));
    barrier();
    let before = ALLOCATED.load(Relaxed);
    let pinned = map.pin();
    for round in 0..200 {
        for n in 0..KEYS {
            assert_eq!(pinned.remove(&n), Some(&value(n)));
            assert_eq!(pinned.insert(n, value(n)), None);
            assert_eq!(pinned.insert(n, value(n)), Some(&value(n)));
        }
        assert_eq!((pinned.iter().count() as u64, map.len() as u64), (KEYS, KEYS), "round {round}");
    }
    drop(pinned);
    assert_shrinks_to(bytes, before);
    // Nor does memory grow with the number of such phases.
    for _ in 0..50 {
        let pinned = map.pin();
        for n in 0..KEYS {
            pinned.remove(&n);
            pinned.insert(n, value(n));
        }
    }
    assert_shrinks_to(bytes, before);
    drop(map);
}

/// Two later segments for each of 128 buckets, and the queue of deferred functions.
const AFTER_CHURN: usize = 128 * 2 * SEGMENT + (32 << 10);

#[test]
fn churn_under_a_handle_leaves_little() {
    let _turn = take_turn();
    churn(|n| n, AFTER_CHURN);
}

#[test]
fn churn_of_values_to_drop_under_a_handle_leaves_little() {
    let _turn = take_turn();
    // Segments are larger, the values take memory, and each of two threads keeps some memory of
    // entries that it has dropped.
    churn(|n| vec![n; 4], AFTER_CHURN * 2 + 2 * (256 << 10));
}

/// A map that grows and shrinks in turn while a reader stays keeps a few arrays only: it does not
/// shrink as long as the reader stays.
#[test]
fn a_reader_that_stays_keeps_few_arrays() {
    const ENTRIES: u64 = 5000;
    let _turn = take_turn();
    let before = ALLOCATED.load(Relaxed);
    let map: FlatMap<u64, u64> = FlatMap::new();
    let guard = read();
    thread::scope(|scope| {
        let work = || {
            for _ in 0..10 {
                (0..ENTRIES).for_each(|n| _ = map.pin().insert(n, n));
                (0..ENTRIES).for_each(|n| _ = map.pin().remove(&n));
                thread::sleep(Duration::from_millis(2));
            }
        };
        scope.spawn(work).join().unwrap();
    });
    // Later segments of vacated slots are replaced, too, up to the bound of deferred functions.
    let most = 2048 * SEGMENT * 8;
    assert!(since(before) < most + relativist_rcu::MAX_DEFERRED_BYTES, "{} bytes", since(before));
    drop(guard);
    // The map shrinks when the reader has left, as soon as removals ask for it.
    wait_until("the map to shrink", || {
        (0..5000).for_each(|n| _ = map.pin().insert(n, n));
        (0..5000).for_each(|n| _ = map.pin().remove(&n));
        map.capacity() <= 10_000
    });
    assert_shrinks_to(512 << 10, before);
    drop(map);
}
