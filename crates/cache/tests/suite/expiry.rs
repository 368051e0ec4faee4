//! Expired entries are never returned. The tests set the clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use relativist_cache::{Builder, Cache, RemovalCause};
use relativist_testing::wait_until;

const SECOND: Duration = Duration::from_secs(1);

/// A clock that the test sets.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn advance(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    fn builder<K, V>(&self) -> Builder<K, V> {
        let (clock, start) = (self.clone(), Instant::now());
        Cache::builder().capacity(100).clock(move || start + Duration::from_nanos(clock.0.load(Relaxed)))
    }
}

#[test]
fn entries_expire_after_their_time_to_live() {
    let clock = Clock::default();
    let cache = clock.builder().time_to_live(10 * SECOND).build();
    cache.insert(1, 1);
    clock.advance(10 * SECOND - Duration::from_nanos(1));
    assert_eq!(cache.get(&1), Some(1));
    clock.advance(Duration::from_nanos(1));
    let guard = relativist_cache::read();
    assert_eq!(
        (cache.get(&1), cache.peek(&1), cache.get_ref(&1, &guard), cache.contains_key(&1)),
        (None, None, None, false)
    );
    assert_eq!((cache.iter().count(), cache.len()), (0, 1));
    assert_eq!((cache.remove(&1), cache.len()), (None, 0));
    // A new value lives as long again.
    cache.insert(1, 2);
    clock.advance(9 * SECOND);
    assert_eq!(cache.get(&1), Some(2));
    cache.insert(1, 3);
    clock.advance(9 * SECOND);
    assert_eq!(cache.get(&1), Some(3));
}

#[test]
fn hits_postpone_the_deadline_of_idle_entries() {
    let clock = Clock::default();
    let cache = clock.builder().time_to_idle(64 * SECOND).build();
    cache.insert(1, 1);
    for _ in 0..100 {
        clock.advance(62 * SECOND);
        assert_eq!(cache.get(&1), Some(1));
    }
    // Only hits postpone it.
    clock.advance(60 * SECOND);
    assert_eq!((cache.peek(&1), cache.contains_key(&1), cache.iter().count()), (Some(1), true, 1));
    clock.advance(3 * SECOND);
    assert_eq!(cache.get(&1), Some(1));
    // Hits within 1/64 of the time count as one.
    clock.advance(SECOND);
    assert_eq!(cache.get(&1), Some(1));
    clock.advance(63 * SECOND);
    assert_eq!(cache.get(&1), None);
}

#[test]
fn hits_do_not_postpone_the_time_to_live() {
    let clock = Clock::default();
    let cache = clock.builder().time_to_idle(2 * SECOND).time_to_live(5 * SECOND).build();
    cache.insert(1, 1);
    for _ in 0..4 {
        clock.advance(SECOND);
        assert_eq!(cache.get(&1), Some(1));
    }
    clock.advance(SECOND);
    assert_eq!(cache.get(&1), None);
}

#[test]
fn each_entry_may_have_its_own_time_to_live() {
    let clock = Clock::default();
    let cache = clock.builder().expire_after(|_, &seconds: &u32| (seconds > 0).then_some(seconds * SECOND)).build();
    for seconds in 0..10 {
        cache.insert(seconds, seconds);
    }
    for now in 0..10 {
        assert_eq!(cache.iter().count(), 10 - now);
        clock.advance(SECOND);
    }
    clock.advance(1000 * SECOND);
    assert_eq!(cache.get(&0), Some(0));
    let limited = clock.builder().expire_after(|_, _| Some(10 * SECOND)).time_to_live(SECOND).build();
    limited.insert(1, 1);
    clock.advance(SECOND);
    assert_eq!(limited.get(&1), None);
}

#[test]
fn a_time_that_never_ends_is_none() {
    let clock = Clock::default();
    let cache = clock.builder().time_to_live(Duration::MAX).build();
    cache.insert(1, 1);
    clock.advance(1_000_000_000 * SECOND);
    assert_eq!(cache.get(&1), Some(1));
}

#[test]
fn expired_entries_are_evicted_first_when_they_are_reached() {
    let clock = Clock::default();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let report = Arc::clone(&reported);
    let cache = clock
        .builder()
        .capacity(3)
        .time_to_live(SECOND)
        .on_removal(move |&key, _, why| report.lock().unwrap().push((key, why)))
        .build();
    (0..3).for_each(|n| cache.insert(n, n));
    (0..3).for_each(|n| _ = cache.get(&n));
    clock.advance(SECOND);
    // Visited, and yet they go.
    cache.insert(3, 3);
    assert_eq!(*reported.lock().unwrap(), [(0, RemovalCause::Expired)]);
    cache.run_pending_tasks();
    assert_eq!((cache.len(), cache.weight(), cache.stats().expirations), (1, 1, 3));
    assert_eq!(reported.lock().unwrap().len(), 3);
}

