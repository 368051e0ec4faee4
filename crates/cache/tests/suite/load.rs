//! One loader per key, and no key that stays locked.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, OnceLock, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use relativist_cache::Cache;
use relativist_testing::{patience, wait_until};

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Woken {
    fn times(&self) -> usize {
        self.0.load(SeqCst)
    }
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>, woken: &Arc<Woken>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(woken))))
}

/// Is pending for this number of polls.
async fn pause(polls: usize) {
    let mut left = polls;
    poll_fn(move |_| match left {
        0 => Poll::Ready(()),
        _ => {
            left -= 1;
            Poll::Pending
        }
    })
    .await;
}

#[test]
fn threads_that_miss_a_key_share_a_loader() {
    const THREADS: usize = 8;
    let cache = Cache::new(100);
    for round in 0..100 {
        let (calls, barrier) = (AtomicUsize::new(0), Barrier::new(THREADS));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    let value = cache.get_or_insert_with(round, || {
                        thread::yield_now();
                        calls.fetch_add(1, SeqCst);
                        round * 2
                    });
                    assert_eq!(value, round * 2);
                });
            }
        });
        assert_eq!(calls.load(SeqCst), 1);
    }
    assert_eq!(cache.stats().loads, 100);
}

#[test]
fn the_next_thread_loads_after_a_panic() {
    const THREADS: usize = 8;
    let cache: Cache<u32, usize> = Cache::new(100);
    let (calls, barrier) = (AtomicUsize::new(0), Barrier::new(THREADS));
    let load = || match calls.fetch_add(1, SeqCst) {
        n if n + 1 == THREADS => n,
        n => std::panic::panic_any(n),
    };
    let values: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    catch_unwind(AssertUnwindSafe(|| cache.get_or_insert_with(1, load)))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(values.iter().filter(|value| value.is_err()).count(), THREADS - 1);
    assert_eq!(cache.get(&1), Some(THREADS - 1));
    assert_eq!((cache.stats().loads, cache.stats().failed_loads), (1, THREADS as u64 - 1));
}

/// A thread and tasks that wait get the error of the loader. One whose loader has another error
/// calls its own.
#[test]
fn those_that_wait_share_an_error() {
    let cache: Cache<u32, u32> = Cache::new(100);
    let woken = Arc::<Woken>::default();
    let load = || async {
        pause(1).await;
        Err("down")
    };
    let (mut leader, mut task) =
        (pin!(cache.get_or_try_insert_async(1, load)), pin!(cache.get_or_try_insert_async(1, load)));
    let mut other = pin!(cache.get_or_try_insert_async(1, || async { Err::<u32, u8>(7) }));
    assert!(poll(leader.as_mut(), &woken).is_pending());
    assert!(poll(task.as_mut(), &woken).is_pending());
    assert!(poll(other.as_mut(), &woken).is_pending());
    thread::scope(|scope| {
        let waits = scope.spawn(|| cache.get_or_try_insert_with(1, || Err::<u32, &str>("not called")));
        wait_until("the thread to wait", || cache.stats().waits == 3);
        let Poll::Ready(Err(error)) = poll(leader.as_mut(), &woken) else { panic!("it fails") };
        let of_thread = waits.join().unwrap().unwrap_err();
        assert!(*error == "down" && Arc::ptr_eq(&error, &of_thread));
    });
    assert_eq!(poll(task.as_mut(), &woken), Poll::Ready(Err(Arc::new("down"))));
    assert_eq!(poll(other.as_mut(), &woken), Poll::Ready(Err(Arc::new(7))));
    assert_eq!((cache.len(), cache.stats().failed_loads), (0, 2));
}

