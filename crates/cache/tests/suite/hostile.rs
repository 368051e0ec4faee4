//! Code of the user that panics, or uses the cache where it should not: the cache stays usable, its
//! weight exact, and nothing is leaked.

use std::cell::Cell;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use relativist_cache::{Cache, RemovalCause};
use relativist_testing::{patience, wait_until};

use crate::operations::Colliding;

thread_local! {
    /// How many calls of code of the user are left before one panics.
    static CALLS_LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn may_panic() {
    let left = CALLS_LEFT.get();
    CALLS_LEFT.set(left.wrapping_sub(1));
    assert!(left != 0, "it is time to panic");
}

#[derive(Debug)]
struct Key(u32);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        may_panic();
        self.0.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        may_panic();
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Clone for Key {
    fn clone(&self) -> Self {
        may_panic();
        Self(self.0)
    }
}

#[derive(Debug)]
struct Value(u64, Arc<()>);

impl Clone for Value {
    fn clone(&self) -> Self {
        may_panic();
        Self(self.0, Arc::clone(&self.1))
    }
}

/// Executes operations of all kinds.
fn operate(cache: &Cache<Key, Value, Colliding>, value: impl Fn(u64) -> Value) {
    cache.insert(Key(8), value(11));
    cache.insert(Key(8), value(3));
    cache.try_insert(Key(9), value(21)).unwrap_err();
    cache.get(&Key(8));
    cache.get_or_insert_with(Key(10), || {
        may_panic();
        value(5)
    });
    cache.remove(&Key(10));
    for weight in [4, 16, 21] {
        let computed = cache.compute(Key(12), |_| {
            may_panic();
            Some(value(weight))
        });
        assert_eq!(computed.map(|value| value.0), Some(weight));
        assert_eq!(cache.contains_key(&Key(12)), weight < 21);
    }
    cache.remove_if(&Key(8), |_, _| {
        may_panic();
        true
    });
    cache.retain(|_, value| {
        may_panic();
        value.0 > 2
    });
    cache.get_or_refresh_with(
        Key(13),
        |_| {
            may_panic();
            true
        },
        || value(2),
    );
    cache.set_capacity(10);
    cache.invalidate_all();
}

/// Runs operations until each call in them has panicked once.
#[test]
fn any_call_may_panic() {
    let alive = Arc::new(());
    for failing in 0.. {
        let cache: Cache<Key, Value, _> = Cache::builder()
            .capacity(20)
            .weigher(|_, value: &Value| {
                may_panic();
                value.0
            })
            .expire_after(|_, _| {
                may_panic();
                None
            })
            .on_removal(|_, _, _| may_panic())
            .hasher(Colliding)
            .build();
        let value = |weight| Value(weight, Arc::clone(&alive));
        (0..8).for_each(|n| cache.insert(Key(n), value(u64::from(n))));
        CALLS_LEFT.set(failing);
        let result = catch_unwind(AssertUnwindSafe(|| operate(&cache, value)));
        // A panic in the listener does not reach the caller.
        let panicked = CALLS_LEFT.replace(usize::MAX) > usize::MAX / 2;
        assert!(panicked || result.is_ok());
        // Whatever has happened, the cache can be used, and each entry can be evicted.
        let sum: u64 = cache.iter().map(|(_, value)| value.0.max(1)).sum();
        assert_eq!(cache.weight(), sum, "after a panic in call {failing}");
        cache.set_capacity(20);
        assert_eq!(cache.get_or_insert_with(Key(10), || value(5)).0, 5);
        cache.insert(Key(11), value(20));
        assert_eq!((cache.len(), cache.weight()), (1, 20));
        drop(cache);
        // The background thread may be using the cache, because its entries may expire.
        wait_until(&format!("all values to be dropped after a panic in call {failing}"), || {
            Arc::strong_count(&alive) == 1
        });
        if !panicked {
            assert!(failing > 30, "there are more calls than {failing}");
            return;
        }
    }
}

#[test]
fn a_destructor_that_panics_does_not_reach_the_caller() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("in a destructor");
        }
    }
    let cache = Cache::new(2);
    (0..100).for_each(|n| cache.insert(n, Arc::new(Panics)));
    assert_eq!(cache.len(), 2);
    cache.run_pending_tasks();
    cache.invalidate_all();
    cache.run_pending_tasks();
    assert_eq!((cache.len(), cache.weight()), (0, 0));
}

