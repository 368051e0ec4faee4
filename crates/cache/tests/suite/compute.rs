//! Updates that depend on the present value: none is lost, and they treat weights, expiry and loads
//! as insertions and removals do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use relativist_cache::Cache;

use crate::operations::Colliding;
use relativist_testing::random::Random;

fn add(n: Option<&u64>) -> Option<u64> {
    Some(n.map_or(1, |n| n + 1))
}

/// Returns the value of a key, and changes nothing.
fn look<K: std::hash::Hash + Eq + Send + Sync + 'static>(cache: &Cache<K, u64>, key: K) -> Option<u64> {
    cache.try_compute(key, |n| Err::<Option<u64>, _>(n.copied())).unwrap_err()
}

/// A cache in which an entry weighs its value, and a count of its evictions.
fn of_weights(capacity: u64) -> (Cache<&'static str, u64>, Arc<AtomicU64>) {
    let evictions = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&evictions);
    let cache = Cache::builder()
        .capacity(capacity)
        .weigher(|_, &weight| weight)
        .on_removal(move |_, _, cause| _ = counted.fetch_add(u64::from(cause.was_evicted()), Relaxed))
        .build();
    (cache, evictions)
}

#[test]
fn a_value_is_inserted_replaced_kept_and_removed() {
    let (cache, evictions) = of_weights(100);
    assert_eq!((cache.compute("a", add), cache.compute("a", add)), (Some(1), Some(2)));
    assert_eq!((cache.get("a"), cache.len(), cache.weight()), (Some(2), 1, 2));

    assert_eq!(cache.try_compute("a", |_| Err("no")), Err("no"));
    assert_eq!(cache.try_compute("b", |_| Err("no")), Err("no"));
    assert_eq!((cache.get("a"), cache.len(), cache.weight()), (Some(2), 1, 2));

    let mut seen = Vec::new();
    for _ in 0..2 {
        let removed = cache.compute("a", |n| {
            seen.push(n.copied());
            None
        });
        assert_eq!(removed, None);
    }
    assert_eq!((seen, cache.get("a"), cache.len(), cache.weight()), (vec![Some(2), None], None, 0, 0));
    assert_eq!(evictions.load(Relaxed), 0, "no entry was evicted");
}

#[test]
fn the_function_may_change_the_same_key_and_runs_again() {
    let cache = Cache::<_, u64>::new(10);
    let mut calls = 0;
    let value = cache.compute("a", |n| {
        calls += 1;
        match calls {
            1 => cache.insert("a", 10),
            2 => cache.invalidate("a"),
            3 => cache.insert("a", 20),
            _ => {}
        }
        add(n)
    });
    assert_eq!((value, calls), (Some(21), 4));
    // An equal value is another entry.
    let mut calls = 0;
    let value = cache.compute("a", |n| {
        calls += 1;
        if calls == 1 {
            cache.insert("a", 21);
        }
        n.filter(|_| calls > 2).copied()
    });
    assert_eq!((value, calls, cache.get("a")), (None, 2, None));
}

#[test]
fn a_heavier_value_evicts_others_and_a_lighter_one_makes_room() {
    let (cache, evictions) = of_weights(100);
    cache.insert("a", 60);
    cache.insert("b", 40);
    // The entry that grows was found, so the other one is evicted.
    let value = cache.compute("a", |n| n.map(|n| n + 20));
    assert_eq!((value, cache.weight(), evictions.load(Relaxed)), (Some(80), 80, 1));
    assert!(!cache.contains_key("b"));
    cache.compute("a", |_| Some(10));
    cache.insert("b", 90);
    assert_eq!((cache.len(), cache.weight(), evictions.load(Relaxed)), (2, 100, 1));
    // A value that takes all of the capacity.
    assert_eq!(cache.compute("a", |_| Some(100)), Some(100));
    assert_eq!((cache.len(), cache.weight(), evictions.load(Relaxed)), (1, 100, 2));
}

