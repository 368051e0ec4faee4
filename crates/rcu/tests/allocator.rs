//! R11: a global allocator that uses RCU itself. A test program of its own, because it replaces the
//! allocator.
#![cfg(not(relativist_loom))]

use relativist_testing as _;

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;

use relativist_rcu::{barrier, defer, defer_raw, read};
use support::must_end;

static ENABLED: AtomicBool = AtomicBool::new(false);
/// The number of functions that the allocator has deferred, and of those that have run.
static DEFERRED: AtomicUsize = AtomicUsize::new(0);
static RUN: AtomicUsize = AtomicUsize::new(0);

thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });

struct Deferring;

/// Defers a function whenever RCU itself allocates or frees a thread's slot or a chunk of a queue,
/// but not if this function caused that.
fn defer_something(layout: Layout) {
    let is_rcu = layout.align() >= 128 || layout.size() > 4096;
    if is_rcu && ENABLED.load(SeqCst) && !INSIDE.replace(true) {
        DEFERRED.fetch_add(1, SeqCst);
        // SAFETY: a function that ignores its argument may be called at any time, on any thread.
        unsafe { defer_raw(NonNull::dangling(), 0, |_| _ = RUN.fetch_add(1, SeqCst)) };
        INSIDE.set(false);
    }
}

// SAFETY: forwards to the system's allocator.
unsafe impl GlobalAlloc for Deferring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        defer_something(layout);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        defer_something(layout);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Deferring = Deferring;

/// How many deferred functions of `defer_on_many_threads` have run.
static OURS: AtomicUsize = AtomicUsize::new(0);

const THREADS: usize = 16;
const ROUNDS: usize = 5;
const EACH: usize = 3000;

/// Defers functions on many threads, one after the other. Returns the indices of the threads.
fn defer_on_many_threads() -> BTreeSet<usize> {
    let mut indices = BTreeSet::new();
    for _ in 0..ROUNDS {
        let all_here = Arc::new(Barrier::new(THREADS));
        let threads = [(); THREADS].map(|()| {
            let all_here = Arc::clone(&all_here);
            let (registered, index) = channel();
            let thread = thread::spawn(move || {
                registered.send(read().thread_index()).unwrap();
                all_here.wait();
                (0..EACH).for_each(|_| defer(|| _ = OURS.fetch_add(1, SeqCst)));
            });
            // Threads register one after the other, so that slots are not claimed at the same time.
            indices.insert(index.recv().unwrap());
            thread
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
    indices
}

/// R11: each deferred function runs once, and each thread has one slot.
#[test]
fn an_allocator_may_defer() {
    ENABLED.store(true, SeqCst);
    let indices = must_end(defer_on_many_threads);
    ENABLED.store(false, SeqCst);
    must_end(barrier);
    assert_eq!(OURS.load(SeqCst), THREADS * ROUNDS * EACH);
    assert!(DEFERRED.load(SeqCst) > THREADS * ROUNDS, "the allocator was not used");
    assert_eq!(RUN.load(SeqCst), DEFERRED.load(SeqCst));
    // Some more for the test's own threads and for workers.
    assert!(indices.iter().all(|&index| index < THREADS + 8), "some threads have two slots: {indices:?}");
}
