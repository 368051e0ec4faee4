//! How large maps are: what is reserved, how they grow and shrink by themselves and by hand.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use std::hash::{Hash, Hasher};

use relativist::{Relocatable, read};
use relativist_testing::{patience, wait_until};

use super::{Form, HashMap, reclaim};
use crate::alongside::alongside;

fn fill(map: &HashMap<u64, u64>, entries: u64) {
    (0..entries).for_each(|n| _ = map.pin().insert(n, n));
}

fn holds(map: &HashMap<u64, u64>, entries: u64) -> bool {
    let pinned = map.pin();
    (0..entries).all(|n| pinned.get(&n) == Some(&n)) && pinned.iter().count() == map.len()
}

/// A map that was made for a number of entries does not grow while it is filled with them.
#[test]
fn room_is_enough() {
    let small = HashMap::<u64, u64>::new().capacity();
    assert!((1..=16).contains(&small), "{small}");
    for entries in [0, 1, 9, 10, 100, 1000, 4608, 4609] {
        let reserved: HashMap<u64, u64> = HashMap::new();
        reserved.reserve(entries);
        let built = HashMap::<u64, u64>::builder().capacity(entries).build();
        for map in [HashMap::with_capacity(entries), built, reserved] {
            let room = map.capacity();
            assert!((entries..=small.max(entries * 3)).contains(&room), "{room} for {entries}");
            fill(&map, entries as u64);
            assert_eq!(map.capacity(), room);
        }
    }
    let map: HashMap<u64, u64> = HashMap::new();
    fill(&map, 1000);
    map.reserve(1000);
    assert!(map.capacity() >= 2000);
}

#[test]
fn too_much_is_an_error() {
    let map: HashMap<u64, u64> = HashMap::new();
    fill(&map, 1000);
    let room = map.capacity();
    for entries in [1 << 45, 1 << 59, 1 << 60, 1 << 63, usize::MAX] {
        let error = map.try_reserve(entries).unwrap_err();
        assert!(error.to_string().contains("cannot allocate"), "{error}");
        assert!(HashMap::<u64, u64>::builder().capacity(entries).try_build().is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| map.reserve(entries))).is_err());
        assert!(catch_unwind(|| HashMap::<u64, u64>::with_capacity(entries)).is_err());
    }
    assert_eq!(map.capacity(), room);
    map.try_reserve(5000).unwrap();
    assert!(holds(&map, 1000));
    let failing = || map.try_reserve(1 << 45).unwrap_err();
    alongside(|| _ = failing(), || (0..20).for_each(|_| assert!(holds(&map, 1000))));
}

/// Waits until removals have made the map smaller. A shrink begins when no reader is left that
/// knows an earlier array of the map.
#[track_caller]
fn shrinks_below(map: &HashMap<u64, u64>, room: usize) {
    wait_until("the map to shrink", || {
        let others = 1_000_000..1_005_000;
        others.clone().for_each(|n| _ = map.pin().insert(n, n));
        others.for_each(|n| _ = map.pin().remove(&n));
        reclaim(map);
        map.capacity() < room
    });
}

/// A map that grows has room for one to five times its entries. One that shrinks has room for some
/// sixteen times as many at most, and its size is looked at only now and then.
#[test]
fn maps_follow_the_number_of_entries() {
    let map: HashMap<u64, u64> = HashMap::new();
    for entries in [10, 100, 1000, 10_000, 50_000] {
        fill(&map, entries);
        let room = map.capacity() as u64;
        assert!((entries * 9 / 10..=entries * 5).contains(&room), "room for {room} with {entries}");
    }
    map.pin().retain(|n, _| *n < 500);
    shrinks_below(&map, 500 * 35);
    assert!(holds(&map, 500));
    map.shrink_to_fit().unwrap();
    let room = map.capacity();
    assert!((500..1100).contains(&room), "room for {room} with 500");
    assert!(holds(&map, 500));
    map.pin().clear();
    assert_eq!(map.capacity(), HashMap::<u64, u64>::new().capacity());
}

