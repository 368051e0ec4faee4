//! The backlog behind a stalled reader: guarantee R5 of `relativist_rcu::design`.
#![cfg(not(relativist_loom))]

mod support;

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use relativist_rcu::{Domain, MAX_DEFERRED, MAX_DEFERRED_BYTES, barrier, defer, defer_raw, read, without_waiting};
use relativist_testing::wait_until;
use support::{Reader, must_end};

/// The maximum number of functions that an operation runs on the side.
const SLICE: usize = 4096;

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
    /// Defers a function that counts.
    fn defer(self: &Arc<Self>) {
        let tally = Arc::clone(self);
        defer(move || _ = tally.run.fetch_add(1, SeqCst));
        self.deferred.fetch_add(1, SeqCst);
    }

    /// Defers, in a private domain, a function that defers one that counts.
    fn defer_in(self: &Arc<Self>, domain: &Domain) {
        let tally = Arc::clone(self);
        domain.defer(move || tally.defer());
    }

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
            retiring.defer();
            assert!(retiring.pending() <= MAX_DEFERRED, "more than the bound is pending");
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
        (0..2 * MAX_DEFERRED).for_each(|_| tally.defer());
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
        let guard = read();
        let (done, result) = std::sync::mpsc::channel();
        let counted = Arc::clone(&tally);
        let writer = std::thread::spawn(move || {
            without_waiting(|| (0..2 * MAX_DEFERRED).for_each(|_| counted.defer()));
            done.send(counted.pending()).unwrap();
            (0..MAX_DEFERRED).for_each(|_| counted.defer());
            counted.pending()
        });
        assert_eq!(result.recv().unwrap(), 2 * MAX_DEFERRED, "run under the eyes of a reader");
        drop(guard);
        assert!(writer.join().unwrap() <= MAX_DEFERRED, "not made up for");
        barrier();
        assert_eq!(tally.pending(), 0);
    });
}

/// R5: a thread that leaves a section with a large backlog runs a slice of it.
#[test]
fn a_backlog_is_run_in_slices() {
    thread_local!(static RUN_HERE: Cell<usize> = const { Cell::new(0) });
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    must_end(|| {
        let defer_some = |count| (0..count).for_each(|_| defer(|| RUN_HERE.set(RUN_HERE.get() + 1)));
        let guard = read();
        defer_some(MAX_DEFERRED / 2);
        for _ in 0..10 {
            let before = RUN_HERE.get();
            drop(read());
            defer_some(1);
            assert_eq!(RUN_HERE.get(), before, "run inside the section");
        }
        drop(guard);
        assert!(RUN_HERE.get() <= SLICE, "{} at once", RUN_HERE.get());
        for _ in 0..100 * SLICE {
            let before = RUN_HERE.get();
            defer_some(1);
            assert!(RUN_HERE.get() <= before + SLICE, "{} at once", RUN_HERE.get() - before);
        }
        barrier();
    });
}

/// R5, D4: a thread whose backlog is full waits for no reader when it defers in a private domain,
/// and runs none of the functions there, which would add to the backlog. They wait in the domain,
/// where `pending` counts them.
#[test]
fn functions_of_a_private_domain_keep_the_bound() {
    const DEFERRED: usize = 3 * MAX_DEFERRED;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (domain, tally) = (Arc::new(Domain::new()), Arc::new(Tally::default()));
    let stalled = Reader::enter();
    must_end({
        let (domain, tally) = (Arc::clone(&domain), Arc::clone(&tally));
        move || {
            for _ in 0..DEFERRED {
                tally.defer_in(&domain);
                assert!(tally.pending() <= MAX_DEFERRED, "more than the bound is pending");
            }
            for _ in 0..10 {
                let left = domain.reclaim();
                assert_eq!(left, domain.pending());
                assert_eq!(left as usize + tally.pending(), DEFERRED, "some wait where no one sees them");
                assert!(tally.pending() <= MAX_DEFERRED, "more than the bound is pending");
            }
            assert!(tally.pending() > MAX_DEFERRED - 2048, "the bound was not reached");
        }
    });
    assert_eq!(tally.run.load(SeqCst), 0, "run under the eyes of a reader");
    stalled.leave();
    must_end({
        let domain = Arc::clone(&domain);
        move || domain.barrier()
    });
    must_end(barrier);
    assert_eq!((domain.pending(), tally.run.load(SeqCst)), (0, DEFERRED));
}

/// R5: a barrier of a private domain, which runs functions until none is left, waits when the
/// backlog of its thread is full.
#[test]
fn a_barrier_of_a_private_domain_keeps_the_bound() {
    const DEFERRED: usize = 2 * MAX_DEFERRED;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (domain, tally) = (Arc::new(Domain::new()), Arc::new(Tally::default()));
    let guard = domain.read();
    (0..DEFERRED).for_each(|_| tally.defer_in(&domain));
    assert_eq!(domain.pending(), DEFERRED as u64);
    let stalled = Reader::enter();
    drop(guard);
    let waiting = std::thread::spawn({
        let domain = Arc::clone(&domain);
        move || domain.barrier()
    });
    wait_until("a full backlog", || tally.pending() >= MAX_DEFERRED - 2048 || waiting.is_finished());
    let_it_overstep();
    assert!(tally.pending() <= MAX_DEFERRED, "{} are pending", tally.pending());
    stalled.leave();
    must_end(|| waiting.join().unwrap());
    must_end(barrier);
    assert_eq!((domain.pending(), tally.run.load(SeqCst)), (0, DEFERRED));
}

/// R5, R6: a thread that is in a section of the process would wait for itself. It runs the
/// functions of a private domain, and pays at the end of the section.
#[test]
fn functions_of_a_private_domain_run_in_the_own_section() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    must_end(|| {
        let (domain, tally) = (Domain::new(), Arc::new(Tally::default()));
        let guard = read();
        (0..2 * MAX_DEFERRED).for_each(|_| tally.defer_in(&domain));
        while domain.reclaim() > 0 {}
        tally.defer_in(&domain);
        domain.barrier();
        assert_eq!(tally.pending(), 2 * MAX_DEFERRED + 1, "run inside the section");
        drop(guard);
        assert!(tally.pending() <= MAX_DEFERRED, "not made up for");
        barrier();
        assert_eq!(tally.pending(), 0);
    });
}
