//! Operations of one thread, and which entries are evicted.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use relativist_cache::{Cache, RemovalCause};
use relativist_testing::wait_until;

/// Gives all keys the same hash.
#[derive(Clone, Copy, Default)]
pub(crate) struct Colliding;

impl BuildHasher for Colliding {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Colliding {
    fn finish(&self) -> u64 {
        42
    }

    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn entries_are_found_replaced_and_removed() {
    let cache = Cache::new(10);
    assert_eq!(cache.get("a"), None);
    cache.insert("a", 1);
    cache.insert("b", 2);
    assert_eq!((cache.get("a"), cache.peek("b"), cache.contains_key("c")), (Some(1), Some(2), false));
    cache.insert("a", 3);
    assert_eq!((cache.get("a"), cache.len(), cache.weight()), (Some(3), 2, 2));
    assert_eq!((cache.remove("a"), cache.remove("a")), (Some(3), None));
    cache.invalidate("b");
    assert!(cache.is_empty());
    assert_eq!(cache.weight(), 0);
}

#[test]
fn references_live_as_long_as_the_guard() {
    let cache = Cache::new(1);
    cache.insert(1, String::from("one"));
    let guard = relativist_cache::read();
    let one = cache.get_ref(&1, &guard);
    cache.insert(2, String::from("two"));
    assert_eq!((one.map(String::as_str), cache.get(&1)), (Some("one"), None));
}

#[test]
fn iteration_sees_each_entry_once() {
    let cache = Cache::new(100);
    (0..100).for_each(|n| cache.insert(n, n * n));
    let seen: HashMap<i32, i32> = cache.iter().collect();
    assert_eq!(seen, (0..100).map(|n| (n, n * n)).collect());
    cache.invalidate_all();
    assert_eq!((cache.iter().count(), cache.len(), cache.weight()), (0, 0, 0));
}

#[test]
fn visited_entries_survive_a_scan() {
    let cache = Cache::new(1000);
    (0..500).for_each(|n| cache.insert(n, ()));
    // Each is requested again before the scan is through.
    for n in 0..10_000 {
        (0..500).filter(|key| n % 100 == key % 100).for_each(|key| _ = cache.get(&key));
        cache.insert(1000 + n, ());
    }
    assert_eq!(cache.len(), 1000);
    // The first eviction finds all of them visited, and does not look at more than 256.
    assert!((0..500).filter(|key| cache.contains_key(key)).count() >= 498);
}

#[test]
fn an_unused_entry_is_evicted_in_the_end() {
    let cache = Cache::new(100);
    (0..100).for_each(|n| cache.insert(n, ()));
    (0..20).for_each(|_| (0..100).for_each(|n| _ = cache.get(&n)));
    // Each of these is visited, so they displace the others in time.
    for n in 100..20_000 {
        cache.insert(n, ());
        cache.get(&n);
    }
    assert_eq!((0..100).filter(|n| cache.contains_key(n)).count(), 0);
}

#[test]
fn a_key_that_comes_back_soon_is_protected() {
    let cache = Cache::new(100);
    (0..150).for_each(|n| cache.insert(n, ()));
    let (evicted, _) = (0..150).partition::<Vec<i32>, _>(|n| !cache.contains_key(n));
    let back = *evicted.last().unwrap();
    cache.insert(back, ());
    (1000..1300).for_each(|n| cache.insert(n, ()));
    assert!(cache.contains_key(&back), "a ghost came back");
}

#[test]
fn a_replacement_keeps_the_visits_of_a_key() {
    let cache = Cache::new(100);
    (0..100).for_each(|n| cache.insert(n, 0));
    cache.get(&0);
    cache.insert(0, 1);
    cache.insert(1, 1);
    (100..220).for_each(|n| cache.insert(n, 0));
    assert_eq!((cache.get(&0), cache.get(&1)), (Some(1), None));
}

#[test]
fn light_entries_outlive_heavy_ones_of_the_same_use() {
    let cache: Cache<u32, u64> = Cache::builder().capacity(100_000).weigher(|_, &weight| weight).build();
    for n in 0..1000 {
        cache.insert(n, if n % 2 == 0 { 10 } else { 1000 });
    }
    let (light, heavy): (Vec<_>, Vec<_>) = cache.iter().partition(|(_, weight)| *weight == 10);
    assert!(light.len() > 2 * heavy.len(), "{} and {}", light.len(), heavy.len());
}

#[test]
fn updates_of_a_key_evict_no_other() {
    let cache = Cache::new(100);
    (0..100).for_each(|n| cache.insert(n, 0));
    (0..1000).for_each(|n| cache.insert(7, n));
    assert_eq!((cache.len(), cache.stats().evictions), (100, 0));
}

#[test]
fn each_evicted_entry_is_reported_once() {
    let evicted = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&evicted);
    let cache = Cache::<u32, u32>::builder()
        .capacity(10)
        .on_removal(move |&key, &value, why| {
            assert_eq!((value, why.was_evicted()), (key + 1, key < 999));
            assert_eq!(why == RemovalCause::Size, key < 999);
            reported.lock().unwrap().push(key);
        })
        .hasher(Colliding)
        .build();
    for n in 0..1000 {
        cache.insert(n, n + 1);
        assert_eq!(evicted.lock().unwrap().len(), (n as usize).saturating_sub(9), "before the insertion returns");
    }
    cache.remove(&999);
    let mut all = evicted.lock().unwrap().clone();
    assert_eq!(all.len(), 991);
    assert_eq!(cache.stats().evictions, 990);
    all.extend(cache.iter().map(|(key, _)| key));
    all.sort_unstable();
    assert_eq!(all, (0..1000).collect::<Vec<_>>());
}

/// The oldest entry grows, and others make room for it, also those of other shards. It is not
/// itself evicted, and its key is found all the time.
#[test]
fn an_entry_is_not_evicted_for_the_one_that_replaces_it() {
    for estimate in [0, 1 << 14] {
        let (own, evicted) = (Arc::new(OnceLock::<Weak<Cache<u64, u64>>>::new()), Arc::new(Mutex::new(Vec::new())));
        let (of_listener, reports) = (Arc::clone(&own), Arc::clone(&evicted));
        let report = move |&key: &u64, _: &u64, cause| {
            if cause == RemovalCause::Replaced {
                return assert_eq!(key, 0);
            }
            let value = of_listener.get().and_then(Weak::upgrade).unwrap().peek(&0);
            reports.lock().unwrap().push((key, value));
        };
        let builder = Cache::builder().capacity(100).estimated_entries(estimate).weigher(|_, &weight: &u64| weight);
        let cache = Arc::new(builder.on_removal(report).build());
        own.set(Arc::downgrade(&cache)).unwrap();
        (0..10).for_each(|key| cache.insert(key, 10));
        cache.insert(0, 11);
        assert_eq!((cache.len(), cache.weight(), cache.stats().evictions), (9, 91, 1));
        let mut calls = 0;
        let mut decide = |old: Option<&u64>| {
            calls += 1;
            old.map(|old| 5 * old)
        };
        assert_eq!(cache.compute(0, &mut decide), Some(55));
        cache.insert(0, 100);
        assert_eq!((cache.get(&0), cache.len(), calls), (Some(100), 1, 1));
        let mut reported = std::mem::take(&mut *evicted.lock().unwrap());
        assert_eq!(reported.iter().filter(|(_, value)| value.is_some()).count(), 9);
        reported.sort_unstable();
        assert!(reported.iter().map(|&(key, _)| key).eq(1..10), "{reported:?}");
    }
}

#[test]
fn statistics_count_what_happened() {
    let cache: Cache<u32, u32> = Cache::builder().capacity(2).record_stats().build();
    for n in [1, 2, 1, 3, 1] {
        if cache.get(&n).is_none() {
            cache.insert(n, n);
        }
    }
    assert_eq!(cache.get_or_try_insert_with(4, || Err(())), Err(Arc::new(())));
    assert_eq!(cache.get_or_insert_with(5, || 5), 5);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (2, 5));
    assert_eq!((stats.loads, stats.failed_loads, stats.evictions, stats.expirations), (1, 1, 2, 0));
    assert!((stats.hit_ratio() - 2.0 / 7.0).abs() < 1e-9);
    let silent = Cache::new(1);
    silent.get(&1);
    silent.insert(1, 1);
    assert_eq!((silent.stats().misses, silent.stats().hit_ratio()), (0, 0.0));
}