#[test]
fn a_value_that_is_too_heavy_is_returned() {
    let (cache, _) = of_weights(100);
    for (key, present) in [("a", Some(7)), ("b", None)] {
        if let Some(value) = present {
            cache.insert(key, value);
        }
        cache.insert("other", 10);
        let mut seen = None;
        let value = cache.compute(key, |n| {
            seen = n.copied();
            Some(101)
        });
        assert_eq!((value, seen), (Some(101), present));
        // The previous value is out of date, as after an insertion.
        assert_eq!((cache.get(key), cache.len(), cache.weight()), (None, 1, 10));
    }
}

#[test]
fn an_expired_value_is_not_seen_and_a_new_one_lives_as_long_again() {
    const SECOND: Duration = Duration::from_secs(1);
    let (start, seconds) = (Instant::now(), Arc::<AtomicU64>::default());
    let clock = Arc::clone(&seconds);
    let cache: Cache<u32, u64> = Cache::builder()
        .time_to_live(10 * SECOND)
        .expire_after(|_, &value| (value == 100).then_some(SECOND))
        .clock(move || start + SECOND * clock.load(Relaxed) as u32)
        .build();
    cache.insert(1, 5);
    seconds.store(9, Relaxed);
    assert_eq!(cache.compute(1, add), Some(6));
    seconds.store(18, Relaxed);
    assert_eq!(cache.get(&1), Some(6));
    seconds.store(19, Relaxed);
    assert_eq!(cache.compute(1, add), Some(1));
    assert_eq!((cache.get(&1), cache.len(), cache.weight()), (Some(1), 1, 1));
    // A lifetime of its own.
    cache.compute(1, |_| Some(100));
    seconds.store(20, Relaxed);
    assert_eq!(cache.get(&1), None);
    assert_eq!((look(&cache, 1), cache.compute(1, |_| None), cache.len()), (None, None, 0));
}

#[test]
fn finding_the_entry_postpones_the_deadline_of_an_idle_one() {
    let (start, seconds) = (Instant::now(), Arc::<AtomicU64>::default());
    let clock = Arc::clone(&seconds);
    let cache: Cache<u32, u64> = Cache::builder()
        .time_to_idle(Duration::from_secs(10))
        .clock(move || start + Duration::from_secs(clock.load(Relaxed)))
        .build();
    cache.insert(1, 5);
    for second in [9, 18, 27] {
        seconds.store(second, Relaxed);
        assert_eq!(look(&cache, 1), Some(5));
    }
    seconds.store(37, Relaxed);
    assert_eq!(cache.get(&1), None);
}

#[test]
fn a_value_that_is_loaded_meanwhile_does_not_replace_the_new_one() {
    let cache: Cache<u32, u64> = Cache::new(10);
    let load = |decision| {
        cache.get_or_insert_with(1, || {
            cache.compute(1, |_| decision);
            7
        })
    };
    assert_eq!((load(Some(100)), cache.get(&1)), (7, Some(100)));
    cache.invalidate(&1);
    // A removal of what is not there yet.
    assert_eq!((load(None), cache.get(&1)), (7, None));
    // A decision to change nothing does not concern a load.
    let value = cache.get_or_insert_with(1, || {
        assert_eq!(look(&cache, 1), None);
        7
    });
    assert_eq!((value, cache.get(&1)), (7, Some(7)));
}

#[test]
fn a_panic_in_the_function_changes_nothing() {
    let cache = Cache::<_, u64>::new(10);
    cache.insert(1, 5);
    for key in [1, 2] {
        let panics = |_: Option<&u64>| -> Option<u64> { panic!("in the function") };
        assert!(catch_unwind(AssertUnwindSafe(|| cache.compute(key, panics))).is_err());
    }
    assert_eq!((cache.get(&1), cache.get(&2), cache.len(), cache.weight()), (Some(5), None, 1, 1));
    assert_eq!((cache.compute(1, add), cache.compute(2, add)), (Some(6), Some(1)));
}

