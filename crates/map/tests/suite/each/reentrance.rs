//! B4, B9: user code runs without a lock of the map, so it may use the map in any way.

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use relativist::Relocatable;

use super::{HashMap, reclaim};
use crate::hashing::{EQUAL, Hashing};
use crate::in_time;

type Map = HashMap<Key, u64, Hashing>;

type Action = Box<dyn Fn(u64)>;

thread_local! {
    /// What `Hash` and `Eq` of keys do on this thread, which is passed the number of the call. They
    /// do not do it when it calls them.
    static ACTION: RefCell<Option<Action>> = const { RefCell::new(None) };
    /// The number of calls that are left: each may lead to more comparisons.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

fn act() {
    let Some(action) = ACTION.take().filter(|_| LEFT.get() > 0) else { return };
    LEFT.set(LEFT.get() - 1);
    action(LEFT.get());
    ACTION.set(Some(action));
}

fn act_later(calls: u64, action: impl Fn(u64) + 'static) {
    LEFT.set(calls);
    ACTION.set(Some(Box::new(action)));
}

/// A key that uses its map whenever it is hashed or compared.
#[derive(Debug)]
struct Key(u64);

// SAFETY: a number.
unsafe impl Relocatable for Key {}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        act();
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        act();
        state.write_u64(self.0);
    }
}

/// Updates one map from `Hash` and `Eq` of its own keys, in the bucket that is being changed and in
/// others, and while it grows and shrinks.
#[test]
fn hash_and_eq_may_update_the_map() {
    let actions: [fn(&Map, u64); 6] = [
        |map, n| _ = map.pin().insert(Key(1000 + n % 50), n),
        |map, n| _ = map.pin().remove(&Key(1000 + n % 50)),
        |map, n| {
            map.pin().insert(Key(1000), n);
            map.pin().remove(&Key(1000));
        },
        |map, n| (0..5).for_each(|more| _ = map.pin().try_insert(Key(1000 + 5 * n + more), n).is_ok()),
        |map, n| map.reserve(n as usize),
        |map, _| map.pin().retain(|key, _| key.0 < 1000),
    ];
    for hashing in [EQUAL, Hashing(|n| n)] {
        for action in actions {
            in_time(move || {
                let map = Arc::new(Map::with_hasher(hashing));
                let its = Arc::clone(&map);
                act_later(100, move |n| action(&its, n));
                (0..100).for_each(|n| assert_eq!(map.pin().insert(Key(n), n), None));
                (0..100).for_each(|n| assert_eq!(map.pin().insert(Key(n), n + 1), Some(&n)));
                (0..100).for_each(|n| assert_eq!(map.pin().update(Key(n), |n| n + 1), Some(&(n + 2))));
                (0..50).for_each(|n| assert_eq!(map.pin().remove(&Key(n)), Some(&(n + 2))));
                assert_eq!(LEFT.get(), 0);
                let rest = map.pin().keys().filter(|key| key.0 < 1000).count();
                assert_eq!((rest, map.pin().iter().count()), (50, map.len()));
            });
        }
    }
}

/// A key that comes into the bucket while `Eq` runs is seen: it is not inserted twice.
#[test]
fn what_eq_inserts_is_replaced() {
    in_time(|| {
        let map = Arc::new(Map::with_hasher(EQUAL));
        map.pin().insert(Key(0), 0);
        let its = Arc::clone(&map);
        act_later(1, move |_| _ = its.pin().insert(Key(7), 1));
        assert_eq!(map.pin().insert(Key(7), 2), Some(&1));
        let present = map.pin().try_insert(Key(7), 3).map_err(|error| *error.current).copied();
        assert_eq!((present, map.len()), (Err(2), 2));
        let its = Arc::clone(&map);
        act_later(1, move |_| its.pin().clear());
        assert_eq!(map.pin().insert(Key(7), 4), None);
        assert_eq!(map.len(), 1);
    });
}

type Users = HashMap<u64, User>;

/// A value that uses its map when it is dropped.
struct User {
    map: Weak<Users>,
    dropped: Arc<AtomicU64>,
}

// SAFETY: what changes is behind a pointer.
unsafe impl Relocatable for User {}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(map) = self.map.upgrade() {
            assert!(map.pin().remove(&2).is_none());
            map.pin().retain(|key, _| *key < 2);
            map.reserve(100);
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

#[test]
fn destructors_may_use_the_map() {
    in_time(|| {
        let (map, dropped) = (Arc::new(Users::new()), Arc::new(AtomicU64::new(0)));
        let user = || User { map: Arc::downgrade(&map), dropped: Arc::clone(&dropped) };
        for _ in 0..1000 {
            map.pin().insert(1, user());
            assert!(map.pin().try_insert(1, user()).is_err());
            map.pin().update(1, |_| user());
        }
        reclaim(&map);
        relativist_rcu::barrier();
        assert_eq!(dropped.load(Relaxed), 3 * 1000 - 1);
        map.pin().clear();
        reclaim(&map);
        relativist_rcu::barrier();
        assert_eq!(dropped.load(Relaxed), 3 * 1000);
    });
}
