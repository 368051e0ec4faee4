//! Updates that depend on the present value: none is lost, and they treat weights, expiry and loads
//! as insertions and removals do.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use relativist_cache::{Cache, Change, read};
use relativist_cache::{ComputeError, Eviction};

use crate::operations::Colliding;
use relativist_testing::random::Random;

fn add(n: Option<&u64>) -> Result<Option<u64>, Infallible> {
    Ok(Some(n.map_or(1, |n| n + 1)))
}

/// A cache in which an entry weighs its value, and a count of its evictions.
fn of_weights(capacity: u64) -> (Cache<&'static str, u64>, Arc<AtomicU64>) {
    let evictions = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&evictions);
    let cache = Cache::builder()
        .capacity(capacity)
        .weigher(|_, &weight| weight)
        .on_evict(move |_, _, _| _ = counted.fetch_add(1, Relaxed))
        .build();
    (cache, evictions)
}

#[test]
fn a_value_is_inserted_replaced_kept_and_removed() {
    let (cache, evictions) = of_weights(100);
    let guard = read();
    assert_eq!(cache.compute("a", add, &guard).unwrap(), Change { old: None, new: Some(&1) });
    assert_eq!(cache.compute("a", add, &guard).unwrap(), Change { old: Some(&1), new: Some(&2) });
    assert_eq!((cache.get("a"), cache.len(), cache.weight()), (Some(2), 1, 2));

    let refused = cache.compute("a", |_| Err("no"), &guard).unwrap_err();
    assert_eq!(refused, ComputeError::Failed("no"));
    assert_eq!((refused.to_string(), format!("{refused:?}")), ("no".into(), "Failed(\"no\")".into()));
    assert_eq!(cache.compute("b", |_| Err("no"), &guard), Err(ComputeError::Failed("no")));
    assert_eq!((cache.get("a"), cache.len(), cache.weight()), (Some(2), 1, 2));

    let remove = |_: Option<&u64>| Ok::<_, ()>(None);
    assert_eq!(cache.compute("a", remove, &guard).unwrap(), Change { old: Some(&2), new: None });
    assert_eq!(cache.compute("a", remove, &guard).unwrap(), Change { old: None, new: None });
    assert_eq!((cache.get("a"), cache.len(), cache.weight()), (None, 0, 0));
    assert_eq!(evictions.load(Relaxed), 0, "no entry was evicted");
}

#[test]
fn the_function_may_change_the_same_key_and_runs_again() {
    let cache = Cache::<_, u64>::new(10);
    let guard = read();
    let mut calls = 0;
    let change = cache.compute(
        "a",
        |n| {
            calls += 1;
            match calls {
                1 => cache.insert("a", 10).unwrap(),
                2 => cache.invalidate("a"),
                3 => cache.insert("a", 20).unwrap(),
                _ => {}
            }
            add(n)
        },
        &guard,
    );
    assert_eq!((change.unwrap(), calls), (Change { old: Some(&20), new: Some(&21) }, 4));
    // An equal value is another entry.
    let mut calls = 0;
    let change = cache.compute(
        "a",
        |n| {
            calls += 1;
            if calls == 1 {
                cache.insert("a", 21).unwrap();
            }
            Ok::<_, Infallible>(n.filter(|_| calls > 2).copied())
        },
        &guard,
    );
    assert_eq!((change.unwrap().new, calls, cache.get("a")), (None, 2, None));
}

#[test]
fn a_heavier_value_evicts_others_and_a_lighter_one_makes_room() {
    let (cache, evictions) = of_weights(100);
    let guard = read();
    cache.insert("a", 60).unwrap();
    cache.insert("b", 40).unwrap();
    // The entry that grows was found, so the other one is evicted.
    let change = cache.compute("a", |n| Ok::<_, Infallible>(n.map(|n| n + 20)), &guard).unwrap();
    assert_eq!((change.new, cache.weight(), evictions.load(Relaxed)), (Some(&80), 80, 1));
    assert!(!cache.contains("b"));
    cache.compute("a", |_| Ok::<_, Infallible>(Some(10)), &guard).unwrap();
    cache.insert("b", 90).unwrap();
    assert_eq!((cache.len(), cache.weight(), evictions.load(Relaxed)), (2, 100, 1));
    // A value that takes all of the capacity.
    assert_eq!(cache.compute("a", |_| Ok::<_, Infallible>(Some(100)), &guard).unwrap().new, Some(&100));
    assert_eq!((cache.len(), cache.weight(), evictions.load(Relaxed)), (1, 100, 2));
}

