//! Entries that stay while the program uses their values.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use relativist_cache::{Builder, Cache, RemovalCause};
use relativist_testing::random::Random;

type Value = Arc<u32>;

fn builder(capacity: u64) -> Builder<u32, Value> {
    Cache::builder().capacity(capacity).keep_in_use()
}

/// Inserts keys, and returns their values.
fn insert(cache: &Cache<u32, Value>, keys: impl IntoIterator<Item = u32>) -> Vec<Value> {
    let insert = |key| {
        let value = Arc::new(key);
        cache.insert(key, Arc::clone(&value));
        value
    };
    keys.into_iter().map(insert).collect()
}

/// Inserts keys, whose values nobody uses.
fn fill(cache: &Cache<u32, Value>, keys: impl IntoIterator<Item = u32>) {
    keys.into_iter().for_each(|key| cache.insert(key, Arc::new(key)));
}

/// Returns how many of these values their keys have.
fn kept(cache: &Cache<u32, Value>, values: &[Value]) -> usize {
    let is_kept = |value: &&Value| cache.peek(&***value).is_some_and(|found| Arc::ptr_eq(&found, value));
    values.iter().filter(is_kept).count()
}

#[test]
fn entries_in_use_stay_until_they_are_not() {
    for capacity in [100, 1000] {
        let cache = builder(capacity).build();
        let used = insert(&cache, 0..50);
        let loaded: Vec<_> = (50..60).map(|key| cache.get_or_insert_with(key, || Arc::new(key))).collect();
        let others = 100..100 + 10 * capacity as u32;
        fill(&cache, others.clone());
        assert_eq!((kept(&cache, &used), kept(&cache, &loaded), cache.len()), (50, 10, capacity as usize));
        drop((used, loaded));
        // An eviction takes a visit from each, of which there are seven at most.
        (0..30).for_each(|_| fill(&cache, others.clone()));
        assert_eq!((0..60).filter(|key| cache.contains_key(key)).count(), 0);
    }
}

/// The cache has several shards. An insertion gives up after it has looked at some entries of each.
#[test]
fn nothing_is_inserted_if_all_entries_are_in_use() {
    let removed = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&removed);
    let report = move |&key: &u32, _: &Value, cause| reported.lock().unwrap().push((key, cause));
    let cache = builder(4096).on_removal(report).build();
    let mut used = insert(&cache, 0..4096);
    for key in 5000..5010 {
        let refused = cache.try_insert(key, Arc::new(key)).unwrap_err();
        assert_eq!((refused.key, *refused.value, refused.weight), (key, key, 1));
        assert_eq!(*cache.get_or_insert_with(key, || Arc::new(key)), key);
        assert_eq!(cache.compute(key, |_| Some(Arc::new(key))).as_deref(), Some(&key));
        assert_eq!(cache.get(&key), None);
    }
    assert_eq!((kept(&cache, &used), cache.len(), cache.stats().evictions), (4096, 4096, 0));
    // A replacement needs no room.
    used[7] = Arc::new(7);
    cache.insert(7, Arc::clone(&used[7]));
    assert_eq!((kept(&cache, &used), cache.len()), (4096, 4096));
    assert_eq!(*removed.lock().unwrap(), [(7, RemovalCause::Replaced)]);
    // Neither does a key in place of one that was removed.
    cache.invalidate(&8);
    cache.insert(5000, Arc::new(5000));
    assert_eq!((kept(&cache, &used), cache.len()), (4095, 4096));
    // The only one that is not in use makes room for the next.
    cache.insert(5001, Arc::new(5001));
    let inserted = (5001..6000).filter(|&key| cache.try_insert(key, Arc::new(key)).is_ok()).count();
    assert_eq!((kept(&cache, &used), cache.len()), (4095, 4096));
    assert!(inserted > 0);
}