/// A part of a key, or of what a loader captures, which may panic in its destructor.
struct Explosive(bool);

impl Drop for Explosive {
    fn drop(&mut self) {
        if self.0 {
            panic!("in a destructor");
        }
    }
}

/// All are equal, and clones do not explode.
struct ExplosiveKey(#[allow(dead_code, reason = "only dropped")] Explosive);

impl Clone for ExplosiveKey {
    fn clone(&self) -> Self {
        Self(Explosive(false))
    }
}

impl PartialEq for ExplosiveKey {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ExplosiveKey {}

impl Hash for ExplosiveKey {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Loads of a key that is present, of one that is removed meanwhile, and of one that cannot be
/// loaded, in a thread and in a task. The destructor of the key or of the loader panics.
#[test]
fn a_destructor_that_panics_in_a_load_leaks_nothing() {
    let alive = Arc::new(());
    for case in 0..12 {
        let (is_present, fails, in_task, in_key) = (case % 3 == 0, case % 3 == 1, case / 3 % 2 == 0, case / 6 == 0);
        let cache = &Cache::new(10);
        if is_present {
            assert!(cache.try_insert(ExplosiveKey(Explosive(false)), Arc::clone(&alive)).is_ok());
        }
        // A loader that is called drops what it has captured before it has a result.
        let (key, captured) = (ExplosiveKey(Explosive(in_key)), Explosive(!in_key && is_present));
        let load = || {
            drop(captured);
            cache.invalidate(&ExplosiveKey(Explosive(false)));
            if fails { Err(Arc::clone(&alive)) } else { Ok(Arc::clone(&alive)) }
        };
        let result = catch_unwind(AssertUnwindSafe(|| {
            if in_task {
                smol::block_on(cache.get_or_try_insert_async(key, || async { load() }))
            } else {
                cache.get_or_try_insert_with(key, load)
            }
        }));
        assert_eq!(result.is_err(), in_key || is_present, "case {case}");
        drop(result);
        cache.invalidate_all();
        cache.run_pending_tasks();
        assert_eq!(Arc::strong_count(&alive), 1, "case {case}");
    }
}

/// A key whose `Eq` updates the cache that compares it.
#[derive(Clone)]
struct Reentrant {
    cache: Arc<OnceLock<Weak<Cache<Reentrant, u64, Colliding>>>>,
    /// The number of the comparison that updates the cache; 0 for none.
    update: Arc<AtomicUsize>,
    id: u32,
}

impl Hash for Reentrant {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialEq for Reentrant {
    fn eq(&self, other: &Self) -> bool {
        if self.update.load(SeqCst) > 0 && self.update.fetch_sub(1, SeqCst) == 1 {
            let cache = self.cache.get().and_then(Weak::upgrade).unwrap();
            let key = |id| Self { cache: Arc::clone(&self.cache), update: Arc::clone(&self.update), id };
            if self.id % 2 == 0 {
                assert_eq!(cache.get_or_insert_with(key(100), || 1), 1);
            }
            cache.insert(key(100), 1);
            cache.set_capacity(2);
            cache.invalidate(&key(1));
        }
        self.id == other.id
    }
}

impl Eq for Reentrant {}

#[test]
fn a_comparison_may_update_the_cache() {
    let shared = Arc::new(OnceLock::new());
    let update = Arc::new(AtomicUsize::new(0));
    let key = |id| Reentrant { cache: Arc::clone(&shared), update: Arc::clone(&update), id };
    let cache = Arc::new(Cache::builder().capacity(3).hasher(Colliding).build());
    assert!(shared.set(Arc::downgrade(&cache)).is_ok());
    let mut updates = 0;
    for id in 0..200 {
        cache.set_capacity(3);
        update.store(1 + id as usize % 7, SeqCst);
        cache.insert(key(id), 1);
        cache.invalidate(&key(id / 2));
        updates += usize::from(update.swap(0, SeqCst) == 0);
        assert_eq!(cache.weight(), cache.len() as u64);
        assert!(cache.len() <= 3);
    }
    assert!(updates > 50, "{updates} comparisons have updated the cache");
    // Every entry can be evicted.
    cache.set_capacity(0);
    assert_eq!((cache.len(), cache.weight()), (0, 0));
}

/// Each call of the listener panics, and yet each operation does what it would do without the
/// panic.
#[test]
fn a_panic_in_the_listener_ends_only_its_call() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let cache: Cache<u32, u64> = Cache::builder()
        .capacity(30)
        .weigher(|_, &weight| weight)
        .on_removal(move |_, _, _| {
            counted.fetch_add(1, SeqCst);
            panic!("in the function for removed entries");
        })
        .build();
    (0..3).for_each(|key| cache.insert(key, 10));
    cache.insert(2, 20);
    assert_eq!((cache.get(&2), cache.weight(), calls.load(SeqCst)), (Some(20), 30, 2));
    assert_eq!(cache.get_or_insert_with(3, || 25), 25);
    assert_eq!((cache.get(&3), cache.weight(), calls.load(SeqCst)), (Some(25), 25, 4));
    assert_eq!(cache.compute(4, |_| Some(30)), Some(30));
    assert_eq!((cache.len(), cache.weight(), calls.load(SeqCst)), (1, 30, 5));
    cache.set_capacity(2);
    assert_eq!((cache.len(), cache.weight(), cache.capacity(), calls.load(SeqCst)), (0, 0, 2, 6));
}

#[test]
fn the_listener_may_use_the_cache() {
    let shared = Arc::new(OnceLock::<Weak<Cache<u32, u32>>>::new());
    let of_listener = Arc::clone(&shared);
    let (calls, returns) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, returned) = (Arc::clone(&calls), Arc::clone(&returns));
    let cache = Arc::new(
        Cache::builder()
            .capacity(4)
            .on_removal(move |&key: &u32, &value: &u32, cause| {
                if !cause.was_evicted() {
                    return;
                }
                counted.fetch_add(1, SeqCst);
                let cache = of_listener.get().and_then(Weak::upgrade).unwrap();
                assert_eq!(cache.get(&key), None);
                cache.remove(&(key + 1));
                assert_eq!(cache.get_or_insert_with(key + 1, || 0), 0);
                cache.remove(&(key + 1));
                // A second chance, which evicts others: for a bounded number of times.
                if value > 0 {
                    cache.insert(key, value - 1);
                }
                assert!(cache.weight() <= 4);
                returned.fetch_add(1, SeqCst);
            })
            .build(),
    );
    shared.set(Arc::downgrade(&cache)).unwrap();
    (0..1000).for_each(|n| cache.insert(n * 2, 3));
    assert!(calls.load(SeqCst) > 500);
    assert_eq!(calls.load(SeqCst), returns.load(SeqCst), "none has panicked");
    assert_eq!(cache.weight(), cache.len() as u64);
    // An entry that takes all of the capacity, for which each other one has to go.
    let heavy: Cache<u32, u64> =
        Cache::builder().capacity(4).weigher(|_, &weight| weight).on_removal(|_, _, _| {}).build();
    (0..4).for_each(|n| heavy.insert(n, 1));
    heavy.insert(9, 4);
    assert_eq!((heavy.len(), heavy.weight()), (1, 4));
}

/// Waiting for readers while the thread that loads has removed more than may wait.
#[test]
fn many_evictions_in_one_read_section_are_reclaimed() {
    let alive = Arc::new(());
    let cache = Cache::new(10);
    let guard = relativist_cache::read();
    (0..10_000).for_each(|n| cache.insert(n, Arc::clone(&alive)));
    drop(guard);
    cache.run_pending_tasks();
    assert_eq!(Arc::strong_count(&alive), 11);
}

/// A key that is inserted while a loaded value is weighed keeps the newer value.
#[test]
fn a_loaded_value_replaces_no_newer_one() {
    let own: Arc<OnceLock<Weak<Cache<u32, u32>>>> = Arc::default();
    let weigher = {
        let own = Arc::clone(&own);
        move |&key: &u32, &value: &u32| {
            if value == 7 {
                own.get().and_then(Weak::upgrade).unwrap().insert(key, 100);
            }
            1
        }
    };
    let cache = Arc::new(Cache::builder().capacity(10).weigher(weigher).build());
    own.set(Arc::downgrade(&cache)).unwrap();
    assert_eq!(cache.get_or_insert_with(1, || 7), 7);
    assert_eq!((cache.get(&1), cache.len(), cache.weight()), (Some(100), 1, 1));
}

/// The clock is called outside of locks, also when an entry is evicted.
#[test]
fn the_clock_may_use_the_cache() {
    let own: Arc<OnceLock<Weak<Cache<u32, u32>>>> = Arc::default();
    let clock = {
        let own = Arc::clone(&own);
        move || {
            if let Some(cache) = own.get().and_then(Weak::upgrade) {
                cache.stats();
            }
            Instant::now()
        }
    };
    let cache = Arc::new(Cache::builder().capacity(2).time_to_live(Duration::from_secs(3600)).clock(clock).build());
    own.set(Arc::downgrade(&cache)).unwrap();
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        (0..10).for_each(|key| cache.insert(key, key));
        done.send(cache.len()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(patience()), Ok(2));
}

/// The clock inserts an entry that takes all of the room. It is read before the insertion that
/// needs it holds any room, so neither waits for the other.
#[test]
fn the_clock_may_insert() {
    thread_local!(static READINGS_LEFT: Cell<usize> = const { Cell::new(usize::MAX) });
    static CACHE: OnceLock<Cache<u32, u64>> = OnceLock::new();
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let clock = || {
            let left = READINGS_LEFT.get();
            READINGS_LEFT.set(left.wrapping_sub(1));
            if left == 0 {
                CACHE.get().unwrap().insert(100, 3);
            }
            Instant::now()
        };
        let lasting = Cache::builder().capacity(3).weigher(|_, &weight| weight).time_to_live(Duration::from_secs(3600));
        let cache = CACHE.get_or_init(|| lasting.clock(clock).build());
        for at in 0..10 {
            (0..3).for_each(|key| cache.insert(key, 1));
            READINGS_LEFT.set(at);
            cache.insert(9, 3);
            READINGS_LEFT.set(usize::MAX);
            assert_eq!(cache.weight(), 3);
        }
        done.send(()).unwrap();
    });
    is_done.recv_timeout(patience()).expect("no insertion waits for another one of its thread");
}

