//! B12: destructors of keys and values: where they run, and what they may do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use relativist::{HashMap, PrivateMap};
use relativist_rcu::{is_reading, read};

use crate::tracked::{Tally, Tracked};
use crate::{in_time, reclaim};

/// They run outside of sections of the process, so they delay no other thread, and may wait for
/// readers.
#[test]
fn run_outside_of_sections_of_the_process() {
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    static INSIDE: AtomicU64 = AtomicU64::new(0);
    struct Value;
    impl Drop for Value {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Relaxed);
            INSIDE.fetch_add(is_reading().into(), Relaxed);
        }
    }
    let map: PrivateMap<u64, Value> = PrivateMap::new();
    for n in 0..10_000 {
        map.pin().insert(n % 100, Value);
        map.pin().update(n % 100, |_| Value);
        map.pin().remove(&(n % 200));
    }
    map.pin().clear();
    assert!(DROPPED.load(Relaxed) > 0, "updates reclaim");
    reclaim(&map);
    map.insert_many((0..1000).map(|n| (n, Value)));
    drop(map);
    assert_eq!(INSIDE.load(Relaxed), 0, "of {DROPPED:?} destructors");
}

/// Moving entries out waits for no section of the process: the thread in it may wait for this one.
#[test]
fn moving_out_does_not_wait_for_readers_of_the_process() {
    in_time(|| {
        let map: PrivateMap<u64, u64> = (0..200_000).map(|n| (n, n)).collect();
        let _guard = read();
        let moving = std::thread::spawn(|| map.into_iter().filter(|&(key, value)| key == value).count());
        assert_eq!(moving.join().unwrap(), 200_000);
    });
}

/// B9: a panic does not keep others from being dropped.
#[test]
fn may_panic() {
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    struct Panics(bool);
    impl Drop for Panics {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Relaxed);
            assert!(!self.0, "the test requested this panic");
        }
    }
    let fill = |panicking: u64| -> PrivateMap<u64, (Panics, Panics)> {
        (0..500).map(|n| (n, (Panics(n == panicking), Panics(false)))).collect()
    };
    let map = fill(7);
    map.pin().clear();
    reclaim(&map);
    assert_eq!(DROPPED.swap(0, Relaxed), 1000, "the hook reports the panic");
    drop(map);
    let map = fill(7);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(map))).is_err());
    assert_eq!(DROPPED.swap(0, Relaxed), 1000);
    // A key and its value.
    #[derive(PartialEq, Eq, Hash)]
    struct Key;
    impl Drop for Key {
        fn drop(&mut self) {
            panic!("the test requested this panic");
        }
    }
    let map = PrivateMap::from([(Key, Panics(false))]);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(map))).is_err());
    assert_eq!(DROPPED.swap(0, Relaxed), 1);
}

/// A value that changes its map when it is dropped.
struct User(Weak<PrivateMap<u64, Option<User>>>, u64);

impl Drop for User {
    fn drop(&mut self) {
        if let Some(map) = self.0.upgrade() {
            let pinned = map.pin();
            pinned.insert(self.1, None);
            pinned.retain(|&key, _| key != self.1);
            map.reclaim();
        }
    }
}

#[test]
fn may_change_the_map() {
    in_time(|| {
        let map: Arc<PrivateMap<u64, Option<User>>> = Arc::default();
        for n in 0..5000 {
            map.pin().insert(0, Some(User(Arc::downgrade(&map), n + 1)));
        }
        reclaim(&map);
        assert_eq!(map.len(), 1);
    });
}

/// Maps in maps, of either kind.
#[test]
fn may_drop_other_maps() {
    static TALLY: Tally = Tally::new();
    let inner = || PrivateMap::from([(1, Tracked::new(1, &TALLY)), (2, Tracked::new(2, &TALLY))]);
    let outer: PrivateMap<u64, PrivateMap<u64, Tracked>> = (0..100).map(|n| (n, inner())).collect();
    outer.pin().iter().for_each(|(_, inner)| _ = inner.pin().remove(&1));
    outer.pin().retain(|n, _| n % 2 == 0);
    reclaim(&outer);
    assert_eq!(TALLY.live(), 50 + 50, "entries that were removed from inner maps wait");
    drop(outer);
    TALLY.assert_live(0);
    let outer: HashMap<u64, PrivateMap<u64, Tracked>> = (0..100).map(|n| (n, inner())).collect();
    outer.pin().clear();
    TALLY.assert_live(0);
    let outer: PrivateMap<u64, HashMap<u64, Tracked>> =
        (0..100).map(|n| (n, HashMap::from([(1, Tracked::new(1, &TALLY))]))).collect();
    outer.pin().clear();
    drop(outer);
    TALLY.assert_live(0);
}

/// A map that only its own entries keep alive is leaked, as with any cycle of `Arc`s.
#[test]
fn a_cycle_is_leaked() {
    struct Owner(#[expect(dead_code, reason = "keeps the map alive")] Arc<PrivateMap<u64, Owner>>);
    let map: Arc<PrivateMap<u64, Owner>> = Arc::default();
    map.pin().insert(1, Owner(Arc::clone(&map)));
    map.pin().insert(2, Owner(Arc::clone(&map)));
    map.pin().remove(&2);
    let weak = Arc::downgrade(&map);
    drop(map);
    let map = weak.upgrade().expect("its entries keep it alive");
    map.pin().clear();
    reclaim(&map);
    assert_eq!(Arc::strong_count(&map), 1, "a cycle that is broken is not leaked");
}

/// B12: a destructor that shrinks a map would wait for itself, and panics instead.
#[test]
fn shrinking_in_a_destructor_panics() {
    struct Shrinks(Arc<HashMap<u64, u64>>, Arc<AtomicBool>);
    impl Drop for Shrinks {
        fn drop(&mut self) {
            let shrink = AssertUnwindSafe(|| _ = self.0.shrink_to_fit());
            self.1.store(catch_unwind(shrink).is_err(), Relaxed);
        }
    }
    let (other, has_panicked) = (Arc::new(HashMap::with_capacity(1000)), Arc::new(AtomicBool::new(false)));
    let map = HashMap::new();
    map.pin().insert(1, Shrinks(other, Arc::clone(&has_panicked)));
    map.pin().remove(&1);
    relativist_rcu::barrier();
    assert!(has_panicked.load(Relaxed));
}