#[test]
fn a_released_entry_makes_room() {
    let cache = builder(10).build();
    let mut used = insert(&cache, 0..10);
    for key in 10..100 {
        assert!(cache.try_insert(key, Arc::new(key)).is_err());
        let released = used.remove(key as usize * 7 % 10);
        let old = *released;
        drop(released);
        let value = Arc::new(key);
        assert!(cache.try_insert(key, Arc::clone(&value)).is_ok());
        used.push(value);
        assert_eq!((cache.contains_key(&old), kept(&cache, &used), cache.len()), (false, 10, 10));
    }
    // A weak reference and one under a guard are no uses.
    let weak: Vec<_> = used.iter().map(Arc::downgrade).collect();
    drop(used);
    let guard = relativist_cache::read();
    let value = cache.get_ref(&99, &guard).unwrap();
    fill(&cache, 100..1000);
    assert_eq!((cache.get_ref(&99, &guard), value.as_ref()), (None, &99));
    assert!(weak.iter().all(|weak| weak.upgrade().is_some()), "the guard keeps them");
}

/// An entry that is not in use is found, in whichever shard it is, and whatever it is worth.
#[test]
fn an_unused_entry_makes_room() {
    let mut random = Random::new(1);
    for _ in 0..2000 {
        let cache = Cache::builder().capacity(10_000).weigher(|_, weight: &Arc<u64>| **weight).keep_in_use().build();
        cache.insert(0, Arc::new(1));
        let weights = |random: &mut Random, weight: u64| (0..random.below(8)).map(move |_| Arc::new(weight));
        let mut used: Vec<_> = weights(&mut random, 1).collect();
        used.extend(weights(&mut random, 1000));
        used.push(Arc::new(9999 - used.iter().map(|weight| **weight).sum::<u64>()));
        (1..).zip(&used).for_each(|(key, weight)| cache.insert(key, Arc::clone(weight)));
        assert_eq!((cache.weight(), cache.len()), (10_000, used.len() + 1));
        assert!(cache.try_insert(100, Arc::new(1)).is_ok());
        assert_eq!((cache.contains_key(&0), cache.len()), (false, used.len() + 1));
    }
}

#[test]
fn expired_and_removed_entries_leave_even_if_they_are_in_use() {
    let (start, seconds) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let clock = Arc::clone(&seconds);
    let clock = move || start + Duration::from_secs(clock.load(SeqCst));
    let cache = builder(10).time_to_live(Duration::from_secs(100)).clock(clock).build();
    let used = insert(&cache, 0..10);
    assert!(cache.try_insert(10, Arc::new(10)).is_err());
    assert!(cache.remove(&3).is_some_and(|value| Arc::ptr_eq(&value, &used[3])));
    assert!(cache.try_insert(10, Arc::new(10)).is_ok());
    assert_eq!(kept(&cache, &used), 9);
    seconds.store(100, SeqCst);
    let later = insert(&cache, 20..30);
    assert_eq!((kept(&cache, &used), kept(&cache, &later), cache.stats().expirations), (0, 10, 10));
    cache.invalidate_all();
    assert_eq!(cache.len(), 0);
    let last = insert(&cache, 30..40);
    assert_eq!((kept(&cache, &last), kept(&cache, &later)), (10, 0));
}

#[test]
fn a_lower_capacity_evicts_entries_in_use_last() {
    let cache = builder(4096).build();
    let used = insert(&cache, 0..100);
    fill(&cache, 1000..10_000);
    cache.set_capacity(100);
    assert_eq!((kept(&cache, &used), cache.len()), (100, 100));
    assert!(cache.try_insert(100, Arc::new(100)).is_err());
    cache.set_capacity(40);
    assert_eq!((kept(&cache, &used), cache.len(), cache.capacity()), (40, 40, 40));
    cache.set_capacity(0);
    assert_eq!(cache.len(), 0);
    cache.set_capacity(100);
    assert_eq!(kept(&cache, &insert(&cache, 0..100)), 100);
}