/// The listener of each of two caches inserts into the other one, which evicts. Neither owns the
/// other one: they would leak.
#[test]
fn listeners_of_two_caches_may_alternate() {
    const ENTRIES: u32 = 100_000;
    type Slot = Arc<OnceLock<Cache<u32, u32>>>;
    let (one, other, keys) = (Slot::default(), Slot::default(), Arc::new(AtomicUsize::new(10)));
    let pass_to = |next: &Slot| {
        let (next, keys) = (Arc::downgrade(next), Arc::clone(&keys));
        move |_: &u32, &left: &u32, cause: RemovalCause| {
            if cause == RemovalCause::Size && left > 0 {
                next.upgrade().unwrap().get().unwrap().insert(keys.fetch_add(1, SeqCst) as u32, left - 1);
            }
        }
    };
    assert!(one.set(Cache::builder().capacity(1).on_removal(pass_to(&other)).build()).is_ok());
    assert!(other.set(Cache::builder().capacity(1).on_removal(pass_to(&one)).build()).is_ok());
    let (one, other) = (one.get().unwrap(), other.get().unwrap());
    one.insert(1, ENTRIES);
    other.insert(2, ENTRIES);
    one.insert(3, ENTRIES);
    assert!(one.stats().evictions + other.stats().evictions > u64::from(ENTRIES));
}

