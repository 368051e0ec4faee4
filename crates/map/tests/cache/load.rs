//! One loader per key, and no key that stays locked.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use relativist::Cache;

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
fn the_next_thread_loads_after_a_failure_or_a_panic() {
    const THREADS: usize = 8;
    let cache: Cache<u32, usize> = Cache::new(100);
    let (calls, barrier) = (AtomicUsize::new(0), Barrier::new(THREADS));
    let load = || match calls.fetch_add(1, SeqCst) {
        n if n + 1 == THREADS => Ok(n),
        n if n % 2 == 0 => Err(n),
        n => std::panic::panic_any(n),
    };
    let values: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    catch_unwind(AssertUnwindSafe(|| cache.get_or_try_insert_with(1, load)))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (mut succeeded, mut failed, mut panicked) = (0, 0, 0);
    for value in values {
        match value {
            Ok(Ok(value)) => succeeded += usize::from(value == THREADS - 1),
            Ok(Err(_)) => failed += 1,
            Err(_) => panicked += 1,
        }
    }
    assert_eq!((succeeded, failed, panicked), (1, THREADS / 2, THREADS / 2 - 1));
    assert_eq!((cache.stats().loads, cache.stats().failed_loads), (1, THREADS as u64 - 1));
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
    assert_eq!(poll(fails.as_mut(), &woken), Poll::Ready(Err("no")));
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

/// What is loaded while its key is removed may be out of date. It is returned, but not kept.
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
        // A new load begins, while the old one is still in progress.
        let mut new = Box::pin(cache.get_or_insert_async(1, load(2)));
        assert!(poll(new.as_mut(), &woken).is_pending());
        assert_eq!(poll(old.as_mut(), &woken), Poll::Ready(1));
        assert_eq!(poll(waits.as_mut(), &woken), Poll::Ready(1));
        assert_eq!(cache.get(&1), None);
        assert_eq!(poll(new.as_mut(), &woken), Poll::Ready(2));
        assert_eq!(cache.get(&1), Some(2));
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
    cache.insert(1, "new").unwrap();
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

#[test]
fn loading_in_a_read_section_panics() {
    let cache = Cache::new(10);
    let guard = relativist::read();
    assert!(catch_unwind(AssertUnwindSafe(|| cache.get_or_insert_with(1, || 2))).is_err());
    drop(guard);
    assert_eq!(cache.get_or_insert_with(1, || 2), 2);
    let _guard = relativist::read();
    assert_eq!(cache.get_or_insert_with(1, || 3), 2);
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
