//! What a cache says about other sizes, compared with caches of these sizes; and the ages of items
//! that it evicts.

use relativist_store::sizing::{FACTORS, State};
use relativist_store::{Cache, Clock, Content, Lookup, Mode};
use relativist_testing as _;
use std::sync::Arc;

const START: u32 = 1_000_000;

fn cache(limit: usize) -> Cache {
    Cache::new(Arc::new(Clock::new(START)), limit, 1 << 20).expect("memory for the smallest table")
}

fn set(cache: &Cache, key: u64, value: &[u8]) {
    cache.store(Mode::Set, &key.to_le_bytes(), Content { flags: 0, exptime: 0, value });
}

fn random(state: &mut u64) -> u64 {
    // xorshift
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Requests keys of which few are popular, stores them after misses, and calls `advance` once in a
/// thousand requests. Returns the part of the requests that missed.
fn miss_ratio(cache: &Cache, advance: impl Fn(u64, u64)) -> f64 {
    let (requests, mut misses, mut state) = (200_000, 0, 42);
    for request in 1..=requests {
        // Uniform on a logarithmic scale, from 1 to 2^16.
        let key = 65536_f64.powf(random(&mut state) as f64 / u64::MAX as f64) as u64;
        let value = vec![0; 500 + (key % 7 * 300) as usize];
        if cache.get(&key.to_le_bytes(), |_| ()) != Lookup::Hit {
            misses += 1;
            set(cache, key, &value);
        }
        if request % 1000 == 0 {
            advance(request, misses);
        }
    }
    misses as f64 / requests as f64
}

#[test]
fn a_cache_knows_what_other_sizes_would_miss() {
    let limit = 8 << 20;
    let observed = cache(limit).with_sizing(1);
    let real = miss_ratio(&observed, |requests, misses| observed.advance_sizing(requests, misses));
    let report = observed.sizing().expect("it is on");
    assert!((report.hit_ratio.expect("lookups") - (1.0 - real)).abs() < 1e-9);
    for (factor, estimate) in FACTORS.into_iter().zip(report.memory) {
        let real = miss_ratio(&cache((limit as f64 * factor) as usize), |_, _| ());
        let estimated = estimate.misses / report.lookups as f64;
        println!("{factor}: estimated {estimated:.4}, real {real:.4}, {:?}", estimate.state);
        // The sample is random, because the hash function is.
        assert!((estimated - real).abs() < 0.02, "{factor}: {estimated}, really {real}");
        assert_eq!(estimate.bytes, (limit as f64 * factor) as u64);
        assert!(matches!(estimate.state, State::Ready | State::Filling), "{factor}: {:?}", estimate.state);
    }
}

#[test]
fn evicted_items_have_ages() {
    let clock = Arc::new(Clock::new(START));
    let cache = Cache::new(Arc::clone(&clock), 4 << 20, 1 << 20).expect("memory for the smallest table");
    (0..3000).for_each(|key| set(&cache, key, &[0; 1000]));
    cache.maintain();
    clock.set(START + 4000);
    (0..3000_u64).for_each(|key| _ = cache.get(&key.to_le_bytes(), |_| ()));
    cache.maintain();
    clock.set(START + 4600);
    (3000..15_000).for_each(|key| set(&cache, key, &[0; 1000]));
    let sweeps = cache.usage().sweeps;
    let (idle, lifetime) = (sweeps.evicted_idle, sweeps.evicted_lifetime);
    assert_eq!((idle.count(), lifetime.count()), (sweeps.evictions, sweeps.evictions));
    // Items stored at the end are the first to go. Some of the others go, too.
    let recent = idle.cumulative().find(|(bound, _)| *bound == 60).expect("a bound").1;
    let [idle, lifetime] = [idle, lifetime].map(|ages| ages.cumulative().collect::<Vec<_>>());
    assert!(recent < sweeps.evictions, "{idle:?}");
    // 600 seconds and 4600.
    assert_eq!((idle[1].1, idle[2].1), (recent, sweeps.evictions), "{idle:?}");
    // The first of the recent ones are in a block that was opened before.
    let (later, in_a_block) = (lifetime[3].1, (64 << 10) / 1000);
    assert!(recent - in_a_block <= later && later <= recent, "{lifetime:?}");
    assert_eq!(lifetime[4].1, sweeps.evictions, "{lifetime:?}");
}