/// The future of a leader is kept without being polled, although its loader could go on. A task
/// and a thread that wait then load for themselves.
#[test]
fn a_leader_that_is_not_polled_is_given_up() {
    for in_thread in [false, true] {
        let cache: Cache<u32, &str> = Cache::new(100);
        let ready = Arc::new(Mutex::new(None::<Waker>));
        let loader_ready = Arc::clone(&ready);
        let load = || async move {
            let mut is_first = true;
            poll_fn(move |context| {
                *loader_ready.lock().unwrap() = Some(context.waker().clone());
                if std::mem::replace(&mut is_first, false) { Poll::Pending } else { Poll::Ready("forgotten") }
            })
            .await
        };
        let mut forgotten = Box::pin(cache.get_or_insert_async(1, load));
        let woken = Arc::<Woken>::default();
        assert!(poll(forgotten.as_mut(), &woken).is_pending());
        let value = if in_thread {
            thread::scope(|scope| {
                let waits = scope.spawn(|| cache.get_or_insert_with(1, || "own"));
                wait_until("the thread to wait", || cache.stats().waits == 1);
                ready.lock().unwrap().take().unwrap().wake();
                waits.join().unwrap()
            })
        } else {
            ready.lock().unwrap().take().unwrap().wake();
            smol::block_on(cache.get_or_insert_async(1, || async { "own" }))
        };
        assert_eq!((value, woken.times()), ("own", 1));
        // The leader gets its own value, and the cache keeps the other one.
        assert_eq!(poll(forgotten.as_mut(), &woken), Poll::Ready("forgotten"));
        assert_eq!(cache.get(&1), Some("own"));
    }
}

/// As long as a leader is polled when its loader can go on, others wait for it.
#[test]
fn a_slow_leader_is_not_given_up() {
    let cache: Cache<u32, u32> = Cache::new(100);
    let calls = AtomicUsize::new(0);
    let load = || async {
        calls.fetch_add(1, SeqCst);
        for _ in 0..10 {
            smol::Timer::after(Duration::from_millis(20)).await;
        }
        5
    };
    let (one, other) = (cache.get_or_insert_async(1, load), cache.get_or_insert_async(1, load));
    assert_eq!(smol::block_on(smol::future::zip(one, other)), (5, 5));
    assert_eq!(calls.load(SeqCst), 1);
}

/// A poll of the loader takes long, and the loader could go on meanwhile: it is not forgotten.
#[test]
fn a_leader_that_is_being_polled_is_not_given_up() {
    let (cache, calls) = (Cache::new(100), AtomicUsize::new(0));
    let load = || async {
        calls.fetch_add(1, SeqCst);
        let mut polls = 0;
        poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            thread::sleep(Duration::from_millis(150));
            if polls == 2 { Poll::Ready(5) } else { Poll::Pending }
        })
        .await
    };
    thread::scope(|scope| {
        let leads = scope.spawn(|| smol::block_on(cache.get_or_insert_async(1, load)));
        wait_until("the loader to be called", || calls.load(SeqCst) == 1);
        assert_eq!(cache.get_or_insert_with(1, || 6), 5);
        assert_eq!(leads.join().unwrap(), 5);
    });
    assert_eq!(calls.load(SeqCst), 1);
}

/// A value that is too heavy replaces none, but the old one is out of date.
#[test]
fn a_refreshed_value_that_is_too_heavy_removes_the_old_one() {
    let cache: Cache<u32, u64> = Cache::builder().capacity(10).weigher(|_, &weight| weight).build();
    cache.insert(1, 5);
    assert_eq!(cache.get_or_refresh_with(1, |_| true, || 11), 11);
    assert_eq!((cache.get(&1), cache.weight()), (None, 0));
}