#[test]
fn clones_are_the_same_cache() {
    let cache = Cache::new(10);
    let clone = cache.clone();
    clone.insert(1, "one");
    assert_eq!((cache.get(&1), cache.len()), (Some("one"), 1));
    drop(cache);
    assert_eq!(clone.get(&1), Some("one"));
}

#[test]
fn entries_come_from_iterators() {
    let mut cache: Cache<u32, u32> = (0..100).map(|n| (n, n * n)).collect();
    assert_eq!((cache.len(), cache.capacity(), cache.get(&9)), (100, u64::MAX, Some(81)));
    cache.extend([(9, 1), (200, 2)]);
    Extend::extend(&mut cache, [(201, 3)]);
    assert_eq!(cache.get_many([&9, &10, &150, &200, &201]), [Some(1), Some(100), None, Some(2), Some(3)]);
    assert_eq!((&cache).into_iter().count(), 102);
    assert_eq!((cache.get_or_insert(9, 7), cache.get_or_insert(300, 7)), (1, 7));
}

#[test]
fn what_a_condition_selects_is_removed() {
    let cache: Cache<u32, u32> = (0..1000).map(|n| (n, n)).collect();
    cache.retain(|_, value| value % 3 == 0);
    assert_eq!((cache.len(), cache.get(&3), cache.get(&4)), (334, Some(3), None));
    assert_eq!((cache.remove_if(&3, |_, &value| value > 3), cache.remove_if(&4, |_, _| true)), (None, None));
    assert_eq!((cache.remove_if(&3, |_, &value| value == 3), cache.get(&3)), (Some(3), None));
    // The value changes between the decision and the removal.
    let mut seen = Vec::new();
    let removed = cache.remove_if(&6, |_, &value| {
        seen.push(value);
        if value == 6 {
            cache.insert(6, 7);
        }
        value == 6
    });
    assert_eq!((removed, seen, cache.get(&6)), (None, vec![6, 7], Some(7)));
}