/// The destructor of each value inserts into the cache, which frees others. No value owns the
/// cache: the last one would leak with it.
#[test]
fn destructors_may_insert() {
    struct Inserts(Weak<OnceLock<Cache<usize, Inserts>>>, usize);
    impl Drop for Inserts {
        fn drop(&mut self) {
            if let Some(own) = self.0.upgrade().filter(|_| self.1 > 0) {
                own.get().unwrap().insert(self.1, Inserts(Weak::clone(&self.0), self.1 - 1));
            }
        }
    }
    let own = Arc::new(OnceLock::new());
    let cache = Cache::new(1);
    assert!(own.set(cache.clone()).is_ok());
    let guard = relativist_cache::read();
    (0..20_000).for_each(|n| cache.insert(n, Inserts(Arc::downgrade(&own), 2)));
    drop(guard);
    cache.run_pending_tasks();
    cache.run_pending_tasks();
    assert_eq!(cache.len(), 1);
}

thread_local!(static NEXT_CLONE_EXPLODES: Cell<bool> = const { Cell::new(false) });

/// All are equal. Counts those that are alive.
struct Exploding(#[allow(dead_code, reason = "only dropped")] Explosive, Arc<()>);

impl Clone for Exploding {
    fn clone(&self) -> Self {
        Self(Explosive(NEXT_CLONE_EXPLODES.take()), Arc::clone(&self.1))
    }
}

impl PartialEq for Exploding {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Exploding {}

impl Hash for Exploding {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

type Load = Pin<Box<dyn Future<Output = u32> + Send>>;

/// Drops these futures when it wakes them.
#[derive(Default)]
struct DropsAll(Mutex<Vec<Load>>);

impl Wake for DropsAll {
    fn wake(self: Arc<Self>) {
        let all = std::mem::take(&mut *self.0.lock().unwrap());
        drop(all);
    }
}

/// An update cancels a load, and wakes a task that drops all that have the load. So the update has
/// its key last, whose destructor panics. The rest of that key is dropped all the same.
#[test]
fn a_panic_in_the_key_of_a_cancelled_load_leaves_no_section_open() {
    let alive = Arc::new(());
    let cache: Cache<Exploding, u32> = Cache::new(10);
    let key = || Exploding(Explosive(false), Arc::clone(&alive));
    let drops = Arc::<DropsAll>::default();
    let waker = Waker::from(Arc::clone(&drops));
    NEXT_CLONE_EXPLODES.set(true);
    for _ in 0..2 {
        let (cache, key) = (cache.clone(), key());
        let mut load: Load = Box::pin(async move { cache.get_or_insert_async(key, std::future::pending).await });
        assert!(load.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drops.0.lock().unwrap().push(load);
    }
    cache.invalidate(&key());
    assert!(drops.0.lock().unwrap().is_empty(), "the task was woken");
    assert!(!relativist_rcu::is_reading());
    cache.insert(key(), 2);
    assert_eq!((cache.get(&key()), cache.len()), (Some(2), 1));
    drop(cache);
    assert_eq!(Arc::strong_count(&alive), 1, "every key was dropped");
}

/// The cache is dropped before the background has freed what was invalidated.
#[test]
fn invalidated_entries_are_reported_before_the_cache_is_gone() {
    let calls = Arc::new(AtomicUsize::new(0));
    for round in 1..=10 {
        let counted = Arc::clone(&calls);
        let report = move |_: &u32, (): &(), cause| {
            assert_eq!(cause, RemovalCause::Explicit);
            counted.fetch_add(1, SeqCst);
        };
        let cache = Cache::builder().capacity(10_000).on_removal(report).build();
        (0..5000).for_each(|n| cache.insert(n, ()));
        cache.invalidate_all();
        drop(cache);
        wait_until("all to be reported", || calls.load(SeqCst) == round * 5000);
    }
}