/// Threads count on more keys than there is room for: what was evicted or removed, and what is
/// left, is the number of calls.
fn counts(threads: u64, keys: u64, capacity: u64, estimate: u64, weigher: impl Fn(u64) -> u64 + Send + Sync + 'static) {
    const STEPS: u64 = 20_000;
    let evicted = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&evicted);
    let cache = Cache::<u64, u64>::builder()
        .capacity(capacity)
        .estimated_entries(estimate)
        .weigher(move |_, &count| weigher(count))
        .on_removal(move |_, &count, cause| _ = counted.fetch_add(if cause.was_evicted() { count } else { 0 }, Relaxed))
        .build();
    let removed: u64 = thread::scope(|scope| {
        let count = |seed| {
            let cache = &cache;
            move || {
                let mut random = Random::new(seed);
                let mut removed = 0;
                for step in 0..STEPS {
                    let key = random.below(keys);
                    let mut found = None;
                    // Removing takes the call that removes back.
                    let value = cache.compute(key, |n: Option<&u64>| {
                        found = n.copied();
                        if step % 64 == 63 && n.is_some() { None } else { add(n) }
                    });
                    if value.is_none() {
                        removed += found.unwrap() + 1;
                    }
                }
                removed
            }
        };
        let threads: Vec<_> = (0..threads).map(|seed| scope.spawn(count(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let left: u64 = cache.iter().map(|(_, count)| count).sum();
    assert_eq!(evicted.load(Relaxed) + removed + left, threads * STEPS);
    assert!(cache.weight() <= capacity);
    assert_eq!(evicted.load(Relaxed) > 0, keys > capacity);
    // Every entry can be evicted.
    cache.set_capacity(0);
    assert_eq!((cache.len(), cache.weight()), (0, 0));
}

#[test]
fn no_update_is_lost() {
    // With room for what each thread has reserved, or removed and not released yet.
    counts(4, 1, 20, 0, |_| 1);
    counts(4, 8, 20, 0, |_| 1);
}

#[test]
fn no_update_is_lost_while_entries_are_evicted() {
    counts(4, 40, 20, 0, |_| 1);
    counts(4, 4000, 2000, 1 << 14, |_| 1);
}

/// Entries grow, so that updates of a key evict others, and sometimes that key.
#[test]
fn no_update_is_lost_while_entries_grow() {
    counts(4, 300, 200, 0, |count| 1 + count % 20);
    counts(4, 300, 200, 1 << 14, |count| 1 + count % 20);
}

/// All keys need the whole capacity: each call evicts what another thread counts on.
#[test]
fn threads_that_each_need_all_of_the_room_make_progress() {
    let cache: Cache<u64, u64, _> = Cache::builder().capacity(5).weigher(|_, _| 5).hasher(Colliding).build();
    thread::scope(|scope| {
        for key in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                for _ in 0..5000 {
                    assert!(cache.compute(key, add).is_some());
                }
            });
        }
    });
    assert_eq!((cache.len(), cache.weight()), (1, 5));
}

/// Another thread changes the value after `compute` has decided on one that is too heavy, and
/// before it is applied: in the weigher. That does not own the cache, which would leak.
#[test]
fn a_value_that_is_too_heavy_loses_no_update() {
    let own = Arc::new(std::sync::OnceLock::<Cache<u32, u64>>::new());
    let of_weigher = Arc::downgrade(&own);
    let weigher = move |&key: &u32, &value: &u64| {
        if value == 101 {
            of_weigher.upgrade().unwrap().get().unwrap().insert(key, 7);
        }
        value
    };
    let cache = Cache::builder().capacity(100).weigher(weigher).build();
    assert!(own.set(cache.clone()).is_ok());
    cache.insert(1, 5);
    let mut seen = Vec::new();
    let value = cache.compute(1, |n| {
        seen.push(n.copied());
        Some(if n == Some(&5) { 101 } else { 8 })
    });
    assert_eq!((value, seen, cache.get(&1)), (Some(8), vec![Some(5), Some(7)], Some(8)));
}
