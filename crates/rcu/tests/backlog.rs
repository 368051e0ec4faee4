//! The backlog behind a stalled reader: guarantee R5 of `relativist_rcu::design`.
#![cfg(not(relativist_loom))]

mod support;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use relativist_rcu::{MAX_DEFERRED, MAX_DEFERRED_BYTES, barrier, defer, defer_raw, read, without_waiting};
use relativist_testing::wait_until;
use support::{Reader, must_end};

/// One test stalls at a time, because these tests count the functions that run.
static ALONE: Mutex<()> = Mutex::new(());

/// Gives a thread that is about to reach its bound the time to exceed it, if nothing stops it.
fn let_it_overstep() {
    std::thread::sleep(std::time::Duration::from_millis(50));
}

/// The number of functions that a retiring thread has deferred, and the number of those that have
/// run.
#[derive(Default)]
struct Tally {
    deferred: AtomicUsize,
    run: AtomicUsize,
}

impl Tally {
    fn pending(&self) -> usize {
        // In this order, so that the difference is not negative. A function that runs between the
        // two loads counts as pending, which it was at the first.
        let run = self.run.load(SeqCst);
        self.deferred.load(SeqCst) - run
    }
}

/// R5: a thread that retires more than the bound waits, and goes on when the reader leaves.
#[test]
fn the_count_is_bounded() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let tally = Arc::new(Tally::default());
    let stalled = Reader::enter();
    let retiring = Arc::clone(&tally);
    let writer = std::thread::spawn(move || {
        for _ in 0..3 * MAX_DEFERRED {
            let tally = Arc::clone(&retiring);
            defer(move || _ = tally.run.fetch_add(1, SeqCst));
            let deferred = retiring.deferred.fetch_add(1, SeqCst) + 1;
            assert!(deferred - retiring.run.load(SeqCst) <= MAX_DEFERRED, "more than the bound is pending");
        }
    });
    wait_until("a full backlog", || tally.pending() >= MAX_DEFERRED - 2048 || writer.is_finished());
    let_it_overstep();
    assert_eq!(tally.run.load(SeqCst), 0, "run under the eyes of a reader");
    stalled.leave();
    must_end(|| writer.join().unwrap());
    must_end(barrier);
    assert_eq!(tally.run.load(SeqCst), 3 * MAX_DEFERRED);
}

/// R5: the same in bytes.
#[test]
fn the_bytes_are_bounded() {
    const SIZE: usize = MAX_DEFERRED_BYTES / 50;
    static RUN: AtomicUsize = AtomicUsize::new(0);
    unsafe fn count(_: NonNull<()>) {
        RUN.fetch_add(1, SeqCst);
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let stalled = Reader::enter();
    let deferred = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&deferred);
    let writer = std::thread::spawn(move || {
        for _ in 0..150 {
            // SAFETY: `count` ignores its argument.
            unsafe { defer_raw(NonNull::dangling(), SIZE, count) };
            let deferred = counted.fetch_add(1, SeqCst) + 1;
            assert!((deferred - RUN.load(SeqCst)) * SIZE <= MAX_DEFERRED_BYTES, "more than the bound is pending");
        }
    });
    wait_until("forty deferred functions", || deferred.load(SeqCst) >= 40 || writer.is_finished());
    let_it_overstep();
    assert_eq!(RUN.load(SeqCst), 0, "run under the eyes of a reader");
    stalled.leave();
    must_end(|| writer.join().unwrap());
    must_end(barrier);
    assert_eq!(RUN.load(SeqCst), 150);
}

/// R5: absurd sizes, alone or added up, neither overflow the count nor block for ever.
#[test]
fn absurd_sizes_are_survived() {
    static RUN: AtomicUsize = AtomicUsize::new(0);
    unsafe fn count(_: NonNull<()>) {
        RUN.fetch_add(1, SeqCst);
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    must_end(|| {
        for bytes in [usize::MAX, usize::MAX / 2 + 1, usize::MAX, 1] {
            // SAFETY: `count` ignores its argument.
            unsafe { defer_raw(NonNull::dangling(), bytes, count) };
        }
        assert!(RUN.load(SeqCst) >= 3, "past the bound, so it waited for each of the first three");
        barrier();
    });
    assert_eq!(RUN.load(SeqCst), 4);
}

/// R5: a section may defer any amount; the thread makes up for it when the section ends.
#[test]
fn a_section_defers_freely_and_pays_at_its_end() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    must_end(|| {
        let tally = Arc::new(Tally::default());
        let guard = read();
        for _ in 0..2 * MAX_DEFERRED {
            let counted = Arc::clone(&tally);
            defer(move || _ = counted.run.fetch_add(1, SeqCst));
            tally.deferred.fetch_add(1, SeqCst);
        }
        assert_eq!(tally.run.load(SeqCst), 0, "run inside the section");
        drop(guard);
        assert!(tally.pending() <= MAX_DEFERRED, "not made up for");
        barrier();
        assert_eq!(tally.pending(), 0);
    });
}

/// R5: a thread that works on behalf of a waiting reader does not wait for readers itself. It
/// reclaims afterwards.
#[test]
fn work_for_a_reader_is_not_held_up() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    must_end(|| {
        let tally = Arc::new(Tally::default());
        let defer_one = |tally: &Arc<Tally>| {
            let counted = Arc::clone(tally);
            defer(move || _ = counted.run.fetch_add(1, SeqCst));
            tally.deferred.fetch_add(1, SeqCst);
        };
        let guard = read();
        let (done, result) = std::sync::mpsc::channel();
        let counted = Arc::clone(&tally);
        let writer = std::thread::spawn(move || {
            without_waiting(|| (0..2 * MAX_DEFERRED).for_each(|_| defer_one(&counted)));
            done.send(counted.pending()).unwrap();
            (0..MAX_DEFERRED).for_each(|_| defer_one(&counted));
            counted.pending()
        });
        assert_eq!(result.recv().unwrap(), 2 * MAX_DEFERRED, "run under the eyes of a reader");
        drop(guard);
        assert!(writer.join().unwrap() <= MAX_DEFERRED, "not made up for");
        barrier();
        assert_eq!(tally.pending(), 0);
    });
}
