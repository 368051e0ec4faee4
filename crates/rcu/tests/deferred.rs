//! Deferred functions: guarantees R1, R9 and R10 of `relativist_rcu::design`.
#![cfg(not(relativist_loom))]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;

use relativist_rcu::{Published, barrier, defer, defer_drop, read, reclaim_soon, wait_for_readers};
use relativist_testing::wait_until;
use support::{Reader, must_end};

/// R1: nothing runs before the readers from before have left, and a barrier waits for that.
#[test]
fn runs_after_the_readers() {
    let ran = Arc::new(AtomicBool::new(false));
    let reader = Reader::enter();
    let flag = Arc::clone(&ran);
    defer(move || flag.store(true, SeqCst));
    let waiting = thread::spawn(barrier);
    // The worker and the barrier try to run it meanwhile.
    thread::sleep(std::time::Duration::from_millis(50));
    assert!(!ran.load(SeqCst) && !waiting.is_finished());
    reader.leave();
    must_end(|| waiting.join().unwrap());
    assert!(ran.load(SeqCst));
}

/// R1, R10: urgent functions, too, run after the readers from before, although their thread does
/// nothing else.
#[test]
fn urgent_functions_run_after_the_readers() {
    let ran = Arc::new(AtomicBool::new(false));
    let reader = Reader::enter();
    let flag = Arc::clone(&ran);
    defer(move || flag.store(true, SeqCst));
    reclaim_soon();
    // The worker tries to run it meanwhile.
    thread::sleep(std::time::Duration::from_millis(50));
    assert!(!ran.load(SeqCst));
    reader.leave();
    wait_until("the deferred function", || ran.load(SeqCst));
}

/// R1: each published value is dropped once: replaced ones after a grace period, the last one with
/// the `Published`.
#[test]
fn published_values_are_dropped_once() {
    let alive = Arc::new(());
    let value = Published::new((0, Arc::clone(&alive)));
    let guard = read();
    let first = value.read(&guard);
    for version in 1..=1000 {
        value.publish((version, Arc::clone(&alive)));
    }
    assert_eq!((first.0, value.read(&guard).0), (0, 1000));
    assert_eq!(Arc::strong_count(&alive), 1002, "dropped while it could be read");
    drop(guard);
    must_end(barrier);
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(value);
    assert_eq!(Arc::strong_count(&alive), 1);
}

/// R10: each function runs once, also if there are many, also those that functions defer in turn.
#[test]
fn each_runs_once() {
    let (ran, seen) = mpsc::channel();
    must_end(move || {
        for number in 0..10_000 {
            let ran = ran.clone();
            defer(move || {
                let again = ran.clone();
                ran.send((0, number)).unwrap();
                defer(move || again.send((1, number)).unwrap());
            });
        }
        barrier(); // for the first generation
        barrier(); // for what that deferred
    });
    let mut all: Vec<(i32, i32)> = seen.try_iter().collect();
    all.sort_unstable();
    let expected: Vec<_> = (0..2).flat_map(|generation| (0..10_000).map(move |number| (generation, number))).collect();
    assert_eq!(all, expected);
}

/// R10: functions that an exited thread deferred run, even if no thread calls RCU again.
#[test]
fn runs_though_its_thread_has_exited() {
    let ran = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ran);
    thread::spawn(move || defer(move || flag.store(true, SeqCst))).join().unwrap();
    wait_until("the deferred function", || ran.load(SeqCst));
}

/// R10: a barrier on one thread covers what other threads deferred.
#[test]
fn a_barrier_covers_all_threads() {
    let count = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let count = Arc::clone(&count);
            thread::spawn(move || {
                for _ in 0..3000 {
                    let count = Arc::clone(&count);
                    defer(move || _ = count.fetch_add(1, SeqCst));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    must_end(barrier);
    assert_eq!(count.load(SeqCst), 12_000);
}

/// R10: a barrier waits for the end of a function that another thread is running.
#[test]
fn a_barrier_waits_for_what_runs() {
    let (begun, running) = mpsc::channel();
    let (finish, may_finish) = mpsc::channel();
    let done = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&done);
    defer(move || {
        begun.send(()).unwrap();
        may_finish.recv().unwrap();
        thread::sleep(std::time::Duration::from_millis(20));
        flag.store(true, SeqCst);
    });
    let one = thread::spawn(barrier);
    running.recv().unwrap();
    let other = thread::spawn(barrier);
    finish.send(()).unwrap();
    must_end(|| other.join().unwrap());
    assert!(done.load(SeqCst), "the barrier did not wait");
    must_end(|| one.join().unwrap());
}

/// R6: a barrier in a deferred function would wait for itself. It panics; waiting for readers there
/// is fine.
#[test]
fn a_barrier_in_a_deferred_function_panics() {
    let (tell, told) = mpsc::channel();
    defer(move || {
        wait_for_readers();
        tell.send(catch_unwind(barrier).is_err()).unwrap();
    });
    must_end(barrier);
    assert!(told.recv().unwrap(), "the barrier returned inside a deferred function");
    must_end(barrier);
}

/// Panics when it is dropped. The payload of that panic is `()`, because the crate leaks it.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any(());
    }
}

/// R9: whatever a deferred function throws, those after it run, and so do barriers, on the thread
/// that ran it and elsewhere.
#[test]
fn a_panic_goes_no_further() {
    must_end(|| {
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            defer(|| panic!("on purpose"));
            defer(|| std::panic::panic_any(Bomb));
            defer_drop(Box::new(Bomb));
            let count = Arc::clone(&count);
            defer(move || _ = count.fetch_add(1, SeqCst));
            barrier();
        }
        assert_eq!(count.load(SeqCst), 3);
        thread::spawn(barrier).join().unwrap();
    });
}

/// R9: deferred functions run, and may panic, while a panic unwinds the section that ends.
#[test]
fn reclaims_while_unwinding() {
    must_end(|| {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let section = AssertUnwindSafe(move || {
            let _guard = read();
            for _ in 0..2 * relativist_rcu::MAX_DEFERRED {
                let count = Arc::clone(&counted);
                defer(move || _ = count.fetch_add(1, SeqCst));
            }
            defer(|| panic!("on purpose, in a deferred function"));
            panic!("on purpose, in a section");
        });
        catch_unwind(section).expect_err("it panics");
        barrier();
        assert_eq!(count.load(SeqCst), 2 * relativist_rcu::MAX_DEFERRED);
    });
}