/// Entries that are old are loaded again by one caller, while others get the old value.
#[test]
fn old_entries_are_refreshed_by_one_caller() {
    let (start, seconds) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let clock = Arc::clone(&seconds);
    let cache: Cache<u32, u32> = Cache::builder()
        .capacity(100)
        .refresh_after(Duration::from_secs(10))
        .clock(move || start + Duration::from_secs(clock.load(SeqCst) as u64))
        .build();
    let never = || -> u32 { panic!("it is fresh") };
    assert_eq!(cache.get_or_insert_with(1, || 1), 1);
    seconds.store(9, SeqCst);
    assert_eq!(cache.get_or_insert_with(1, never), 1);
    seconds.store(10, SeqCst);
    assert_eq!(cache.get(&1), Some(1));
    let refreshed = cache.get_or_insert_with(1, || {
        // Another caller meanwhile, and this one, if it asks again.
        assert_eq!(cache.get_or_insert_with(1, never), 1);
        2
    });
    assert_eq!((refreshed, cache.get_or_insert_with(1, never)), (2, 2));
    // A task, whose loader fails: the old value stays, until the next try after as long again.
    seconds.store(20, SeqCst);
    let fails = cache.get_or_try_insert_async(1, || async { Err("down") });
    assert_eq!(smol::block_on(fails), Ok(2));
    assert_eq!((cache.get_or_insert_with(1, never), cache.stats().failed_loads), (2, 1));
    seconds.store(30, SeqCst);
    // A removal meanwhile: the refreshed value is not kept.
    let removed = cache.get_or_insert_with(1, || {
        cache.invalidate(&1);
        3
    });
    assert_eq!((removed, cache.get(&1)), (3, None));
}

/// One caller that finds a value stale loads again, and others that find it stale get its value.
#[test]
fn a_stale_value_is_loaded_again_once() {
    let cache: Cache<u32, u32> = Cache::new(100);
    cache.insert(1, 1);
    let woken = Arc::<Woken>::default();
    let load = || async {
        pause(1).await;
        2
    };
    let is_stale = |&value: &u32| value < 2;
    let (mut leader, mut waits) =
        (pin!(cache.get_or_refresh_async(1, is_stale, load)), pin!(cache.get_or_refresh_async(1, is_stale, load)));
    assert!(poll(leader.as_mut(), &woken).is_pending());
    assert!(poll(waits.as_mut(), &woken).is_pending());
    assert_eq!(cache.get_or_insert_with(1, || panic!("it is there")), 1);
    assert_eq!(poll(leader.as_mut(), &woken), Poll::Ready(2));
    assert_eq!(poll(waits.as_mut(), &woken), Poll::Ready(2));
    assert_eq!((cache.get_or_refresh_with(1, is_stale, || panic!("it is fresh")), cache.stats().loads), (2, 1));
}

#[test]
fn a_value_that_is_too_heavy_is_returned_to_all() {
    let cache: Cache<u32, u64> = Cache::builder().capacity(10).weigher(|_, &weight| weight).build();
    let (calls, woken) = (Cell::new(0), Arc::<Woken>::default());
    let load = || async {
        pause(1).await;
        calls.set(calls.get() + 1);
        11
    };
    let (mut first, mut second) = (pin!(cache.get_or_insert_async(1, load)), pin!(cache.get_or_insert_async(1, load)));
    assert!(poll(first.as_mut(), &woken).is_pending());
    assert!(poll(second.as_mut(), &woken).is_pending());
    assert_eq!(poll(first.as_mut(), &woken), Poll::Ready(11));
    assert_eq!((woken.times(), poll(second.as_mut(), &woken)), (1, Poll::Ready(11)));
    assert_eq!((calls.get(), cache.len()), (1, 0));
}

/// Drops the future of the leader after each number of polls. The one that waits then leads.
#[test]
fn a_loader_that_is_dropped_at_any_await_leaves_no_key_locked() {
    const AWAITS: usize = 5;
    for polls in 0..=AWAITS {
        let cache = Cache::new(10);
        let load = |value| {
            move || async move {
                for _ in 0..AWAITS {
                    pause(1).await;
                }
                value
            }
        };
        let (leading, waiting) = (Arc::<Woken>::default(), Arc::<Woken>::default());
        let mut leader = Box::pin(cache.get_or_insert_async("key", load(1)));
        (0..polls).for_each(|_| assert!(poll(leader.as_mut(), &leading).is_pending()));
        let mut waiter = pin!(cache.get_or_insert_async("key", load(2)));
        assert!(poll(waiter.as_mut(), &waiting).is_pending());
        assert_eq!(waiting.times(), 0);
        drop(leader);
        // If the first was never polled, the second is the leader from the beginning.
        assert_eq!(waiting.times(), usize::from(polls > 0));
        let more = if polls > 0 { AWAITS } else { AWAITS - 1 };
        (0..more).for_each(|_| assert!(poll(waiter.as_mut(), &waiting).is_pending()));
        assert_eq!(poll(waiter.as_mut(), &waiting), Poll::Ready(2));
        assert_eq!(cache.get("key"), Some(2));
        assert_eq!(cache.stats().failed_loads, u64::from(polls > 0));
    }
}

