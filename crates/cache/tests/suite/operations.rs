//! Operations of one thread, and which entries are evicted.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use relativist_cache::Cache;
use relativist_cache::Eviction;

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
    cache.insert("a", 1).unwrap();
    cache.insert("b", 2).unwrap();
    assert_eq!((cache.get("a"), cache.peek("b"), cache.contains("c")), (Some(1), Some(2), false));
    cache.insert("a", 3).unwrap();
    assert_eq!((cache.get("a"), cache.len(), cache.weight()), (Some(3), 2, 2));
    assert_eq!((cache.remove("a"), cache.remove("a")), (Some(3), None));
    cache.invalidate("b");
    assert!(cache.is_empty());
    assert_eq!(cache.weight(), 0);
}

#[test]
fn references_live_as_long_as_the_guard() {
    let cache = Cache::new(1);
    cache.insert(1, String::from("one")).unwrap();
    let guard = relativist_cache::read();
    let one = cache.get_ref(&1, &guard);
    cache.insert(2, String::from("two")).unwrap();
    assert_eq!((one.map(String::as_str), cache.get(&1)), (Some("one"), None));
}

#[test]
fn iteration_sees_each_entry_once() {
    let cache = Cache::new(100);
    (0..100).for_each(|n| cache.insert(n, n * n).unwrap());
    let guard = relativist_cache::read();
    let seen: HashMap<i32, i32> = cache.iter(&guard).map(|(&key, &value)| (key, value)).collect();
    assert_eq!(seen, (0..100).map(|n| (n, n * n)).collect());
    cache.invalidate_all();
    assert_eq!((cache.iter(&guard).count(), cache.len(), cache.weight()), (0, 0, 0));
}

#[test]
fn visited_entries_survive_a_scan() {
    let cache = Cache::new(1000);
    (0..500).for_each(|n| cache.insert(n, ()).unwrap());
    // Each is requested again before the scan is through.
    for n in 0..10_000 {
        (0..500).filter(|key| n % 100 == key % 100).for_each(|key| _ = cache.get(&key));
        cache.insert(1000 + n, ()).unwrap();
    }
    assert_eq!(cache.len(), 1000);
    // The first eviction finds all of them visited, and does not look at more than 256.
    assert!((0..500).filter(|key| cache.contains(key)).count() >= 498);
}

#[test]
fn an_unused_entry_is_evicted_in_the_end() {
    let cache = Cache::new(100);
    (0..100).for_each(|n| cache.insert(n, ()).unwrap());
    (0..20).for_each(|_| (0..100).for_each(|n| _ = cache.get(&n)));
    // Each of these is visited, so they displace the others in time.
    for n in 100..20_000 {
        cache.insert(n, ()).unwrap();
        cache.get(&n);
    }
    assert_eq!((0..100).filter(|n| cache.contains(n)).count(), 0);
}

#[test]
fn a_key_that_comes_back_soon_is_protected() {
    let cache = Cache::new(100);
    (0..150).for_each(|n| cache.insert(n, ()).unwrap());
    let (evicted, _) = (0..150).partition::<Vec<i32>, _>(|n| !cache.contains(n));
    let back = *evicted.last().unwrap();
    cache.insert(back, ()).unwrap();
    (1000..1300).for_each(|n| cache.insert(n, ()).unwrap());
    assert!(cache.contains(&back), "a ghost came back");
}

#[test]
fn light_entries_outlive_heavy_ones_of_the_same_use() {
    let cache: Cache<u32, u64> = Cache::builder().capacity(100_000).weigher(|_, &weight| weight).build();
    for n in 0..1000 {
        cache.insert(n, if n % 2 == 0 { 10 } else { 1000 }).unwrap();
    }
    let guard = relativist_cache::read();
    let (light, heavy): (Vec<_>, Vec<_>) = cache.iter(&guard).partition(|(_, weight)| **weight == 10);
    assert!(light.len() > 2 * heavy.len(), "{} and {}", light.len(), heavy.len());
}

#[test]
fn updates_of_a_key_evict_no_other() {
    let cache = Cache::new(100);
    (0..100).for_each(|n| cache.insert(n, 0).unwrap());
    (0..1000).for_each(|n| cache.insert(7, n).unwrap());
    assert_eq!((cache.len(), cache.stats().evictions), (100, 0));
}

#[test]
fn each_evicted_entry_is_reported_once() {
    let evicted = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&evicted);
    let cache = Cache::<u32, u32>::builder()
        .capacity(10)
        .on_evict(move |&key, &value, why| {
            assert_eq!((value, why), (key + 1, Eviction::Capacity));
            reported.lock().unwrap().push(key);
        })
        .hasher(Colliding)
        .build();
    for n in 0..1000 {
        cache.insert(n, n + 1).unwrap();
        assert_eq!(evicted.lock().unwrap().len(), (n as usize).saturating_sub(9), "before the insertion returns");
    }
    cache.remove(&999);
    let mut all = evicted.lock().unwrap().clone();
    assert_eq!(all.len(), 990);
    assert_eq!(cache.stats().evictions, 990);
    all.extend(cache.iter(&relativist_cache::read()).map(|(&key, _)| key));
    all.push(999);
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
        let report = move |&key: &u64, _: &u64, _| {
            let value = of_listener.get().and_then(Weak::upgrade).unwrap().peek(&0);
            reports.lock().unwrap().push((key, value));
        };
        let builder = Cache::builder().capacity(100).estimated_entries(estimate).weigher(|_, &weight: &u64| weight);
        let cache = Arc::new(builder.on_evict(report).build());
        own.set(Arc::downgrade(&cache)).unwrap();
        (0..10).for_each(|key| cache.insert(key, 10).unwrap());
        cache.insert(0, 11).unwrap();
        assert_eq!((cache.len(), cache.weight(), cache.stats().evictions), (9, 91, 1));
        let mut calls = 0;
        let mut decide = |old: Option<&u64>| {
            calls += 1;
            Ok::<_, ()>(old.map(|old| 5 * old))
        };
        assert_eq!(cache.compute(0, &mut decide, &relativist_cache::read()).unwrap().new, Some(&55));
        cache.insert(0, 100).unwrap();
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
            cache.insert(n, n).unwrap();
        }
    }
    assert_eq!(cache.get_or_try_insert_with(4, || Err(())), Err(()));
    assert_eq!(cache.get_or_insert_with(5, || 5), 5);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (2, 5));
    assert_eq!((stats.loads, stats.failed_loads, stats.evictions, stats.expirations), (1, 1, 2, 0));
    assert!((stats.hit_ratio() - 2.0 / 7.0).abs() < 1e-9);
    let silent = Cache::new(1);
    silent.get(&1);
    silent.insert(1, 1).unwrap();
    assert_eq!((silent.stats().misses, silent.stats().hit_ratio()), (0, 0.0));
}
