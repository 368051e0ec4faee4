//! Refreshes that fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use relativist_cache::{Cache, RemovalCause};
use smol::block_on;
use smol::future::{poll_once, ready, yield_now};

type Loaded = Result<u32, &'static str>;

/// Asks for key 1, and finds values below 10 stale.
type Get = fn(&Cache<u32, u32>, Loaded) -> Result<u32, Arc<&'static str>>;

const GETS: [Get; 2] = [
    |cache, loaded| cache.get_or_try_refresh_with(1, |value| *value < 10, || loaded),
    |cache, loaded| block_on(cache.get_or_try_refresh_async(1, |value| *value < 10, || ready(loaded))),
];

#[test]
fn a_failed_refresh_keeps_the_stale_value() {
    for get in GETS {
        let removed = Arc::new(Mutex::new(Vec::new()));
        let reported = Arc::clone(&removed);
        let report = move |_: &u32, &value: &u32, cause| reported.lock().unwrap().push((value, cause));
        let cache = Cache::builder().capacity(10).record_stats().on_removal(report).build();
        // Nothing is there, and nothing is inserted.
        assert_eq!(get(&cache, Err("absent")), Err(Arc::new("absent")));
        assert!(cache.is_empty());
        cache.insert(1, 5);
        for error in ["down", "still down"] {
            assert_eq!(get(&cache, Err(error)), Err(Arc::new(error)));
            assert_eq!((cache.peek(&1), cache.get_or_insert_with(1, || 6)), (Some(5), 5));
        }
        assert_eq!(get(&cache, Ok(10)), Ok(10));
        assert_eq!(get(&cache, Err("it is fresh")), Ok(10));
        let stats = cache.stats();
        assert_eq!((stats.loads, stats.failed_loads, stats.misses), (1, 3, 4));
        assert_eq!(*removed.lock().unwrap(), [(5, RemovalCause::Replaced)]);
    }
}

/// One that does not find the value stale waits for nobody.
#[test]
fn those_that_find_a_value_stale_share_the_error() {
    let cache: Cache<u32, u32> = Cache::new(10);
    cache.insert(1, 5);
    let load = || async {
        yield_now().await;
        Err::<u32, _>("down")
    };
    let mut leader = pin!(cache.get_or_try_refresh_async(1, |_| true, load));
    let mut waits = pin!(cache.get_or_try_refresh_async(1, |_| true, load));
    let mut other = pin!(cache.get_or_refresh_async(1, |value| *value < 10, || ready(10)));
    block_on(async {
        assert_eq!(poll_once(leader.as_mut()).await, None);
        assert_eq!(poll_once(waits.as_mut()).await, None);
        assert_eq!(poll_once(other.as_mut()).await, None);
        assert_eq!(cache.get_or_try_refresh_with(1, |value| *value > 5, || Err("not called")), Ok(5));
        let error = leader.await.unwrap_err();
        assert!(Arc::ptr_eq(&error, &waits.await.unwrap_err()));
        // It has no error of this type, so it calls its own loader.
        assert_eq!((cache.peek(&1), other.await, cache.peek(&1)), (Some(5), 10, Some(10)));
    });
    assert_eq!((cache.stats().loads, cache.stats().failed_loads), (1, 1));
}

/// The loader fails after the key has changed: nothing comes back, and nothing new is lost.
#[test]
fn what_happens_during_a_failed_refresh_stays() {
    type Update = fn(&Cache<u32, u32>);
    let updates: [(Update, Option<u32>); 3] =
        [(|cache| cache.invalidate(&1), None), (|cache| cache.insert(1, 20), Some(20)), (|_| {}, Some(5))];
    for (update, expected) in updates {
        let cache: Cache<u32, u32> = Cache::new(10);
        cache.insert(1, 5);
        let load = || {
            update(&cache);
            Err("down")
        };
        assert_eq!(cache.get_or_try_refresh_with(1, |value| *value < 10, load), Err(Arc::new("down")));
        assert_eq!(cache.peek(&1), expected);
        let panics = || cache.get_or_try_refresh_with(1, |_| true, || -> Loaded { panic!("in the loader") });
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(cache.peek(&1), expected);
        let fresh = expected.filter(|&value| value >= 10);
        assert_eq!(GETS[0](&cache, Ok(30)), Ok(fresh.unwrap_or(30)));
    }
}

/// An old value that the caller does not find stale takes the place of the error. A stale one does
/// not. Neither gets more time to live.
#[test]
fn an_error_is_hidden_only_by_a_value_that_is_not_stale() {
    let (start, seconds) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let clock = Arc::clone(&seconds);
    let cache: Cache<u32, u32> = Cache::builder()
        .refresh_after(Duration::from_secs(10))
        .time_to_live(Duration::from_secs(30))
        .clock(move || start + Duration::from_secs(clock.load(SeqCst)))
        .build();
    for get in GETS {
        for (value, expected) in [(11, Ok(11)), (9, Err(Arc::new("down")))] {
            cache.insert(1, value);
            seconds.fetch_add(10, SeqCst);
            assert_eq!(get(&cache, Err("down")), expected);
            assert_eq!((cache.get(&1), cache.remaining_lifetime(&1)), (Some(value), Some(Duration::from_secs(20))));
            seconds.fetch_add(20, SeqCst);
            // It has expired.
            assert_eq!((cache.get(&1), get(&cache, Err("down"))), (None, Err(Arc::new("down"))));
        }
    }
}
