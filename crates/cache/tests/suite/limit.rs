//! The limit is one sum of exact weights, however keys hash and whatever changes.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use relativist_cache::Cache;

use crate::operations::Colliding;
use relativist_testing::random::{Random, mix};

#[test]
fn a_too_heavy_entry_is_given_back() {
    let cache: Cache<&str, String> =
        Cache::builder().capacity(10).weigher(|_, value: &String| value.len() as u64).build();
    cache.insert("a", "short".into());
    cache.insert("b", "x".into());
    let refused = cache.try_insert("a", "much too long".into()).unwrap_err();
    assert_eq!((refused.key, refused.value.as_str(), refused.weight), ("a", "much too long", 13));
    assert_eq!(refused.to_string(), "the cache has no room for an entry of weight 13");
    // The previous value is out of date; other entries stay.
    assert_eq!((cache.get("a"), cache.get("b"), cache.weight()), (None, Some("x".into()), 1));
    assert!(cache.try_insert("a", "just right".into()).is_ok());
    assert_eq!((cache.len(), cache.weight()), (1, 10));
}

#[test]
fn an_entry_may_use_all_of_the_capacity_however_keys_hash() {
    let cache: Cache<u32, u64, _> = Cache::builder()
        .capacity(1 << 20)
        .weigher(|_, &weight| weight)
        .estimated_entries(1 << 14)
        .hasher(Colliding)
        .build();
    for key in 0..64 {
        cache.insert(key, 1 << 14);
    }
    assert_eq!((cache.len(), cache.weight()), (64, 1 << 20));
    cache.insert(64, 1 << 20);
    assert_eq!((cache.len(), cache.weight()), (1, 1 << 20));
}

#[test]
fn weightless_entries_count_as_one() {
    let cache: Cache<u32, ()> = Cache::builder().capacity(10).weigher(|_, _| 0).build();
    (0..100).for_each(|n| cache.insert(n, ()));
    assert_eq!((cache.len(), cache.weight()), (10, 10));
}

#[test]
fn a_cache_of_no_capacity_refuses_everything() {
    let cache = Cache::new(0);
    assert!(cache.try_insert(1, 1).is_err());
    assert_eq!(cache.get_or_insert_with(1, || 2), 2);
    assert!(cache.is_empty());
}

#[test]
fn large_weights_do_not_overflow() {
    let cache: Cache<u32, u64> = Cache::builder().weigher(|_, &weight| weight).build();
    for key in 0..10 {
        cache.insert(key, u64::MAX);
        assert_eq!((cache.len(), cache.weight()), (1, u64::MAX));
    }
    cache.insert(11, u64::MAX / 2);
    cache.insert(12, u64::MAX / 2);
    assert_eq!(cache.len(), 2);
}

/// Random operations: the sum of weights is exact, never exceeds the capacity, and a key has its
/// latest value or none.
fn matches_model<S: BuildHasher + Send + Sync + 'static>(hasher: S, seed: u64, estimate: u64) {
    let weigh = |key: u32, value: u64| 1 + (value ^ u64::from(key)) % 100;
    let builder = Cache::<u32, u64>::builder().capacity(2000).estimated_entries(estimate);
    let cache = builder.weigher(move |&key, &value| weigh(key, value)).hasher(hasher).build();
    let mut latest = HashMap::new();
    let mut random = Random::new(seed);
    for step in 0..10_000 {
        let key = random.below(200) as u32;
        // The value that the key has, if it was not evicted.
        let value = latest.get(&key).copied();
        match random.below(20) {
            0..8 => {
                cache.insert(key, step);
                latest.insert(key, step);
            }
            16..20 => {
                let decision = [Ok(None), Ok(Some(step)), Ok(Some(u64::MAX)), Err(())][random.below(4) as usize];
                let mut seen = None;
                let result = cache.try_compute(key, |old| {
                    seen = old.copied();
                    decision
                });
                let is_heavy = decision == Ok(Some(u64::MAX)) && cache.capacity() < weigh(key, u64::MAX);
                assert_eq!(result, decision);
                assert!([None, value].contains(&seen));
                match decision {
                    Ok(Some(new)) if !is_heavy => _ = latest.insert(key, new),
                    Ok(_) => _ = latest.remove(&key),
                    Err(()) => {}
                }
            }
            8..12 => assert!([None, value].contains(&cache.get(&key))),
            12 => {
                assert!([None, value].contains(&cache.remove(&key)));
                latest.remove(&key);
            }
            13 => {
                let found = cache.get_or_insert_with(key, || step);
                assert!([value, Some(step)].contains(&Some(found)));
                latest.insert(key, found);
            }
            14 => cache.set_capacity(500 + random.below(2000)),
            _ => {
                let refused = cache.try_insert(key, u64::MAX);
                assert_eq!(refused.is_err(), cache.capacity() < weigh(key, u64::MAX));
                latest.insert(key, u64::MAX);
            }
        }
        let sum: u64 = cache.iter().map(|(key, value)| weigh(key, value)).sum();
        assert_eq!(cache.weight(), sum);
        assert!(sum <= cache.capacity());
        assert_eq!(cache.iter().count(), cache.len());
    }
    cache.invalidate_all();
    assert_eq!((cache.weight(), cache.len()), (0, 0));
}

#[test]
fn random_operations_keep_the_weight_exact() {
    matches_model(RandomState::new(), 1, 0);
    matches_model(RandomState::new(), 2, 1 << 11);
    matches_model(Colliding, 3, 1 << 11);
}

/// Each shard has few entries, but the one to evict next is chosen among those of several shards.
/// So a cache without an estimate, which has many shards, misses about as rarely as one that has a
/// single shard.
#[test]
fn shards_with_few_entries_evict_in_turn() {
    const REQUESTS: u64 = 100_000;
    let hits = |estimate: Option<u64>| {
        // Some 200 entries, of weights that differ by a factor of 100.
        let mut builder = Cache::builder().capacity(10_000).weigher(|_, &weight: &u64| weight);
        if let Some(entries) = estimate {
            builder = builder.estimated_entries(entries);
        }
        let cache = builder.build();
        let mut random = Random::new(1);
        let hits = (0..REQUESTS).filter(|_| {
            // Of the keys below 2^n, as many requests as of those from 2^n to 2^(n + 1).
            let bits = random.below(14);
            let key = random.below(1 << bits);
            cache.get(&key).is_some() || {
                cache.insert(key, 1 + mix(key) % 100);
                false
            }
        });
        let hits = hits.count();
        assert!(cache.weight() <= 10_000);
        hits
    };
    let (of_many, of_one) = (hits(None), hits(Some(1)));
    assert!(of_many as f64 >= 0.96 * of_one as f64, "{of_many} of {of_one}");
}

/// Entries that nobody requests any more leave, also from shards with many entries, while a few
/// heavy ones are requested.
#[test]
fn shards_with_many_entries_evict_for_others() {
    const REQUESTS: usize = 20_000;
    let cache = Cache::builder().capacity(36_000).weigher(|_, &weight: &u64| weight).build();
    (0..72_000).for_each(|key| cache.insert(key, 1));
    let mut random = Random::new(1);
    let mut request = || {
        let key = 1 << 32 | random.below(8);
        let is_hit = cache.get(&key).is_some();
        if !is_hit {
            cache.insert(key, 4000);
        }
        is_hit
    };
    (0..REQUESTS).for_each(|_| _ = request());
    let hits = (0..REQUESTS).filter(|_| request()).count();
    assert!(hits > REQUESTS * 98 / 100, "{hits}");
}
