//! B8: a leaked handle keeps its section open, and has no other effect. In a process of its own, in
//! which no grace period ends any more.
#![cfg(not(relativist_loom))]

use relativist_testing as _;

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use relativist::{Guard, HashMap, HashSet, read};

static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// A value that fails the test if it is dropped twice, or read after that.
struct Value(Box<u64>);

impl Value {
    fn new(n: u64) -> Self {
        Self(Box::new(n))
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        assert_ne!(*self.0, u64::MAX, "dropped twice");
        *self.0 = u64::MAX;
        DROPPED.fetch_add(1, Relaxed);
    }
}

fn map() -> HashMap<u64, Value> {
    (0..100).map(|n| (n, Value::new(n))).collect()
}

/// Updates a map of 100 entries in all ways. Drops nothing that was in the map.
fn update(map: &HashMap<u64, Value>) {
    let pinned = map.pin();
    assert_eq!(*pinned.remove(&1).unwrap().0, 1);
    assert_eq!(*pinned.insert(2, Value::new(2)).unwrap().0, 2);
    assert_eq!(pinned.extract_if(|key, _| *key < 10).count(), 9);
    forget(pinned.drain());
    assert_eq!((pinned.len(), pinned.iter().count()), (90, 90));
    assert_eq!(pinned.drain().take(30).filter(|(key, value)| **key == *value.0).count(), 30);
    assert!(pinned.is_empty());
}

#[test]
fn a_leaked_handle_keeps_its_section_open_only() {
    let guard: &'static Guard = Box::leak(Box::new(read()));
    let leaked: &'static HashMap<u64, Value> = Box::leak(Box::new(map()));
    let pinned = Box::leak(Box::new(leaked.pin_with(guard)));
    let found: Vec<&'static Value> = (0..100).map(|n| pinned.get(&n).unwrap()).collect();
    let other = map();
    forget(other.pin());
    forget(HashSet::from([1, 2]).pin());

    // Updates go on, on this thread and on others, and nothing is reclaimed.
    update(leaked);
    thread::scope(|scope| scope.spawn(|| update(&other)).join().unwrap());
    assert!(found.iter().zip(0..).all(|(value, n)| *value.0 == n), "freed under a reference");
    assert_eq!(DROPPED.load(Relaxed), 0);
    // Shrinking would wait for itself. Growing waits for nobody.
    leaked.reserve(10_000);
    assert!(leaked.capacity() >= 10_000);
    let keys = HashSet::from([1, 2]);
    assert!(catch_unwind(AssertUnwindSafe(|| keys.as_map().shrink_to_fit())).is_err());

    // Entries are dropped with their map, or belong to the caller that takes them out. There are no
    // references to them.
    (0..10).for_each(|n| _ = other.pin().insert(n, Value::new(n)));
    drop(other);
    assert_eq!(DROPPED.load(Relaxed), 10);
    assert!(map().into_iter().take(60).all(|(key, value)| key == *value.0));
    assert_eq!(DROPPED.load(Relaxed), 110);
    assert!(found.iter().zip(0..).all(|(value, n)| *value.0 == n), "freed under a reference");
}