#[test]
fn a_value_that_is_too_heavy_is_given_back() {
    let (cache, _) = of_weights(100);
    let guard = read();
    for (key, present) in [("a", Some(7)), ("b", None)] {
        if let Some(value) = present {
            cache.insert(key, value).unwrap();
        }
        cache.insert("other", 10).unwrap();
        let mut seen = None;
        let result = cache.compute(
            key,
            |n| {
                seen = n;
                Ok::<_, Infallible>(Some(101))
            },
            &guard,
        );
        let error = result.unwrap_err();
        assert_eq!(error.to_string(), "an entry of weight 101 is heavier than the cache");
        let ComputeError::TooHeavy(refused) = error else { panic!("{error:?}") };
        assert_eq!((refused.key, refused.value, refused.weight, seen), (key, 101, 101, present.as_ref()));
        // The previous value is out of date, as after an insertion.
        assert_eq!((cache.get(key), cache.len(), cache.weight()), (None, 1, 10));
    }
    // If the key was changed meanwhile, the function sees the new value before anything is removed.
    cache.insert("a", 1).unwrap();
    let result = cache.compute(
        "a",
        |n| {
            if n == Some(&1) {
                cache.insert("a", 2).unwrap();
                return Ok(Some(101));
            }
            Err(n.copied())
        },
        &guard,
    );
    assert_eq!((result, cache.get("a")), (Err(ComputeError::Failed(Some(2))), Some(2)));
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
    let guard = read();
    cache.insert(1, 5).unwrap();
    seconds.store(9, Relaxed);
    assert_eq!(cache.compute(1, add, &guard).unwrap().new, Some(&6));
    seconds.store(18, Relaxed);
    assert_eq!(cache.get(&1), Some(6));
    seconds.store(19, Relaxed);
    assert_eq!(cache.compute(1, add, &guard).unwrap(), Change { old: None, new: Some(&1) });
    assert_eq!((cache.get(&1), cache.len(), cache.weight()), (Some(1), 1, 1));
    // A lifetime of its own.
    cache.compute(1, |_| Ok::<_, ()>(Some(100)), &guard).unwrap();
    seconds.store(20, Relaxed);
    assert_eq!(cache.get(&1), None);
    assert_eq!(cache.compute(1, |n| Err::<Option<u64>, _>(n.copied()), &guard), Err(ComputeError::Failed(None)));
    assert_eq!(cache.compute(1, |_| Ok::<_, ()>(None), &guard).unwrap(), Change { old: None, new: None });
}

#[test]
fn finding_the_entry_postpones_the_deadline_of_an_idle_one() {
    let (start, seconds) = (Instant::now(), Arc::<AtomicU64>::default());
    let clock = Arc::clone(&seconds);
    let cache: Cache<u32, u64> = Cache::builder()
        .time_to_idle(Duration::from_secs(10))
        .clock(move || start + Duration::from_secs(clock.load(Relaxed)))
        .build();
    cache.insert(1, 5).unwrap();
    for second in [9, 18, 27] {
        seconds.store(second, Relaxed);
        assert_eq!(
            cache.compute(1, |n| Err::<Option<u64>, _>(n.copied()), &read()),
            Err(ComputeError::Failed(Some(5)))
        );
    }
    seconds.store(37, Relaxed);
    assert_eq!(cache.get(&1), None);
}

#[test]
fn a_value_that_is_loaded_meanwhile_does_not_replace_the_new_one() {
    let cache: Cache<u32, u64> = Cache::new(10);
    let load = |decision| {
        cache.get_or_insert_with(1, || {
            cache.compute(1, |_| Ok::<_, ()>(decision), &read()).unwrap();
            7
        })
    };
    assert_eq!((load(Some(100)), cache.get(&1)), (7, Some(100)));
    cache.invalidate(&1);
    // A removal of what is not there yet.
    assert_eq!((load(None), cache.get(&1)), (7, None));
    // A decision to change nothing does not concern a load.
    let value = cache.get_or_insert_with(1, || {
        assert_eq!(cache.compute(1, |_| Err::<Option<u64>, _>(()), &read()), Err(ComputeError::Failed(())));
        7
    });
    assert_eq!((value, cache.get(&1)), (7, Some(7)));
}

#[test]
fn a_panic_in_the_function_changes_nothing() {
    let cache = Cache::<_, u64>::new(10);
    cache.insert(1, 5).unwrap();
    for key in [1, 2] {
        let panics = |_: Option<&u64>| -> Result<Option<u64>, ()> { panic!("in the function") };
        assert!(catch_unwind(AssertUnwindSafe(|| _ = cache.compute(key, panics, &read()))).is_err());
    }
    assert_eq!((cache.get(&1), cache.get(&2), cache.len(), cache.weight()), (Some(5), None, 1, 1));
    assert_eq!(cache.compute(1, add, &read()).unwrap().new, Some(&6));
    assert_eq!(cache.compute(2, add, &read()).unwrap().new, Some(&1));
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
        .on_evict(move |_, &count, why| {
            assert_eq!(why, Eviction::Capacity);
            counted.fetch_add(count, Relaxed);
        })
        .build();
    let removed: u64 = thread::scope(|scope| {
        let count = |seed| {
            let cache = &cache;
            move || {
                let mut random = Random::new(seed);
                let mut removed = 0;
                for step in 0..STEPS {
                    let key = random.below(keys);
                    let guard = read();
                    // Removing takes the call that removes back.
                    let decide = |n: Option<&u64>| if step % 64 == 63 && n.is_some() { Ok(None) } else { add(n) };
                    let change = cache.compute(key, decide, &guard).unwrap();
                    if change.new.is_none() {
                        removed += change.old.unwrap() + 1;
                    }
                }
                removed
            }
        };
        let threads: Vec<_> = (0..threads).map(|seed| scope.spawn(count(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let left: u64 = cache.iter(&read()).map(|(_, count)| count).sum();
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
                    assert!(cache.compute(key, add, &read()).unwrap().new.is_some());
                }
            });
        }
    });
    assert_eq!((cache.len(), cache.weight()), (1, 5));
}
