//! T9: a panic in a key's `Eq` or `Hash`, in a closure, or in another function of keys and values,
//! leaves no lock held and the map as it was.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread;

use relativist::Relocatable;
use relativist_testing::patience;

use crate::hashing::Hashing;
use super::HashMap;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Panics {
    Never,
    InEq,
    InHash,
}

thread_local!(static PANICS: Cell<Panics> = const { Cell::new(Panics::Never) });

#[derive(Debug)]
struct Key(u64);

// SAFETY: a number.
unsafe impl Relocatable for Key {}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        assert!(PANICS.get() != Panics::InEq, "the test requested this panic");
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert!(PANICS.get() != Panics::InHash, "the test requested this panic");
        state.write_u64(self.0);
    }
}

type Map = HashMap<Key, u64, Hashing>;

/// Returns a map whose keys are all in one bucket.
fn map() -> Map {
    let map = manual::<Key, u64, _>(Hashing(|_| 7));
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

/// Checks the map on another thread, so that a lock that is still held fails the test instead of
/// hanging it.
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
    result.recv_timeout(patience()).expect("the map works and no lock is held")
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
        let operations: [fn(&Map); 12] = [
            |map| _ = map.pin().get_key_value(&Key(1)),
            |map| _ = map.pin().contains_key(&Key(1)),
            |map| _ = map.pin().checked_insert(Key(1), 9),
            |map| _ = map.pin().get_or_insert(Key(5), 9),
            |map| _ = map.pin().get_or_insert_with(Key(5), || 9),
            |map| _ = map.pin().update(Key(1), |_| 9),
            |map| _ = map.pin().update_or_insert(Key(5), |_| 9, 9),
            |map| _ = map.pin().compute(Key(5), |_| Ok::<_, ()>(Some(9))),
            |map| _ = map.pin().compute(Key(1), |_| Ok::<_, ()>(None)),
            |map| _ = map.pin().compare_exchange(Key(1), &1, 9),
            |map| _ = map.pin().remove_entry(&Key(1)),
            |map| _ = map.pin().remove_if(&Key(1), |_, _| true),
        ];
        for operation in operations {
            panics(when, || operation(&map));
            map = assert_intact(map);
        }
    }
}

/// They run outside of locks, before anything is changed.
#[test]
fn in_closures_change_nothing() {
    let mut map = map();
    let operations: [fn(&Map); 10] = [
        |map| _ = map.pin().get_or_insert_with(Key(5), told_to),
        |map| _ = map.pin().update(Key(1), |_| told_to()),
        |map| _ = map.pin().update_or_insert(Key(1), |_| told_to(), 9),
        |map| _ = map.pin().update_or_insert_with(Key(5), |_| 9, told_to),
        |map| _ = map.pin().compute(Key(1), |_| Ok::<_, ()>(Some(told_to()))),
        |map| _ = map.pin().compute(Key(5), |_| Ok::<_, ()>(Some(told_to()))),
        |map| _ = map.pin().remove_if(&Key(1), |_, _| told_to()),
        |map| map.pin().retain(|_, _| told_to()),
        |map| _ = map.pin().extract_if(|_, _| told_to()).count(),
        |map| (&*map).extend((0..10).map(|n| (Key(n), if n < 3 { n } else { told_to() }))),
    ];
    for operation in operations {
        panics(Panics::Never, || operation(&map));
        map = assert_intact(map);
    }
}

fn told_to<T>() -> T {
    panic!("the test requested this panic")
}

/// What was removed before stays removed, and the rest stays.
#[test]
fn in_a_bulk_removal_end_it() {
    let map = map();
    panics(Panics::Never, || map.pin().retain(|key, _| if key.0 == 1 { told_to() } else { key.0 > 1 }));
    assert_eq!(map.pin().keys().map(|key| key.0).collect::<Vec<_>>(), [1, 2]);
    panics(Panics::Never, || map.pin().drain().for_each(|_| told_to()));
    assert!(map.is_empty(), "a drain that is dropped removes the rest");
}

/// Panics when it is compared, cloned or dropped, depending on its setting.
#[derive(Debug)]
struct Bomb(u64);

// SAFETY: a number.
unsafe impl Relocatable for Bomb {}

thread_local!(static ARMED: Cell<bool> = const { Cell::new(false) });

impl Bomb {
    fn tick() {
        if ARMED.replace(false) {
            told_to()
        }
    }
}

impl PartialEq for Bomb {
    fn eq(&self, other: &Self) -> bool {
        Self::tick();
        self.0 == other.0
    }
}

impl Clone for Bomb {
    fn clone(&self) -> Self {
        Self::tick();
        Self(self.0)
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        Self::tick();
    }
}

#[test]
fn in_values_change_nothing() {
    let map: HashMap<u64, Bomb> = (0..3).map(|n| (n, Bomb(n))).collect();
    let operations: [fn(&HashMap<u64, Bomb>); 6] = [
        |map| _ = map.pin().compare_exchange(1, &Bomb(1), Bomb(9)),
        |map| _ = map.clone(),
        |map| _ = map == map,
        // These drop the new value, because the key is present.
        |map| _ = map.pin().get_or_insert(1, Bomb(9)),
        |map| _ = map.pin().update_or_insert(1, |value| Bomb(value.0), Bomb(9)),
        |map| _ = map.pin().try_insert(1, Bomb(9)),
    ];
    for operation in operations {
        panics(Panics::Never, || {
            ARMED.set(true);
            operation(&map);
        });
        assert!(!ARMED.get() && !relativist_rcu::is_reading());
        let values: Vec<u64> = (0..3).map(|n| map.pin().get(&n).unwrap().0).collect();
        assert_eq!((values, map.len()), (vec![0, 1, 2], 3));
        map.resize_to(64).unwrap();
    }
}

/// A panic in a deferred destructor does not reach any operation.
#[test]
fn in_deferred_destructors_go_no_further() {
    struct Armed(bool);
    // SAFETY: it does not change.
    unsafe impl Relocatable for Armed {}
    impl Drop for Armed {
        fn drop(&mut self) {
            assert!(!self.0, "the test requested this panic");
        }
    }
    let map: HashMap<u64, Armed> = (0..3).map(|n| (n, Armed(n == 1))).collect();
    map.pin().insert(1, Armed(false));
    relativist_rcu::barrier();
    map.pin().clear();
    relativist_rcu::barrier();
    assert!(map.is_empty());
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
