//! Several threads on one cache, smaller than its keys.

use std::sync::Arc;
use std::thread;

use relativist_cache::Cache;

use crate::operations::Colliding;
use relativist_testing::random::{Random, mix};
use relativist_testing::wait_until;

const THREADS: u64 = 4;
const STEPS: u64 = 20_000;
const KEYS: u64 = 300;
const CAPACITY: u64 = 4000;

fn weigh(&key: &u64, value: &Arc<u64>) -> u64 {
    1 + mix(key ^ **value) % 60
}

fn step(cache: &Cache<u64, Arc<u64>>, random: &mut Random) {
    let key = random.below(KEYS);
    let is_of_key = |value: Arc<u64>| assert_eq!(*value % KEYS, key);
    match random.below(16) {
        0..6 => cache.insert(key, Arc::new(key + KEYS * random.below(100))),
        6..10 => _ = cache.get(&key).map(is_of_key),
        10..12 => is_of_key(cache.get_or_insert_with(key, || Arc::new(key))),
        12 => _ = cache.remove(&key).map(is_of_key),
        13 => cache.set_capacity(CAPACITY - random.below(2000)),
        14 if random.below(100) == 0 => cache.invalidate_all(),
        14 => cache.invalidate(&key),
        _ => cache.iter().take(10).for_each(|(key, value)| assert_eq!(*value % KEYS, key)),
    }
}

fn stress(estimate: u64) {
    let builder = Cache::builder().capacity(CAPACITY).weigher(weigh).estimated_entries(estimate);
    let cache = builder.record_stats().build();
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let cache = &cache;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                (0..STEPS).for_each(|_| step(cache, &mut random));
            });
        }
    });
    let sum: u64 = cache.iter().map(|(key, value)| weigh(&key, &value)).sum();
    assert_eq!(cache.weight(), sum);
    assert!(sum <= cache.capacity());
    // Every entry is in a queue, from which it can be evicted.
    cache.set_capacity(0);
    assert_eq!((cache.weight(), cache.len()), (0, 0));
    assert!(cache.stats().evictions > 0);
}

#[test]
fn the_weight_stays_exact_with_one_shard() {
    stress(0);
}

#[test]
fn the_weight_stays_exact_with_several_shards() {
    stress(1 << 14);
}

/// No room is lost, and none is given out twice, by threads that all need what the others have.
#[test]
fn a_full_cache_stays_full() {
    let cache: Cache<u64, u64, _> = Cache::builder().capacity(8).hasher(Colliding).build();
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let cache = &cache;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for n in 0..STEPS {
                    let key = random.below(32);
                    cache.insert(key, n);
                    assert!(cache.get(&key).is_none_or(|value| value < STEPS));
                }
            });
        }
    });
    assert_eq!((cache.len(), cache.weight()), (8, 8));
    cache.set_capacity(0);
    assert_eq!((cache.len(), cache.weight()), (0, 0));
}

/// Values are dropped once they were evicted, and all of them in the end.
#[test]
fn nothing_is_leaked() {
    let value = Arc::new(());
    let cache = Cache::new(100);
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let (cache, value) = (&cache, &value);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..STEPS {
                    let key = random.below(200);
                    match random.below(4) {
                        0 => _ = cache.remove(&key),
                        1 => _ = cache.get_or_insert_with(key, || Arc::clone(value)),
                        _ => cache.insert(key, Arc::clone(value)),
                    }
                }
            });
        }
    });
    cache.run_pending_tasks();
    assert_eq!(Arc::strong_count(&value), 1 + cache.len());
    drop(cache);
    // The background may have the last handle for a moment.
    wait_until("all values to be dropped", || Arc::strong_count(&value) == 1);
}
