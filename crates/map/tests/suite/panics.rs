//! T9: a panic in a key's `Eq` or `Hash` leaves no lock held and the map as it was.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use relativist::{HashMap, Resizing};

use crate::hashing::Hashing;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Panics {
    Never,
    InEq,
    InHash,
}

thread_local!(static PANICS: Cell<Panics> = const { Cell::new(Panics::Never) });

#[derive(Debug)]
struct Key(u64);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        assert!(PANICS.get() != Panics::InEq, "as it was told to");
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert!(PANICS.get() != Panics::InHash, "as it was told to");
        state.write_u64(self.0);
    }
}

type Map = HashMap<Key, u64, Hashing>;

/// All keys are in one bucket.
fn map() -> Map {
    let map = HashMap::<Key, u64>::builder().resizing(Resizing::Manual).hasher(Hashing(|_| 7)).build().unwrap();
    (&map).extend((0..3).map(|n| (Key(n), n)));
    map
}

/// Runs an operation that is to panic.
fn panics(panics: Panics, operation: impl FnOnce()) {
    PANICS.set(panics);
    let result = catch_unwind(AssertUnwindSafe(operation));
    PANICS.set(Panics::Never);
    assert!(result.is_err());
}

/// On another thread, so that a lock that is still held fails the test instead of hanging it.
fn assert_intact(map: Map) -> Map {
    let (done, result) = channel();
    thread::spawn(move || {
        for n in 0..3 {
            assert_eq!(map.pin().insert(Key(n), n), Some(&n));
        }
        assert_eq!(map.pin().insert(Key(3), 3), None);
        assert_eq!(map.pin().remove(&Key(3)), Some(&3));
        assert_eq!((map.len(), map.stats().entries), (3, 3));
        map.resize_to(16).unwrap();
        map.resize_to(2).unwrap();
        done.send(map).unwrap();
    });
    result.recv_timeout(Duration::from_secs(60)).expect("the map works and no lock is held")
}

#[test]
fn leave_no_lock_and_change_nothing() {
    let mut map = map();
    for when in [Panics::InEq, Panics::InHash] {
        panics(when, || _ = map.pin().get(&Key(1)));
        panics(when, || _ = map.pin().insert(Key(1), 9));
        map = assert_intact(map);
        panics(when, || _ = map.pin().try_insert(Key(5), 9));
        map = assert_intact(map);
        panics(when, || _ = map.pin().remove(&Key(1)));
        map = assert_intact(map);
    }
}

/// The read section has ended as well: a resize, which waits for readers, comes to an end.
#[test]
fn leave_the_read_section() {
    let map = map();
    panics(Panics::InEq, || _ = map.pin().remove(&Key(1)));
    assert!(!relativist_rcu::is_reading());
    map.resize_to(8).unwrap();
    assert_eq!(map.pin().get(&Key(1)), Some(&1));
}
