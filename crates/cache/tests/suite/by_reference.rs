//! Loads whose key is a reference.

use std::borrow::Borrow;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use relativist_cache::Cache;
use smol::block_on;
use smol::future::{pending, poll_once, ready, yield_now};

thread_local! {
    /// How many references this thread has converted to keys.
    static CONVERTED: Cell<usize> = const { Cell::new(0) };
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name(String);

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    /// Converts "wrong" to another key.
    fn from(name: &str) -> Self {
        CONVERTED.set(CONVERTED.get() + 1);
        Self(if name == "wrong" { "other".into() } else { name.into() })
    }
}

/// Returns the result of a function, and how many keys it has converted.
fn conversions<R>(function: impl FnOnce() -> R) -> (R, usize) {
    let before = CONVERTED.get();
    (function(), CONVERTED.get() - before)
}

#[test]
fn only_a_load_converts_the_key() {
    type Get = fn(&Cache<Name, u32>, u32) -> u32;
    let gets: [Get; 4] = [
        |cache, value| cache.get_or_insert_with_ref("a", || value),
        |cache, value| cache.get_or_try_insert_with_ref("a", || Ok::<_, ()>(value)).unwrap(),
        |cache, value| block_on(cache.get_or_insert_async_ref("a", || ready(value))),
        |cache, value| block_on(cache.get_or_try_insert_async_ref("a", || ready(Ok::<_, ()>(value)))).unwrap(),
    ];
    for get in gets {
        let cache = Cache::builder().capacity(10).record_stats().build();
        assert_eq!(conversions(|| get(&cache, 1)), (1, 1));
        assert_eq!(conversions(|| get(&cache, 2)), (1, 0));
        assert_eq!(cache.iter().collect::<Vec<_>>(), [(Name("a".into()), 1)]);
        assert_eq!((cache.stats().hits, cache.stats().misses), (1, 1));
    }
}

#[test]
fn references_and_keys_share_a_loader() {
    const THREADS: usize = 8;
    let cache: &Cache<Name, usize> = &Cache::new(100);
    let (calls, barrier) = (&AtomicUsize::new(0), &Barrier::new(THREADS));
    for round in 0..50 {
        let load = move || {
            thread::yield_now();
            calls.fetch_add(1, SeqCst);
            round
        };
        thread::scope(|scope| {
            for n in 0..THREADS {
                scope.spawn(move || {
                    let name = round.to_string();
                    barrier.wait();
                    let value = match n % 2 {
                        0 => cache.get_or_insert_with_ref(name.as_str(), load),
                        _ => cache.get_or_insert_with(Name(name), load),
                    };
                    assert_eq!(value, round);
                });
            }
        });
        assert_eq!(calls.load(SeqCst), round + 1);
    }
}

#[test]
fn those_that_wait_share_an_error() {
    let cache: Cache<Name, u32> = Cache::new(10);
    let load = || async {
        yield_now().await;
        Err("down")
    };
    let mut leader = pin!(cache.get_or_try_insert_async_ref("a", load));
    let mut by_reference = pin!(cache.get_or_try_insert_async_ref("a", load));
    let mut by_value = pin!(cache.get_or_try_insert_async(Name("a".into()), load));
    block_on(async {
        assert_eq!(poll_once(leader.as_mut()).await, None);
        assert_eq!(poll_once(by_reference.as_mut()).await, None);
        assert_eq!(poll_once(by_value.as_mut()).await, None);
        let error = leader.await.unwrap_err();
        assert_eq!(*error, "down");
        for result in [by_reference.await, by_value.await] {
            assert!(Arc::ptr_eq(&error, &result.unwrap_err()));
        }
    });
    assert_eq!((cache.len(), cache.stats().failed_loads), (0, 1));
}

/// As by value: the caller gets the value, and the cache does not keep it.
#[test]
fn a_removal_cancels_a_load() {
    let cache: Cache<Name, u32> = Cache::new(10);
    let load = || {
        cache.invalidate("a");
        1
    };
    assert_eq!((cache.get_or_insert_with_ref("a", load), cache.get("a")), (1, None));
    let mut dropped = Box::pin(cache.get_or_insert_async_ref("a", pending));
    assert_eq!(block_on(poll_once(dropped.as_mut())), None);
    drop(dropped);
    assert_eq!((cache.get_or_insert_with_ref("a", || 2), cache.get("a")), (2, Some(2)));
}

#[test]
fn an_old_entry_is_refreshed() {
    let (start, seconds) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let clock = Arc::clone(&seconds);
    let cache: Cache<Name, u32> = Cache::builder()
        .refresh_after(Duration::from_secs(10))
        .clock(move || start + Duration::from_secs(clock.load(SeqCst) as u64))
        .build();
    assert_eq!(cache.get_or_insert_with_ref("a", || 1), 1);
    seconds.store(10, SeqCst);
    assert_eq!(conversions(|| cache.get_or_insert_with_ref("a", || 2)), (2, 1));
    assert_eq!(conversions(|| cache.get_or_insert_with_ref("a", || 3)), (2, 0));
    assert_eq!(cache.len(), 1);
}

#[test]
fn a_conversion_to_another_key_panics() {
    let cache: Cache<Name, u32> = Cache::new(10);
    let load = || cache.get_or_insert_with_ref("wrong", || 1);
    assert!(catch_unwind(AssertUnwindSafe(load)).is_err());
    let load = || block_on(cache.get_or_insert_async_ref("wrong", || ready(1)));
    assert!(catch_unwind(AssertUnwindSafe(load)).is_err());
    assert_eq!((cache.len(), cache.stats().loads), (0, 0));
    // Neither key is locked.
    assert_eq!(cache.get_or_insert_with(Name("wrong".into()), || 2), 2);
    assert_eq!(cache.get_or_insert_with_ref("other", || 3), 3);
    assert_eq!(cache.get_or_insert_with_ref("wrong", || 4), 2);
}