/// An entry needs the room of several. If it is given back, it has displaced none in use.
#[test]
fn a_heavy_entry_is_given_back_if_entries_in_use_leave_too_little() {
    let cache = Cache::builder().capacity(100).weigher(|_, weight: &Arc<u64>| **weight).keep_in_use().build();
    let used: Vec<_> = (0..6_usize).map(|key| cache.get_or_insert_with(key, || Arc::new(10))).collect();
    (6..10).for_each(|key| cache.insert(key, Arc::new(10)));
    assert_eq!(cache.weight(), 100);
    assert_eq!(cache.try_insert(20, Arc::new(50)).unwrap_err().weight, 50);
    assert!(cache.try_insert(20, Arc::new(40)).is_ok());
    assert_eq!((cache.len(), cache.weight()), (7, 100));
    // A value that is out of date leaves, although the new one is not kept.
    assert!(cache.try_insert(0, Arc::new(60)).is_err());
    assert_eq!((0..6).filter(|key| cache.peek(key).is_some_and(|found| Arc::ptr_eq(&found, &used[*key]))).count(), 5);
    assert_eq!(cache.get(&0), None);
    assert_eq!(cache.compute(1, |_| Some(Arc::new(61))).as_deref(), Some(&61));
    assert_eq!((cache.get(&1), cache.get_or_refresh_with(2, |_| true, || Arc::new(71)).as_ref()), (None, &71));
    assert_eq!(cache.get(&2), None);
}

/// Random operations. The cache has each value that the test still has, and exact weights.
#[test]
fn random_operations_keep_all_that_is_in_use() {
    for (seed, entries) in [(1, 0), (2, 1 << 11)] {
        let weigh = |&value: &u32| 1 + u64::from(value % 50);
        let cache = builder(2000).estimated_entries(entries).weigher(move |_, value: &Value| weigh(value)).build();
        let (mut used, mut random) = (HashMap::new(), Random::new(seed));
        let mut refused = 0;
        for step in 0..10_000 {
            let key = random.below(300) as u32;
            let value = Arc::new(step);
            match random.below(10) {
                0..4 => match cache.try_insert(key, Arc::clone(&value)) {
                    Ok(()) => _ = used.insert(key, value),
                    Err(_) => {
                        refused += 1;
                        used.remove(&key);
                    }
                },
                4..6 => {
                    used.remove(&key);
                    cache.insert(key, value);
                }
                // Its uses end, all of them once in a while.
                6..9 => _ = used.remove(&key),
                _ if random.below(100) == 0 => used.clear(),
                _ => {
                    cache.invalidate(&key);
                    used.remove(&key);
                }
            }
            let has = |(key, value)| cache.peek(key).is_some_and(|found| Arc::ptr_eq(&found, value));
            assert!(used.iter().all(has));
            let sum: u64 = cache.iter().map(|(_, value)| weigh(&value)).sum();
            assert!(cache.weight() == sum && sum <= 2000);
        }
        assert!(refused > 0 && cache.stats().evictions > 0, "{refused}, {:?}", cache.stats());
    }
}

/// Two threads use entries of their own, while a third one fills the cache.
#[test]
fn threads_find_what_they_use() {
    const ROUNDS: u32 = 100;
    let cache = &builder(100).build();
    let (is_done, evictions) = (&AtomicBool::new(false), || cache.stats().evictions);
    thread::scope(|scope| {
        scope.spawn(|| {
            for key in (1000..).take_while(|_| !is_done.load(SeqCst)) {
                cache.insert(key, Arc::new(key));
            }
        });
        let users = [1, 2].map(|key| {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let value = Arc::new(round);
                    cache.insert(key, Arc::clone(&value));
                    let target = evictions() + 5;
                    while evictions() < target {
                        let found = cache.get(&key).expect("it is in use");
                        assert!(Arc::ptr_eq(&found, &value));
                    }
                }
            })
        });
        let results = users.map(|user| user.join());
        is_done.store(true, SeqCst);
        results.into_iter().for_each(|result| result.unwrap());
    });
    assert_eq!((cache.len(), cache.weight()), (100, 100));
}

/// All of the capacity is in use, by threads that insert at the same time: none waits for another.
#[test]
fn no_thread_waits_for_a_use_to_end() {
    let cache = &builder(1024).build();
    let inserted: Vec<_> = thread::scope(|scope| {
        let threads = [0, 1].map(|thread| {
            scope.spawn(move || {
                let mut used = Vec::new();
                for key in 0..2000 {
                    let value = Arc::new(2 * key + thread);
                    if cache.try_insert(*value, Arc::clone(&value)).is_ok() {
                        used.push(value);
                    }
                }
                used
            })
        });
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!((inserted.len(), kept(cache, &inserted), cache.len()), (1024, 1024, 1024));
}
