//! R6: if a deferred function leaves a read section open on the thread that runs it, this thread
//! does not wait for itself. In a process of its own, because it delays grace periods.
#![cfg(not(relativist_loom))]

use relativist_testing as _;

mod support;

use std::cell::RefCell;
use std::panic::catch_unwind;
use std::sync::mpsc::channel;
use std::thread::{self, ThreadId};

use relativist_rcu::{Guard, MAX_DEFERRED, barrier, defer, is_reading, read, wait_for_readers};
use support::must_end;

thread_local!(static GUARD: RefCell<Option<Guard>> = const { RefCell::new(None) });

/// Leaves a section open if this runs on the given thread, and not in the background.
fn stay_on(thread: ThreadId) {
    if thread::current().id() == thread {
        GUARD.set(Some(read()));
    }
}

/// Tries until the function has run on the calling thread.
fn until_it_stays(mut attempt: impl FnMut()) {
    for _ in 0..100 {
        attempt();
        if is_reading() {
            drop(GUARD.take());
            return assert!(!is_reading());
        }
    }
    panic!("the background thread was faster each time");
}

fn leave_with_too_much_pending() {
    let this = thread::current().id();
    until_it_stays(|| {
        let guard = read();
        defer(move || {
            stay_on(this);
            (0..=MAX_DEFERRED).for_each(|_| defer(|| ()));
        });
        // Enough that the thread runs deferred functions itself.
        (0..2000).for_each(|_| defer(|| ()));
        drop(guard);
    });
}

fn wait_for_all_deferred() {
    let this = thread::current().id();
    let mut panicked = false;
    for _ in 0..100 {
        // In the queues of two threads: after the function of one has run, the grace period of the
        // other cannot pass any more.
        let others = [(); 2].map(|()| {
            let (deferred, is_deferred) = channel();
            let (leave, may_leave) = channel::<()>();
            let thread = thread::spawn(move || {
                defer(move || stay_on(this));
                deferred.send(()).unwrap();
                let _ = may_leave.recv();
            });
            is_deferred.recv().unwrap();
            (leave, thread)
        });
        panicked |= catch_unwind(barrier).is_err();
        drop(GUARD.take());
        for (leave, thread) in others {
            drop(leave);
            thread.join().unwrap();
        }
        if panicked {
            return;
        }
    }
    panic!("the background thread was faster each time");
}

fn leave_one_open_in_the_background() {
    let (stayed, has_stayed) = channel();
    // The thread exits, so the background thread runs the function.
    let stay = move || {
        let in_background = thread::current().name() == Some("rcu-reclaim");
        GUARD.set(in_background.then(read));
        stayed.send(in_background).unwrap();
    };
    thread::spawn(move || defer(stay)).join().unwrap();
    assert!(has_stayed.recv().unwrap(), "no other thread looks at the queue of one that has exited");
    wait_for_readers();
}

#[test]
fn no_thread_waits_for_itself() {
    must_end(leave_one_open_in_the_background);
    must_end(leave_with_too_much_pending);
    must_end(wait_for_all_deferred);
    must_end(barrier);
}
