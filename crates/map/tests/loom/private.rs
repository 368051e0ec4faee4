//! Models of the map with a private domain: keys and values are dropped when no handle is left that
//! may have found them. Loom fails a model if a thread drops a value while another one may read it.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use relativist::{Builder, PrivateMap, Resizing};

use crate::hashing::{Hashing, UNMIXED};
use crate::models::explore;

/// A value of a key, until it is dropped.
struct Value(UnsafeCell<u64>);

// SAFETY: the models check that no thread accesses the cell while another one writes to it.
unsafe impl Sync for Value {}
// SAFETY: a number may be sent to any thread.
unsafe impl Send for Value {}

impl Value {
    fn new(key: u64) -> Self {
        Self(UnsafeCell::new(key))
    }

    fn assert_of(&self, key: u64) {
        // SAFETY: see `Sync`.
        assert_eq!(self.0.with(|its| unsafe { *its }), key, "a value that was dropped");
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: see `Sync`.
        self.0.with_mut(|key| unsafe { *key = u64::MAX });
    }
}

type Map = PrivateMap<u64, Value, Hashing>;

/// Returns a map of two buckets with the keys 1 and 2, which are in one bucket.
fn map() -> Arc<Map> {
    let hashing = Hashing(|n| (UNMIXED.0)(n << 60));
    let map: Map = Builder::new().resizing(Resizing::Manual).hasher(hashing).build_private().unwrap();
    [1, 2].iter().for_each(|&key| assert!(map.pin().insert(key, Value::new(key)).is_none()));
    Arc::new(map)
}

/// Looks the keys up, and reads what was found at the end of the handle's life.
fn look(map: &Map) {
    let pinned = map.pin();
    let found = [1, 2].map(|key| pinned.get(&key));
    for (value, key) in found.iter().zip([1, 2]) {
        value.inspect(|value| value.assert_of(key));
    }
}

/// T11: an entry is removed and dropped while another thread looks it up.
#[test]
fn private_lookup_and_removal() {
    explore(2, || {
        let map = map();
        let reader = {
            let map = Arc::clone(&map);
            thread::spawn(move || look(&map))
        };
        map.pin().remove(&1).expect("no other thread removes it").assert_of(1);
        (0..2).for_each(|_| _ = map.reclaim());
        reader.join().unwrap();
    });
}

/// T11: the same with a replacement. The handle was made by the thread that replaces the entry, and
/// is used and dropped by another one.
#[test]
fn private_lookup_with_a_handle_that_moves() {
    explore(2, || {
        let map = map();
        let pinned = map.pin();
        // SAFETY: the map lives as long as the other thread, which is joined.
        let pinned: relativist::private::Pinned<'static, u64, Value, Hashing> = unsafe { std::mem::transmute(pinned) };
        let reader = thread::spawn(move || {
            let found = pinned.get(&2).expect("it is replaced, and never absent");
            found.assert_of(2);
        });
        map.pin().insert(2, Value::new(2)).expect("it is there").assert_of(2);
        (0..2).for_each(|_| _ = map.reclaim());
        reader.join().unwrap();
    });
}
