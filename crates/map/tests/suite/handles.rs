//! B12: handles: what they protect, what they delay and what not, and what happens if they are
//! leaked.

use std::mem::forget;
use std::sync::mpsc::channel;
use std::thread;

use relativist::{HashMap, PrivateMap};
use relativist_rcu::{GracePeriod, barrier, wait_for_readers};
use relativist_testing::wait_until;

use crate::reclaim;
use crate::tracked::{Tally, Tracked};

type Map = PrivateMap<u64, Tracked>;

fn filled(keys: std::ops::Range<u64>, tally: &'static Tally) -> Map {
    keys.map(|n| (n, Tracked::new(n, tally))).collect()
}

/// B12: an entry lives as long as the handles that may have found it, whichever threads they are
/// on.
#[test]
fn an_entry_lives_as_long_as_the_handle_that_found_it() {
    static TALLY: Tally = Tally::new();
    let map = filled(0..10, &TALLY);
    reclaim(&map);
    let pinned = map.pin();
    let found = pinned.get(&1).unwrap();
    map.pin().remove(&1).unwrap().assert_of(1);
    map.pin().insert(2, Tracked::new(2, &TALLY)).unwrap().assert_of(2);
    (0..100).for_each(|_| _ = map.reclaim());
    assert_eq!((map.pending(), TALLY.live()), (2, 11));
    thread::scope(|scope| {
        scope.spawn(|| {
            found.assert_of(1);
            pinned.get(&3).unwrap().assert_of(3);
        });
    });
    // The handle is on another thread when it is dropped.
    thread::scope(|scope| scope.spawn(move || drop(pinned)).join().unwrap());
    reclaim(&map);
    assert_eq!((map.pending(), TALLY.live()), (0, 9));
    drop(map);
    TALLY.assert_live(0);
}

/// A handle of this map delays neither the process nor another map.
#[test]
fn a_handle_that_stays_delays_nothing_else() {
    static TALLY: Tally = Tally::new();
    let map = filled(0..10, &TALLY);
    let pinned = map.pin();
    let other = filled(0..10, &TALLY);
    other.pin().clear();
    reclaim(&other);
    assert_eq!(TALLY.live(), 10);
    let public: HashMap<u64, Tracked> = (0..10).map(|n| (n, Tracked::new(n, &TALLY))).collect();
    public.pin().clear();
    wait_for_readers();
    barrier();
    TALLY.assert_live(10);
    let grace = GracePeriod::start();
    wait_until("the grace period", || grace.has_passed());
    pinned.get(&1).unwrap().assert_of(1);
}

/// B12, B5: nor does it delay the map's own growth.
#[test]
fn a_handle_that_stays_does_not_delay_growth() {
    let map: PrivateMap<u64, u64> = PrivateMap::new();
    let pinned = map.pin();
    (0..50_000).for_each(|n| _ = pinned.insert(n, n));
    assert!(map.capacity() >= 49_000, "{}", map.capacity());
    map.reserve(100_000);
    assert!(map.capacity() >= 150_000);
    assert!((0..50_000).all(|n| pinned.get(&n) == Some(&n)));
}

/// Without a handle that stays, few entries wait. Behind one that stays all wait that are removed
/// meanwhile, and no update waits for it.
#[test]
fn entries_wait_for_handles_and_updates_do_not() {
    const BATCHES: u64 = 4 * 1024;
    let map: PrivateMap<u64, u64> = PrivateMap::new();
    for n in 0..100_000 {
        map.pin().insert(n % 8, n);
        assert!(map.pending() <= BATCHES, "{} entries wait although no handle stays", map.pending());
    }
    let pinned = map.pin();
    let before = map.pending();
    (0..100_000).for_each(|n| _ = map.pin().insert(n % 8, n));
    assert!(map.pending() >= 100_000, "{} entries wait, and {before} before", map.pending());
    drop(pinned);
    reclaim(&map);
}

/// Entries that exited threads have removed are dropped by others.
#[test]
fn threads_come_and_go() {
    static TALLY: Tally = Tally::new();
    let map = filled(0..64, &TALLY);
    thread::scope(|scope| {
        for first in 0..8 {
            let map = &map;
            scope.spawn(move || (first * 8..first * 8 + 8).for_each(|n| map.pin().remove(&n).unwrap().assert_of(n)));
        }
    });
    reclaim(&map);
    assert_eq!(TALLY.live(), 0);
}

/// B12: leaks keep entries alive, and no more than that.
#[test]
fn leaks_are_sound() {
    static TALLY: Tally = Tally::new();
    let map = filled(0..100, &TALLY);
    forget(map.pin());
    let pinned = map.pin();
    forget(pinned.iter());
    forget(pinned.drain());
    forget(pinned.extract_if(|_, _| true));
    drop(pinned);
    assert_eq!(map.len(), 100);
    map.pin().clear();
    (0..100).for_each(|_| _ = map.reclaim());
    assert_eq!(TALLY.live(), 100, "an entry was dropped behind a handle that was leaked");
    drop(map);
    assert_eq!(TALLY.live(), 0, "the domain drops all when the map is dropped");

    let map = filled(0..100, &TALLY);
    map.pin().remove(&1);
    let mut entries = map.into_iter();
    assert_eq!(entries.by_ref().take(9).count(), 9);
    forget(entries);
    let map: &'static Map = Box::leak(Box::new(filled(0..100, &TALLY)));
    let found = Box::leak(Box::new(map.pin())).get(&7).unwrap();
    map.pin().clear();
    map.reclaim();
    found.assert_of(7);
    assert_eq!(TALLY.live(), 90 + 100);
}

#[test]
fn the_thread_that_drops_the_map_drops_the_entries() {
    struct Value(thread::ThreadId, std::sync::mpsc::Sender<bool>);
    impl Drop for Value {
        fn drop(&mut self) {
            self.1.send(thread::current().id() == self.0).unwrap();
        }
    }
    let (send, here) = channel();
    for round in 0..200 {
        let map: PrivateMap<u64, Value> = PrivateMap::new();
        for n in 0..16 * (round % 20) {
            map.pin().insert(n, Value(thread::current().id(), send.clone()));
        }
        map.pin().remove(&0);
    }
    drop(send);
    let drops: Vec<bool> = here.into_iter().collect();
    assert_eq!(drops.len(), 200 * 16 * 19 / 2);
    assert!(drops.iter().all(|&here| here), "another thread dropped an entry");
}