#[test]
fn one_that_waits_may_be_dropped_at_any_time() {
    let cache = Cache::new(10);
    let load = || async {
        pause(3).await;
        1
    };
    let (leading, first, second) = (Arc::<Woken>::default(), Arc::<Woken>::default(), Arc::<Woken>::default());
    let mut leader = pin!(cache.get_or_insert_async("key", load));
    assert!(poll(leader.as_mut(), &leading).is_pending());
    for polls in 0..3 {
        let mut waiter = Box::pin(cache.get_or_insert_async("key", load));
        (0..polls).for_each(|_| assert!(poll(waiter.as_mut(), &first).is_pending()));
        drop(waiter);
        // No waker is left behind.
        assert_eq!(Arc::strong_count(&first), 1);
    }
    let mut waiter = pin!(cache.get_or_insert_async("key", load));
    // The latest waker counts.
    assert!(poll(waiter.as_mut(), &first).is_pending());
    assert!(poll(waiter.as_mut(), &second).is_pending());
    (0..2).for_each(|_| assert!(poll(leader.as_mut(), &leading).is_pending()));
    assert_eq!(poll(leader.as_mut(), &leading), Poll::Ready(1));
    assert_eq!((leading.times(), first.times(), second.times()), (0, 0, 1));
    assert_eq!(poll(waiter.as_mut(), &second), Poll::Ready(1));
}

#[test]
fn a_loader_that_panics_or_fails_leaves_no_key_locked() {
    let cache: Cache<u32, u32> = Cache::new(10);
    let woken = Arc::<Woken>::default();
    let mut panics = Box::pin(cache.get_or_insert_async(1, || async {
        pause(1).await;
        panic!("in the loader")
    }));
    let mut fails = Box::pin(cache.get_or_try_insert_async(1, || async {
        pause(1).await;
        Err("no")
    }));
    let mut succeeds = pin!(cache.get_or_insert_async(1, || async { 3 }));
    assert!(poll(panics.as_mut(), &woken).is_pending());
    assert!(poll(fails.as_mut(), &woken).is_pending());
    assert!(poll(succeeds.as_mut(), &woken).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| poll(panics.as_mut(), &woken))).is_err());
    assert_eq!(woken.times(), 2);
    assert!(poll(fails.as_mut(), &woken).is_pending());
    assert!(poll(succeeds.as_mut(), &woken).is_pending());
    assert_eq!(poll(fails.as_mut(), &woken), Poll::Ready(Err(Arc::new("no"))));
    // The other loader has no error of this type. So its caller looks again, and loads.
    assert_eq!((woken.times(), poll(succeeds.as_mut(), &woken)), (3, Poll::Ready(3)));
    // A panic before the first await.
    let mut panics = Box::pin(cache.get_or_insert_async(2, || -> std::future::Ready<u32> { panic!("at once") }));
    assert!(catch_unwind(AssertUnwindSafe(|| poll(panics.as_mut(), &woken))).is_err());
    assert_eq!(cache.get_or_insert_with(2, || 4), 4);
}

#[test]
fn a_thread_waits_for_a_task() {
    let cache = Cache::new(10);
    let woken = Arc::<Woken>::default();
    let mut task = Box::pin(cache.get_or_insert_async(1, || async {
        pause(1).await;
        "task"
    }));
    assert!(poll(task.as_mut(), &woken).is_pending());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| cache.get_or_insert_with(1, || "thread"));
        assert_eq!(poll(task.as_mut(), &woken), Poll::Ready("task"));
        assert_eq!(waiting.join().unwrap(), "task");
    });
}

