//! T4, T9: no lock of the map is held while destructors run, so they may use the map, and even
//! resize it. A lock is held while `Eq` of keys runs: updates of the same table panic then, and
//! nothing hangs.

use std::cell::Cell;
use std::hash::{Hash, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock, Weak};
use std::thread;

use relativist::Relocatable;
use relativist_testing::patience;

use crate::hashing::{Hashing, IDENTITY};
use super::{HashMap, build, builder, reclaim};

type Map = HashMap<u64, User>;

/// A value that uses its map when it is dropped.
struct User {
    map: Weak<Map>,
}

// SAFETY: what changes is behind a pointer.
unsafe impl Relocatable for User {}

static DROPPED: AtomicU64 = AtomicU64::new(0);

impl Drop for User {
    fn drop(&mut self) {
        if let Some(map) = self.map.upgrade() {
            assert!(map.pin().remove(&2).is_none());
            map.resize_to(2).unwrap();
            DROPPED.fetch_add(1, Relaxed);
        }
    }
}

/// Retires one value and two arrays at a time, many more than a thread lets pile up: sooner or
/// later values are reclaimed when an array is retired.
fn replace_and_resize(map: &Arc<Map>) {
    for _ in 0..3000 {
        map.pin().insert(1, User { map: Arc::downgrade(map) });
        for buckets in [4, 8, 2] {
            map.resize_to(buckets).unwrap();
        }
    }
}

#[test]
fn destructors_may_resize_the_map() {
    let (done, result) = channel();
    thread::spawn(move || {
        let map = Arc::new(manual::<u64, User, _>(RandomState::new()));
        replace_and_resize(&map);
        reclaim(&map);
        relativist_rcu::barrier();
        done.send(DROPPED.load(Relaxed)).unwrap();
    });
    let dropped = result.recv_timeout(patience()).expect("no lock is held while destructors run");
    assert_eq!(dropped, 2999);
}

/// Runs `action` on another thread, so that the test fails if it hangs.
pub fn in_time(action: impl FnOnce() + Send + 'static) {
    let (done, result) = channel();
    thread::spawn(move || {
        action();
        done.send(()).unwrap();
    });
    result.recv_timeout(patience()).expect("nothing hangs, and nothing panics that should not");
}

/// Checks that `action` panics because the update would wait for itself.
#[track_caller]
pub fn assert_refused<R>(action: impl FnOnce() -> R) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(action)) else { panic!("the table was updated under its own lock") };
    let message =
        panic.downcast::<&str>().map_or_else(|panic| *panic.downcast::<String>().unwrap(), |text| text.to_string());
    assert!(message.contains("wait for itself"), "{message}");
}

thread_local!(static IN_EQ: Cell<Option<fn()>> = const { Cell::new(None) });

/// A key that does something the next time it is compared.
#[derive(Debug)]
struct Key(u64);

// SAFETY: a number.
unsafe impl Relocatable for Key {}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        if let Some(action) = IN_EQ.take() {
            action();
        }
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

static KEYS: LazyLock<HashMap<Key, u64, Hashing>> = LazyLock::new(|| keys(10));
static OTHER_KEYS: LazyLock<HashMap<Key, u64, Hashing>> = LazyLock::new(|| keys(10));

fn keys(number: u64) -> HashMap<Key, u64, Hashing> {
    let map: HashMap<_, _, _> = build(builder().capacity(1000).hasher(IDENTITY));
    (&map).extend((0..number).map(|n| (Key(n), n)));
    map
}

#[test]
fn updates_inside_eq_panic() {
    in_time(|| {
        let updates: [fn(); 4] = [
            || _ = KEYS.pin().insert(Key(77), 9), // in another bucket
            || _ = KEYS.pin().insert(Key(1), 9),
            || _ = KEYS.pin().remove(&Key(1)),
            || KEYS.pin().clear(),
        ];
        for update in updates {
            IN_EQ.set(Some(update));
            assert_refused(|| KEYS.pin().insert(Key(1), 8).copied());
            // The nested update comes from a comparison in another table, whose own update is
            // allowed.
            IN_EQ.set(Some(|| {
                IN_EQ.set(Some(|| _ = KEYS.pin().remove(&Key(2))));
                OTHER_KEYS.pin().insert(Key(3), 33);
            }));
            assert_refused(|| KEYS.pin().insert(Key(1), 8).copied());
        }
        // Neither table has changed. The thread neither holds a lock nor counts as holding one.
        for map in [&KEYS, &OTHER_KEYS] {
            let pinned = map.pin();
            assert!((0..10).all(|n| pinned.insert(Key(n), n) == Some(&n)));
            assert_eq!(pinned.len(), 10);
        }
    });
}

#[test]
fn eq_may_look_up_and_update_other_maps() {
    in_time(|| {
        static ONE: LazyLock<HashMap<Key, u64, Hashing>> = LazyLock::new(|| keys(10));
        static TWO: LazyLock<HashMap<Key, u64, Hashing>> = LazyLock::new(|| keys(10));
        IN_EQ.set(Some(|| {
            assert_eq!(ONE.pin().get(&Key(5)), Some(&5));
            assert_eq!(TWO.pin().remove(&Key(5)), Some(&5));
        }));
        assert_eq!(ONE.pin().insert(Key(5), 55), Some(&5));
        assert_eq!((ONE.len(), TWO.len()), (10, 9));
    });
}
