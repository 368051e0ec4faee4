//! The initial sizes of flat maps, and the sizes to which they are resized.

use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{scope, sleep, yield_now};
use std::time::{Duration, Instant};

use relativist::{BuildError, PolicyError, Relocatable, Resizing};
use relativist_testing::{patience, wait_until};

use crate::hashing::MIXED;
use crate::tested::{HashMap, build, builder, try_build};

/// Waits until updates and the background thread have resized a map to this number of buckets.
#[track_caller]
fn wait_for_buckets(map: &HashMap<u64, u64>, expected: RangeInclusive<usize>) {
    wait_until(&format!("{expected:?} buckets"), || expected.contains(&map.buckets()));
}

fn fill(map: &HashMap<u64, u64>, entries: u64) {
    (0..entries).for_each(|n| _ = map.pin().insert(n, n));
}

#[test]
fn room_is_made_for_what_was_asked() {
    assert_eq!(HashMap::<u64, u64>::new().buckets(), 2);
    assert_eq!(HashMap::<u64, u64>::with_capacity(0).buckets(), 2);
    // At most three entries per bucket.
    assert_eq!(HashMap::<u64, u64>::with_capacity(1000).buckets(), 512);
    assert_eq!(HashMap::<u64, u64, _>::with_capacity_and_hasher(1000, MIXED).buckets(), 512);
    let loaded = build::<u64, u64, _>(builder().capacity(1000).load_factor(0.125..=1.0));
    assert_eq!(loaded.buckets(), 1024);
    let floor = build::<u64, u64, _>(builder().capacity(10).floor(1000));
    assert_eq!(floor.buckets(), 512);
}

/// A map that was made for a number of entries is not resized while it is filled with them.
#[test]
fn room_for_entries_is_room_for_all_of_them() {
    for entries in [1, 6, 7, 100, 1000, 3072, 3073] {
        let map: HashMap<u64, u64> = HashMap::with_capacity(entries as usize);
        let buckets = map.buckets();
        fill(&map, entries);
        assert_eq!((map.buckets(), map.is_resizing(), map.stats().grows), (buckets, false, 0), "{entries}");
    }
}

/// A key whose `Hash` waits while [`HELD`] is set. A growing map calls it to move the key.
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
            yield_now();
        }
        self.0.hash(state);
    }
}

/// Two threads reserve room at the same time, one of them less, and in a read section. This thread
/// does not undo the larger reservation, and does not wait for readers.
#[test]
fn reserving_less_keeps_the_larger_size() {
    let map: HashMap<Slow, u64> = HashMap::new();
    map.pin().insert(Slow(1), 1);
    HELD.store(true, SeqCst);
    scope(|scope| {
        scope.spawn(|| map.reserve(3000));
        wait_until("the first thread to move a key", || IS_MOVING.load(SeqCst));
        scope.spawn(|| {
            let _pinned = map.pin();
            map.reserve(100);
        });
        // Gives the second thread time to read the size of the map.
        sleep(Duration::from_millis(50));
        HELD.store(false, SeqCst);
    });
    assert_eq!(map.buckets(), 1024);
    assert_eq!(map.pin().get(&Slow(1)), Some(&1));
}

/// Growing waits for no reader, so a handle of this thread is no obstacle.
#[test]
fn grows_by_hand_under_a_handle() {
    let map: HashMap<u64, u64> = HashMap::new();
    fill(&map, 1000);
    let pinned = map.pin();
    for buckets in [4096, 4096, 1 << 15] {
        map.resize_to(buckets).unwrap();
        assert_eq!(map.buckets(), buckets);
        assert!((0..1000).all(|n| pinned.get(&n) == Some(&n)));
    }
    for shrink in [|map: &HashMap<u64, u64>| map.resize_to(64), HashMap::shrink_to_fit] {
        let panic = catch_unwind(AssertUnwindSafe(|| shrink(&map))).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.starts_with("shrinking waits for readers"), "{text}");
    }
    drop(pinned);
    map.resize_to(64).unwrap();
    assert_eq!((map.buckets(), map.len()), (64, 1000));
}

/// Threads with handles make the map larger at the same time. None of them shrinks it.
#[test]
fn threads_with_handles_grow_a_map() {
    for _ in 0..20 {
        let map: HashMap<u64, u64> = build(builder().resizing(Resizing::Manual));
        fill(&map, 100);
        scope(|scope| {
            for buckets in [64, 1024, 256, 4096] {
                scope.spawn({
                    let map = &map;
                    move || {
                        let _pinned = map.pin();
                        if map.buckets() < buckets {
                            // Fails if another thread has made the map larger since.
                            let _ = catch_unwind(AssertUnwindSafe(|| map.resize_to(buckets)));
                        }
                        assert!(map.buckets() >= buckets);
                    }
                });
            }
        });
        assert_eq!((map.buckets(), map.len()), (4096, 100));
    }
}

#[test]
fn a_map_of_one_size_keeps_it() {
    let map: HashMap<u64, u64> = build(builder().capacity(1000).ceiling(1000));
    let buckets = map.buckets();
    fill(&map, 10_000);
    map.reserve(1000);
    map.pin().clear();
    let later: HashMap<u64, u64> = HashMap::new();
    fill(&later, 10_000);
    wait_for_buckets(&later, 4096..=8192);
    assert_eq!((map.buckets(), map.stats().grows, map.stats().shrinks), (buckets, 0, 0));
}

#[test]
fn an_automatic_map_stays_within_its_bounds() {
    let map: HashMap<u64, u64> = build(builder().capacity(100).floor(20).ceiling(3000));
    assert_eq!(map.buckets(), 64);
    fill(&map, 20_000);
    wait_for_buckets(&map, 1024..=1024);
    map.reserve(10_000);
    assert_eq!(map.buckets(), 1024);
    assert!((0..20_000).all(|n| map.pin().get(&n) == Some(&n)), "with some twenty entries per bucket");
    map.pin().clear();
    wait_for_buckets(&map, 8..=8);
    map.resize_to(4096).unwrap();
    assert_eq!(map.buckets(), 4096, "by hand");
}

/// Updates and the background thread resize the map. Both keep its load within the bounds.
#[test]
fn an_automatic_map_keeps_its_load_factor() {
    let map: HashMap<u64, u64> = HashMap::new();
    for entries in [10, 100, 1000, 10_000, 50_000] {
        fill(&map, entries);
        let least = (entries as usize).div_ceil(3);
        wait_for_buckets(&map, least..=least * 4);
        let stats = map.stats();
        assert_eq!(stats.entries as u64, entries);
        assert!(stats.longest_chain < 40, "{stats:?}");
    }
    map.pin().retain(|n, _| n % 100 == 0);
    wait_for_buckets(&map, 128..=2048);
    assert_eq!(map.pin().iter().count(), 500);
}

#[test]
fn nonsense_is_an_error() {
    let load = try_build::<u64, u64, _>(builder().load_factor(0.5..=0.75)).unwrap_err();
    assert_eq!(load, BuildError::Policy(PolicyError::LoadFactor(0.5..=0.75)));
    let bounds = try_build::<u64, u64, _>(builder().floor(1000).ceiling(100)).unwrap_err();
    assert!(matches!(bounds, BuildError::Policy(PolicyError::Buckets(_))));
    let memory = try_build::<u64, u64, _>(builder().capacity(usize::MAX)).unwrap_err();
    assert!(memory.to_string().contains("cannot allocate"), "{memory}");
}