/// What is loaded while its key is removed may be out of date. It is returned to the caller of the
/// loader, but neither kept nor passed on.
#[test]
fn a_removal_cancels_a_load() {
    type Remove = fn(&Cache<u32, u32>);
    let removals: [Remove; 3] =
        [|cache| _ = cache.remove(&1), |cache| cache.invalidate(&1), |cache| cache.invalidate_all()];
    for remove in removals {
        let cache = Cache::new(10);
        let woken = Arc::<Woken>::default();
        let load = |value| {
            move || async move {
                pause(1).await;
                value
            }
        };
        let mut old = Box::pin(cache.get_or_insert_async(1, load(1)));
        let mut waits = Box::pin(cache.get_or_insert_async(1, load(1)));
        assert!(poll(old.as_mut(), &woken).is_pending());
        assert!(poll(waits.as_mut(), &woken).is_pending());
        remove(&cache);
        // A new load begins, while the old one is still in progress. The one that waits joins it.
        let mut new = Box::pin(cache.get_or_insert_async(1, load(2)));
        assert!(poll(new.as_mut(), &woken).is_pending());
        assert_eq!(woken.times(), 1);
        assert!(poll(waits.as_mut(), &woken).is_pending());
        assert_eq!(poll(old.as_mut(), &woken), Poll::Ready(1));
        assert_eq!((cache.get(&1), woken.times()), (None, 1));
        assert_eq!(poll(new.as_mut(), &woken), Poll::Ready(2));
        assert_eq!((cache.get(&1), woken.times()), (Some(2), 2));
        assert_eq!(poll(waits.as_mut(), &woken), Poll::Ready(2));
    }
}

/// A future that loads is no longer polled, as if it were leaked.
#[test]
fn an_update_frees_those_that_wait_for_a_stuck_load() {
    type Update = fn(&Cache<u32, u32>);
    let updates: [(Update, u32); 4] = [
        (|cache| _ = cache.remove(&1), 7),
        (|cache| cache.invalidate(&1), 7),
        (|cache| cache.invalidate_all(), 7),
        (|cache| cache.insert(1, 5), 5),
    ];
    for (update, expected) in updates {
        let cache = Cache::new(10);
        let mut stuck = pin!(cache.get_or_insert_async(1, std::future::pending));
        assert!(poll(stuck.as_mut(), &Arc::default()).is_pending());
        let woken: [Arc<Woken>; 3] = Default::default();
        let mut waiting = [(); 3].map(|()| Box::pin(cache.get_or_insert_async(1, || async { 7 })));
        for (waits, woken) in waiting.iter_mut().zip(&woken) {
            assert!(poll(waits.as_mut(), woken).is_pending());
        }
        update(&cache);
        for (waits, woken) in waiting.iter_mut().zip(&woken) {
            assert_eq!((woken.times(), poll(waits.as_mut(), woken)), (1, Poll::Ready(expected)));
        }
        assert_eq!((cache.get(&1), cache.stats().loads), (Some(expected), u64::from(expected == 7)));
    }
}

/// The key is removed just before the loaded value is inserted. Then another thread changes the
/// value that it finds, if it finds one.
#[test]
fn nothing_comes_back_from_a_cancelled_load() {
    let (weighs, is_weighing) = mpsc::channel();
    let (removed, is_removed) = mpsc::channel::<()>();
    let turns = Mutex::new((weighs, is_removed));
    // The last code of the user before the insertion.
    let weigh = move |_: &u32, &value: &u32| {
        if value == 7 {
            let (weighs, is_removed) = &*turns.lock().unwrap();
            weighs.send(()).unwrap();
            is_removed.recv_timeout(patience()).unwrap();
        }
        1
    };
    let cache = Cache::builder().capacity(10).weigher(weigh).build();
    for _ in 0..500 {
        thread::scope(|scope| {
            let load = scope.spawn(|| cache.get_or_insert_with(1, || 7));
            is_weighing.recv_timeout(patience()).unwrap();
            cache.invalidate(&1);
            removed.send(()).unwrap();
            while !load.is_finished() {
                _ = cache.try_compute(1, |old| old.map(|n| Some(n + 100)).ok_or(()));
            }
        });
        assert_eq!(cache.peek(&1), None);
    }
}