/// A map does not shrink by itself below the size for which it was made.
#[test]
fn a_map_keeps_the_room_that_it_was_made_with() {
    let map: HashMap<u64, u64> = HashMap::with_capacity(1000);
    let room = map.capacity();
    fill(&map, 20_000);
    map.pin().retain(|_, _| false);
    shrinks_below(&map, room + 1);
    assert_eq!(map.capacity(), room);
    fill(&map, 20_000);
    map.pin().clear();
    assert_eq!(map.capacity(), room);
    map.shrink_to_fit().unwrap();
    assert!(map.capacity() < room, "by hand");
}

/// Growing waits for no reader, so a handle of this thread is no obstacle. Shrinking by hand waits,
/// and explains itself.
#[test]
fn grows_under_a_handle() {
    let map: HashMap<u64, u64> = HashMap::new();
    let pinned = map.pin();
    (0..1000).for_each(|n| _ = pinned.insert(n, n));
    for more in [10_000, 10_000, 100_000] {
        map.reserve(more);
        assert!(map.capacity() >= 1000 + more);
        assert!((0..1000).all(|n| pinned.get(&n) == Some(&n)));
    }
    drop(pinned);
    let guard = read();
    let panic = catch_unwind(AssertUnwindSafe(|| map.shrink_to_fit())).unwrap_err();
    let message = panic.downcast_ref::<&str>().unwrap();
    assert!(message.contains("drop the Guard"), "{message}");
    drop(guard);
    map.shrink_to_fit().unwrap();
    assert!(map.capacity() < 3000 && holds(&map, 1000));
}

/// Threads with handles reserve room at the same time: the largest room counts.
#[test]
fn threads_with_handles_make_room() {
    for _ in 0..20 {
        let map: HashMap<u64, u64> = HashMap::new();
        fill(&map, 100);
        thread::scope(|scope| {
            for room in [64, 1024, 256, 4096] {
                let map = &map;
                scope.spawn(move || {
                    let _pinned = map.pin();
                    map.reserve(room);
                    assert!(map.capacity() >= room);
                });
            }
        });
        assert!(map.capacity() >= 4096 && holds(&map, 100));
    }
}

/// A key whose `Hash` waits while [`HELD`] is set. A flat map that grows calls it to move the key.
#[derive(PartialEq, Eq)]
struct Slow(u64);

static HELD: AtomicBool = AtomicBool::new(false);
static IS_MOVING: AtomicBool = AtomicBool::new(false);

// SAFETY: the field is `Relocatable`.
unsafe impl Relocatable for Slow {}

impl Hash for Slow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let end = Instant::now() + 2 * patience();
        while HELD.load(SeqCst) && Instant::now() < end {
            IS_MOVING.store(true, SeqCst);
            thread::yield_now();
        }
        self.0.hash(state);
    }
}

/// Two threads reserve room at the same time, one of them less, and in a read section. This thread
/// does not undo the larger reservation, and does not wait for readers.
#[test]
fn reserving_less_keeps_the_larger_size() {
    if <Form as relativist::Form>::BOXED {
        return;
    }
    let map: HashMap<Slow, u64> = HashMap::new();
    map.pin().insert(Slow(1), 1);
    HELD.store(true, SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| map.reserve(3000));
        wait_until("the first thread to move a key", || IS_MOVING.load(SeqCst));
        scope.spawn(|| {
            let _pinned = map.pin();
            map.reserve(100);
        });
        // Gives the second thread time to read the size of the map.
        thread::sleep(Duration::from_millis(50));
        HELD.store(false, SeqCst);
    });
    assert!(map.capacity() >= 3000);
    assert_eq!(map.pin().get(&Slow(1)), Some(&1));
}

/// A map with one entry is not empty, whichever bucket has the entry and whichever thread removes
/// it.
#[test]
fn one_entry_is_not_nothing() {
    let map: HashMap<u64, u64> = HashMap::new();
    assert!(map.is_empty());
    for room in [0, 100, 10_000, 100_000] {
        map.reserve(room);
        for n in 0..100 {
            map.pin().insert(n, n);
            assert!(!map.is_empty());
            if n % 10 == 0 {
                thread::scope(|scope| _ = scope.spawn(|| map.pin().remove(&n).copied()));
            } else {
                map.pin().remove(&n);
            }
            assert!(map.is_empty());
        }
        fill(&map, 1000);
        assert!(!map.is_empty());
        map.pin().clear();
        assert!(map.is_empty());
    }
}