/// Tables grow and shrink by themselves; an iteration sees what stays exactly once.
#[test]
fn iteration_goes_on_while_tables_change_their_size() {
    const LEN: u64 = 2_000;
    // Whether an iteration stops in the middle of a bucket of the smaller table depends on hashes.
    for _ in 0..16 {
        let cache: Cache<u64, u64> = (0..LEN).map(|n| (n, n)).collect();
        let mut seen = vec![0u32; LEN as usize];
        for (step, (key, value)) in cache.iter().enumerate() {
            assert_eq!(key, value);
            if key < LEN {
                seen[key as usize] += 1;
            }
            match step {
                100 => (10_000..40_000).for_each(|n| cache.insert(n, n)),
                300 => (10_000..40_000).for_each(|n| cache.invalidate(&n)),
                600 => cache.retain(|key, _| key % 2 == 0),
                _ => {}
            }
        }
        assert!(seen.iter().step_by(2).all(|&n| n == 1) && seen.iter().all(|&n| n <= 1));
        assert_eq!(cache.len() as u64, LEN / 2);
    }
}

#[test]
fn each_removal_is_reported_with_its_cause() {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&reports);
    let report = move |&key: &u32, &value: &u32, cause| reported.lock().unwrap().push((key, value, cause));
    let cache = Cache::builder().capacity(2).on_removal(report).build();
    let take = || std::mem::take(&mut *reports.lock().unwrap());
    cache.insert(1, 10);
    cache.insert(1, 11);
    assert_eq!(take(), [(1, 10, RemovalCause::Replaced)]);
    cache.remove(&1);
    cache.compute(2, |_| Some(20));
    cache.compute(2, |_| Some(21));
    cache.compute(2, |_| None);
    cache.insert(3, 30);
    cache.retain(|_, _| false);
    cache.insert(4, 40);
    cache.remove_if(&4, |_, _| true);
    let explicit = RemovalCause::Explicit;
    let expected =
        [(1, 11, explicit), (2, 20, RemovalCause::Replaced), (2, 21, explicit), (3, 30, explicit), (4, 40, explicit)];
    assert_eq!(take(), expected);
    (5..8).for_each(|key| cache.insert(key, 0));
    assert_eq!(take().len(), 1);
    // They leave at once, and are reported in the background.
    cache.invalidate_all();
    assert_eq!((cache.len(), cache.weight(), cache.get(&7), cache.iter().count()), (0, 0, None, 0));
    wait_until("the reports", || reports.lock().unwrap().len() == 2);
    assert!(take().iter().all(|report| report.2 == explicit));
}

/// What was invalidated makes room for new entries. (A few others may be evicted while it is
/// freed.)
#[test]
fn invalidated_entries_make_room() {
    let cache: Cache<u32, u32> = Cache::new(1000);
    for round in 0..20 {
        (0..1000).for_each(|key| cache.insert(key, round));
        cache.invalidate_all();
        assert_eq!((cache.len(), cache.get(&500)), (0, None));
        (2000..3000).for_each(|key| cache.insert(key, round));
        assert!((800..=1000).contains(&cache.len()), "{}", cache.len());
        cache.invalidate_all();
    }
}

/// Also for an entry that needs the room of many.
#[test]
fn invalidated_entries_make_room_for_heavy_ones() {
    for round in 0..20 {
        let cache = Cache::builder().capacity(100_000).weigher(|_: &u64, &weight: &u64| weight).build();
        (0..20_000).for_each(|key| cache.insert(key, 5));
        cache.invalidate_all();
        (0..100).for_each(|n| cache.insert(100_000 + 1000 * round + n, 1));
        cache.insert(200_000, 90_000);
        assert_eq!((cache.len(), cache.stats().evictions), (101, 0), "round {round}");
    }
}