/// A key whose `Eq` calls a function. All have the same hash.
#[derive(Clone)]
struct Hostile(u32);

/// In how many calls from now `Eq` calls the function.
type InEq = (usize, fn());
const NOTHING: InEq = (usize::MAX, || ());
thread_local!(static IN_EQ: Cell<InEq> = const { Cell::new(NOTHING) });

impl PartialEq for Hostile {
    fn eq(&self, other: &Self) -> bool {
        let (left, function) = IN_EQ.get();
        IN_EQ.set((left.wrapping_sub(1), function));
        if left == 0 {
            function();
        }
        self.0 == other.0
    }
}

impl Eq for Hostile {}

impl Hash for Hostile {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// `Eq` removes the key that is being loaded, wherever it is called.
#[test]
fn eq_may_remove_a_loaded_key() {
    static CACHE: OnceLock<Cache<Hostile, u32>> = OnceLock::new();

    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let cache = CACHE.get_or_init(|| Cache::new(10));
        cache.insert(Hostile(1), 1);
        let mut is_kept = [0; 2];
        for at in 0..20 {
            let load = || {
                IN_EQ.set((at, || CACHE.get().unwrap().invalidate(&Hostile(2))));
                2
            };
            assert_eq!(cache.get_or_insert_with(Hostile(2), load), 2);
            IN_EQ.set(NOTHING);
            is_kept[usize::from(cache.contains_key(&Hostile(2)))] += 1;
            assert_eq!(cache.get_or_insert_with(Hostile(2), || 3), cache.get(&Hostile(2)).unwrap());
            cache.invalidate(&Hostile(2));
        }
        done.send(is_kept).unwrap();
    });
    let is_kept = is_done.recv_timeout(patience()).expect("no thread waits for itself");
    assert!(is_kept.iter().all(|&n| n > 0), "{is_kept:?}");
}

/// A load ends while `compute` decides to remove the key, or to set a value that is too heavy.
#[test]
fn a_load_that_ends_during_compute_is_removed() {
    for decision in [None, Some(11)] {
        let cache = &Cache::builder().capacity(10).weigher(|_, &weight: &u64| weight).build();
        let (begin, is_begun) = mpsc::channel();
        let (end, must_end) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let mut load = Some(scope.spawn(move || {
                cache.get_or_insert_with(1, || {
                    begin.send(()).unwrap();
                    must_end.recv_timeout(patience()).unwrap();
                    5
                })
            }));
            is_begun.recv_timeout(patience()).unwrap();
            let mut found = Vec::new();
            let decide = |old: Option<&u64>| {
                found.push(old.copied());
                if let Some(load) = load.take() {
                    end.send(()).unwrap();
                    assert_eq!(load.join().unwrap(), 5);
                }
                decision
            };
            assert_eq!(cache.compute(1, decide), decision);
            assert_eq!((found, cache.peek(&1)), (vec![None, Some(5)], None));
        });
    }
}

#[test]
fn an_insertion_is_not_replaced_by_an_older_load() {
    let cache = Cache::new(10);
    let woken = Arc::<Woken>::default();
    let mut load = Box::pin(cache.get_or_insert_async(1, || async {
        pause(1).await;
        "old"
    }));
    assert!(poll(load.as_mut(), &woken).is_pending());
    cache.insert(1, "new");
    assert_eq!(poll(load.as_mut(), &woken), Poll::Ready("old"));
    assert_eq!(cache.get(&1), Some("new"));
}

#[test]
fn loading_the_same_key_in_its_loader_panics() {
    let cache = Cache::new(10);
    let again = || cache.get_or_insert_with(1, || cache.get_or_insert_with(1, || 2));
    assert!(catch_unwind(AssertUnwindSafe(again)).is_err());
    // Other keys may be loaded.
    assert_eq!(cache.get_or_insert_with(1, || cache.get_or_insert_with(2, || 3) + 1), 4);
}