/// A sweep frees all that has expired, although each call of the listener panics.
#[test]
fn a_panic_in_the_listener_of_a_sweep_ends_only_its_call() {
    let (clock, calls) = (Clock::default(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&calls);
    let panics = move |_: &u64, _: &u64, _| {
        counted.fetch_add(1, Relaxed);
        panic!("in the function for removed entries");
    };
    // So long that the background thread does not sweep meanwhile.
    let cache = clock.builder().time_to_live(3600 * SECOND).on_removal(panics).build();
    (0..100).for_each(|key| cache.insert(key, key));
    clock.advance(3600 * SECOND);
    cache.run_pending_tasks();
    assert_eq!((cache.len(), cache.weight(), cache.stats().expirations, calls.load(Relaxed)), (0, 0, 100, 100));
}

#[test]
fn a_key_that_has_expired_is_loaded_again() {
    let clock = Clock::default();
    let cache = clock.builder().time_to_live(SECOND).build();
    for round in 0..3 {
        assert_eq!(cache.get_or_insert_with(1, || round), round);
        assert_eq!(cache.get_or_insert_with(1, || panic!()), round);
        clock.advance(SECOND);
    }
}

#[test]
fn no_clock_is_read_for_entries_that_do_not_expire() {
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    let clock = move || {
        counted.fetch_add(1, Relaxed);
        Instant::now()
    };
    let cache = Cache::builder().capacity(10).expire_after(|_, _| None).clock(clock).build();
    cache.insert(1, 1);
    let before = reads.load(Relaxed);
    (0..100).for_each(|_| assert_eq!(cache.get(&1), Some(1)));
    assert_eq!(reads.load(Relaxed), before);
}

/// Uses the real clock, because the background thread does.
#[test]
fn the_background_thread_frees_expired_entries() {
    let cache = Cache::builder().capacity(1000).time_to_live(Duration::from_millis(1)).build();
    for round in 1..=2 {
        (0..1000).for_each(|n| cache.insert(n, n));
        // The thread unlinks an entry first, then gives its room back, and then counts it.
        wait_until("all entries to be freed", || {
            let stats = cache.stats();
            (cache.len(), cache.weight(), stats.expirations + stats.evictions) == (0, 0, 1000 * round)
        });
    }
}

/// Sweeps read the clock. Caches that are empty, or whose entries cannot expire, are not swept:
/// also not those that had other entries, once a sweep has found that out.
#[test]
fn an_idle_cache_is_not_swept() {
    let clock = Clock::default();
    let counted = |reads: &Arc<AtomicU64>| {
        let (reads, clock, start) = (Arc::clone(reads), clock.clone(), Instant::now());
        let now = move || {
            reads.fetch_add(1, Relaxed);
            start + Duration::from_nanos(clock.0.load(Relaxed))
        };
        let own = |&key: &u64, _: &u64| (key > 0).then_some(SECOND);
        // The background thread sweeps by real time.
        Cache::builder().capacity(10).expire_after(own).clock(now)
    };
    let [of_idle, of_busy]: [Arc<AtomicU64>; 2] = Default::default();
    let idle: Vec<_> = (0..1000).map(|_| counted(&of_idle).build()).collect();
    for cache in &idle[500..] {
        cache.insert(0, 0);
        cache.insert(1, 1);
        cache.remove(&1);
    }
    // Its first sweep comes after those of the others, which begin to be idle then.
    let busy = counted(&of_busy).build();
    busy.insert(1, 1);
    let wait_for_sweeps = |sweeps| {
        let before = of_busy.load(Relaxed);
        wait_until("sweeps", || of_busy.load(Relaxed) >= before + sweeps);
    };
    wait_for_sweeps(1);
    let before = of_idle.load(Relaxed);
    wait_for_sweeps(1);
    assert_eq!(of_idle.load(Relaxed), before);
    // They are swept again when they have an entry that can expire.
    for cache in &idle {
        cache.insert(1, 1);
    }
    clock.advance(SECOND);
    wait_until("all entries to be freed", || idle.iter().all(|cache| cache.len() <= 1) && busy.is_empty());
    assert!(idle[500..].iter().all(|cache| cache.contains_key(&0)));
}

/// Each expired entry inserts the next one, during the sweep that frees it.
#[test]
fn what_is_inserted_during_a_sweep_is_swept_later() {
    let own = Arc::new(OnceLock::<Weak<Cache<u32, ()>>>::new());
    let of_listener = Arc::clone(&own);
    let next = move |&key: &u32, (): &(), _| {
        if key < 3 {
            of_listener.get().and_then(Weak::upgrade).unwrap().insert(key + 1, ());
        }
    };
    let cache = Arc::new(Cache::builder().time_to_live(Duration::from_millis(1)).on_removal(next).build());
    own.set(Arc::downgrade(&cache)).unwrap();
    cache.insert(0, ());
    wait_until("all to be freed", || (cache.stats().expirations, cache.len()) == (4, 0));
}

#[test]
fn the_background_thread_keeps_no_cache_alive() {
    let owned = Arc::new(());
    let cache = Cache::builder().capacity(1000).time_to_live(Duration::from_millis(1)).build();
    cache.insert(1, Arc::clone(&owned));
    drop(cache);
    wait_until("the value to be dropped", || Arc::strong_count(&owned) == 1);
}

/// Nanoseconds in 64 bits cover 584 years.
#[test]
fn an_entry_without_expiry_outlives_every_clock() {
    let (start, is_late) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let clock = {
        let is_late = Arc::clone(&is_late);
        move || start + Duration::from_secs(if is_late.load(Relaxed) { 700 * 366 * 24 * 3600 } else { 0 })
    };
    let expire = |&key: &u32, _: &u32| (key == 2).then_some(Duration::from_secs(1));
    let cache = Cache::builder().capacity(10).expire_after(expire).clock(clock).build();
    (1..=2).for_each(|key| cache.insert(key, key));
    is_late.store(true, Relaxed);
    cache.run_pending_tasks();
    assert_eq!((cache.get(&1), cache.get(&2), cache.len()), (Some(1), None, 1));
}

#[test]
fn reads_and_updates_may_change_a_lifetime() {
    let clock = Clock::default();
    let cache = clock
        .builder()
        .expire_after(|_, &value: &u32| (value > 0).then_some(10 * SECOND))
        .expire_after_read(|&key: &u32, _, left| if key == 1 { Some(20 * SECOND) } else { left })
        .expire_after_update(|&key, _, left| if key == 2 { left } else { Some(5 * SECOND) })
        .build();
    (1..=3).for_each(|key| cache.insert(key, 1));
    cache.insert(4, 0);
    clock.advance(4 * SECOND);
    // A read gives key 1 more time, and changes no other.
    assert_eq!(cache.get_many([&1, &2, &3, &4]), [Some(1), Some(1), Some(1), Some(0)]);
    let left = |key| cache.remaining_lifetime(&key);
    assert_eq!(
        [left(1), left(2), left(3), left(4)],
        [Some(20 * SECOND), Some(6 * SECOND), Some(6 * SECOND), Some(Duration::MAX)]
    );
    // An update of key 2 keeps its time, and one of key 3 or 4 sets it.
    (2..=4).for_each(|key| cache.insert(key, 1));
    assert_eq!([left(2), left(3), left(4)], [Some(6 * SECOND), Some(5 * SECOND), Some(5 * SECOND)]);
    clock.advance(6 * SECOND);
    assert_eq!(cache.get_many([&1, &2, &3]), [Some(1), None, None]);
    // An expired entry is not updated: the new one is created.
    cache.insert(2, 1);
    assert_eq!(left(2), Some(10 * SECOND));
    assert_eq!((cache.time_to_live(), cache.time_to_idle(), left(9)), (None, None, None));
}

#[test]
fn what_the_program_removes_after_its_deadline_has_expired() {
    let (clock, causes) = (Clock::default(), Arc::new(Mutex::new(Vec::new())));
    let reported = Arc::clone(&causes);
    let report = move |&key: &u32, _: &u32, cause| reported.lock().unwrap().push((key, cause));
    let cache = clock.builder().time_to_live(3600 * SECOND).on_removal(report).build();
    (1..=3).for_each(|key| cache.insert(key, key));
    clock.advance(3600 * SECOND);
    assert_eq!(cache.remove(&1), None);
    cache.insert(2, 2);
    assert_eq!(cache.compute(3, |value| value.copied()), None);
    let expired = RemovalCause::Expired;
    assert_eq!(*causes.lock().unwrap(), [(1, expired), (2, expired), (3, expired)]);
}

/// Uses the real clock, because the background thread does.
#[test]
fn a_deadline_that_a_read_has_set_is_kept() {
    let cache: Cache<u32, u32> = Cache::builder().expire_after_read(|_, _, _| Some(Duration::from_millis(1))).build();
    (0..100).for_each(|n| cache.insert(n, n));
    (0..50).for_each(|n| assert_eq!(cache.get(&n), Some(n)));
    wait_until("those that were read to be freed", || cache.len() == 50);
    assert_eq!(cache.peek(&60), Some(60));
}

/// The entry that an insertion was about to replace is removed meanwhile.
#[test]
fn the_lifetime_of_an_update_needs_an_entry() {
    let own = Arc::new(Mutex::new(None::<Cache<u32, u32>>));
    let its_own = Arc::clone(&own);
    let cache = Cache::builder()
        .expire_after(|_, _| Some(10 * SECOND))
        .expire_after_update(move |key, _, _| {
            its_own.lock().unwrap().as_ref().unwrap().remove(key);
            Some(1000 * SECOND)
        })
        .build();
    *own.lock().unwrap() = Some(cache.clone());
    cache.insert(1, 1);
    cache.insert(1, 2);
    assert!(cache.remaining_lifetime(&1).unwrap() <= 10 * SECOND);
    // The cache would keep itself.
    own.lock().unwrap().take();
}
