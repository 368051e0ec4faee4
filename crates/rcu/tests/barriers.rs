//! A barrier waits for what was deferred before it, and for nothing else: guarantees R10 and D3 of
//! `relativist_rcu::design`.
#![cfg(not(relativist_loom))]

mod support;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread::{self, ThreadId};
use std::time::Instant;

use relativist_rcu::{Domain, barrier, defer};
use relativist_testing::patience;
use support::must_end;

type Function = Box<dyn FnOnce() + Send>;

/// How a domain defers functions, and waits for them.
#[derive(Clone)]
struct Deferring {
    defer: Arc<dyn Fn(Function) + Send + Sync>,
    barrier: Arc<dyn Fn() + Send + Sync>,
}

/// A thread that calls the functions that are sent to it. It ends when the sender is dropped.
struct Owner(mpsc::Sender<Function>);

impl Owner {
    fn start() -> Self {
        let (send, calls) = mpsc::channel::<Function>();
        thread::spawn(move || calls.into_iter().for_each(|call| call()));
        Self(send)
    }

    /// Returns when the thread has called the function.
    fn call(&self, function: impl FnOnce() + Send + 'static) {
        let (done, is_done) = mpsc::channel();
        let call = move || {
            function();
            done.send(()).unwrap();
        };
        self.0.send(Box::new(call)).unwrap();
        is_done.recv_timeout(patience()).expect("the thread hangs");
    }
}

/// Calls a barrier, and makes `busy` defer and run a function meanwhile that goes on until the
/// barrier has returned. The barrier itself causes this, by a function that it runs from the queue
/// of `other`: so it has begun by then. Returns false if another thread has run that function.
///
/// If the barrier looks at the queue of `busy` after this, that queue is locked, and stays so.
fn call_barrier(domain: &Deferring, other: &Owner, busy: &Owner) -> bool {
    let caller: ThreadId = thread::current().id();
    let (before, started) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (begun, has_begun) = mpsc::channel();
    let (returned, has_returned) = mpsc::channel::<()>();

    let (domain_of_busy, ran) = (domain.clone(), Arc::clone(&before));
    busy.call(move || (domain_of_busy.defer)(Box::new(move || ran.store(true, SeqCst))));

    let run_until_the_barrier_returns = {
        let (domain, started) = (domain.clone(), Arc::clone(&started));
        move || {
            let running = Arc::clone(&started);
            (domain.defer)(Box::new(move || {
                running.store(true, SeqCst);
                begun.send(()).unwrap();
                has_returned
                    .recv_timeout(patience())
                    .expect("the barrier waits for a function that was deferred later");
            }));
            // When enough is deferred, this thread runs the first of these functions.
            let start = Instant::now();
            while !started.load(SeqCst) && start.elapsed() < patience() {
                (domain.defer)(Box::new(|| ()));
            }
        }
    };
    let (send, domain_of_other, begins) = (busy.0.clone(), domain.clone(), Arc::clone(&started));
    other.call(move || {
        (domain_of_other.defer)(Box::new(move || {
            if thread::current().id() == caller {
                send.send(Box::new(run_until_the_barrier_returns)).unwrap();
                has_begun.recv_timeout(patience()).expect("no thread runs the function");
                assert!(begins.load(SeqCst));
            }
        }));
    });

    (domain.barrier)();
    assert!(before.load(SeqCst), "the barrier did not wait for a function that was deferred before");
    // An error means that another thread has run the function of `other`, or that the test fails.
    let _ = returned.send(());
    started.load(SeqCst)
}

fn waits_for_nothing_else(domain: &Deferring) {
    let owners = [Owner::start(), Owner::start()];
    // The barrier looks at one queue after the other, in an order that the test does not know.
    for [other, busy] in [[0, 1], [1, 0]] {
        let attempt = || {
            let caused = call_barrier(domain, &owners[other], &owners[busy]);
            owners[busy].call(|| ());
            caused
        };
        assert!((0..100).any(|_| attempt()), "the background thread was faster each time");
    }
}

/// R10: a barrier returns although another thread holds the lock of its queue, to run functions
/// that were deferred later.
#[test]
fn a_barrier_waits_for_nothing_else() {
    must_end(|| {
        let defer: fn(Function) = |function| defer(function);
        waits_for_nothing_else(&Deferring { defer: Arc::new(defer), barrier: Arc::new(barrier) });
    });
}

/// D3: the same in a private domain.
#[test]
fn a_barrier_of_a_domain_waits_for_nothing_else() {
    must_end(|| {
        let domain = Arc::new(Domain::new());
        let deferring = Arc::clone(&domain);
        let defer = move |function: Function| deferring.defer(function);
        waits_for_nothing_else(&Deferring { defer: Arc::new(defer), barrier: Arc::new(move || domain.barrier()) });
    });
}