/// The loader runs outside of the cache's own sections: it may wait for readers.
#[test]
fn a_loader_runs_in_no_read_section() {
    let cache = Cache::new(10);
    let load = || {
        relativist_rcu::barrier();
        2
    };
    assert_eq!(cache.get_or_insert_with(1, load), 2);
    assert_eq!(poll(pin!(cache.get_or_insert_async(2, || async { load() })), &Arc::default()), Poll::Ready(2));
}

#[test]
fn a_thread_with_a_guard_loads() {
    let cache = Cache::new(10);
    let _guard = relativist_cache::read();
    assert_eq!(cache.get_or_insert_with(1, || 2), 2);
    assert_eq!(cache.get_or_insert_with(1, || panic!("it was kept")), 2);
    assert_eq!(cache.get_or_try_insert_with(2, || Err(3)), Err(Arc::new(3)));
    // In a function of `compute`, which the cache calls in its own read section.
    assert_eq!(cache.compute(3, |_| Some(cache.get_or_insert_with(4, || 5) + 1)), Some(6));
    assert_eq!((cache.get(&4), cache.stats().loads), (Some(5), 2));
}

/// The other thread may be waiting for readers, as here.
#[test]
fn a_thread_with_a_guard_does_not_wait_for_a_load() {
    let cache = &Cache::new(10);
    let (begin, is_begun) = mpsc::channel();
    thread::scope(|scope| {
        let guard = relativist_cache::read();
        let loads = scope.spawn(move || {
            cache.get_or_insert_with(1, || {
                begin.send(()).unwrap();
                relativist_rcu::wait_for_readers();
                2
            })
        });
        is_begun.recv_timeout(patience()).unwrap();
        assert_eq!(cache.get_or_insert_with(1, || 3), 3);
        assert_eq!(cache.get_or_try_insert_with(1, || Err(3)), Err(Arc::new(3)));
        let in_task = pin!(cache.get_or_insert_async(1, || async { 4 }));
        assert_eq!(poll(in_task, &Arc::default()), Poll::Ready(4));
        assert_eq!((cache.get(&1), cache.stats().loads), (None, 2), "none of them was kept");
        drop(guard);
        assert_eq!(loads.join().unwrap(), 2);
    });
    assert_eq!((cache.get(&1), cache.stats().loads, cache.stats().failed_loads), (Some(2), 3, 1));
}

#[test]
fn a_waker_that_panics_does_not_keep_others_asleep() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("in a waker");
        }
    }
    let cache = Cache::new(10);
    let load = || async {
        pause(1).await;
        1
    };
    let woken = Arc::<Woken>::default();
    let mut leader = pin!(cache.get_or_insert_async(1, load));
    assert!(poll(leader.as_mut(), &woken).is_pending());
    let (mut first, mut second) = (pin!(cache.get_or_insert_async(1, load)), pin!(cache.get_or_insert_async(1, load)));
    assert!(first.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(Panics)))).is_pending());
    assert!(poll(second.as_mut(), &woken).is_pending());
    assert_eq!(poll(leader.as_mut(), &woken), Poll::Ready(1));
    assert_eq!((woken.times(), poll(second.as_mut(), &woken)), (1, Poll::Ready(1)));
}

/// Tasks that may move between threads can load.
#[test]
fn futures_that_load_are_send() {
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    const TASKS: usize = 1000;
    let cache: Arc<Cache<usize, Arc<usize>>> = Arc::new(Cache::new(50));
    let calls = Arc::new(AtomicUsize::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (cache, calls) = (Arc::clone(&cache), Arc::clone(&calls));
                tokio::spawn(is_send(async move {
                    let load = || async {
                        calls.fetch_add(1, SeqCst);
                        tokio::task::yield_now().await;
                        Arc::new(task % 50)
                    };
                    assert_eq!(*cache.get_or_insert_async(task % 50, load).await, task % 50);
                }))
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(calls.load(SeqCst), 50);
}
