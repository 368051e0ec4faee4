//! Children of `fork`: guarantee R8 of `relativist_rcu::design`.
#![cfg(all(unix, not(relativist_loom)))]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use relativist_rcu::{GracePeriod, Published, barrier, defer, is_reading, read, wait_for_readers};
use relativist_testing::{patience, wait_until};
use support::{Reader, must_end};

/// Only one test runs at a time: a child sees the state that all threads of the process left
/// behind.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the child, successfully or not. Runs no destructors, because most threads that they belong
/// to do not exist in the child.
fn leave(success: bool) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(if success { 0 } else { 1 }) }
}

/// Returns `None` in the child, which a signal kills when the tests' patience is over.
fn fork() -> Option<libc::pid_t> {
    let seconds = patience().as_secs().try_into().expect("few enough seconds");
    // SAFETY: the child uses this crate, the allocator (which libc keeps usable) and system calls.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: `alarm` has no preconditions.
            unsafe { libc::alarm(seconds) };
            None
        }
        child => Some(child),
    }
}

/// Waits until the child succeeds; panics if it fails or hangs.
#[track_caller]
fn must_succeed(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: `status` is ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(!libc::WIFSIGNALED(status), "the child hung, or was killed by a signal");
    assert_eq!(libc::WEXITSTATUS(status), 0, "the child failed");
}

#[track_caller]
fn in_child(body: impl FnOnce() -> bool) {
    match fork() {
        Some(child) => must_succeed(child),
        None => leave(catch_unwind(AssertUnwindSafe(body)).unwrap_or(false)),
    }
}

/// Uses everything that the crate offers outside of sections.
fn everything_works() -> bool {
    let guard = read();
    let grace = GracePeriod::start();
    let waits = !grace.has_passed();
    drop(guard);
    grace.wait();
    wait_for_readers();
    let value = Published::new(1);
    value.publish(2);
    let ran = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ran);
    defer(move || flag.store(true, SeqCst));
    barrier();
    let elsewhere = thread::spawn(|| drop(read()));
    waits && ran.load(SeqCst) && elsewhere.join().is_ok() && !is_reading()
}

/// R8: the sections of threads that the child does not have are over, and functions that waited for
/// them run.
#[test]
fn other_threads_sections_are_over() {
    let _alone = alone();
    let readers = [(); 3].map(|()| Reader::enter());
    static RUN: AtomicUsize = AtomicUsize::new(0);
    thread::spawn(|| (0..1000).for_each(|_| defer(|| _ = RUN.fetch_add(1, SeqCst)))).join().unwrap();
    in_child(|| {
        wait_for_readers();
        barrier();
        RUN.load(SeqCst) == 1000 && everything_works()
    });
    assert_eq!(RUN.load(SeqCst), 0, "run under the eyes of a reader");
    readers.into_iter().for_each(Reader::leave);
    must_end(barrier);
}

/// R8: the section of the thread that forks goes on.
#[test]
fn the_own_section_goes_on() {
    let _alone = alone();
    let outer = read();
    let inner = read();
    let grace = GracePeriod::start();
    in_child(move || {
        drop(inner);
        let goes_on = is_reading() && !grace.has_passed() && catch_unwind(wait_for_readers).is_err();
        drop(outer);
        grace.wait();
        goes_on && everything_works()
    });
}

/// R8: the child has no worker, and starts one when it defers.
#[test]
fn a_new_worker_starts() {
    let _alone = alone();
    // The parent has one, which is busy.
    let reader = Reader::enter();
    defer(|| ());
    in_child(|| {
        let ran = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ran);
        thread::spawn(move || defer(move || flag.store(true, SeqCst))).join().unwrap();
        wait_until("the deferred function", || ran.load(SeqCst));
        everything_works()
    });
    reader.leave();
    must_end(barrier);
}

/// R8: a queue that another thread was draining is free. The function that was running is lost,
/// those after it aren't.
#[test]
fn a_drain_was_cut_off() {
    let _alone = alone();
    static AFTER: AtomicBool = AtomicBool::new(false);
    let (begun, running) = mpsc::channel();
    let (finish, may_finish) = mpsc::channel::<()>();
    defer(move || {
        begun.send(()).unwrap();
        let _ = may_finish.recv();
    });
    defer(|| AFTER.store(true, SeqCst));
    let draining = thread::spawn(barrier);
    running.recv().unwrap();
    in_child(|| {
        barrier();
        AFTER.load(SeqCst) && everything_works()
    });
    drop(finish);
    must_end(|| draining.join().unwrap());
}

/// R8: a deferred function that forks returns in both processes, and the drain goes on in both.
#[test]
fn a_deferred_function_forks() {
    let _alone = alone();
    // The worker may be the first to run it. Then it does not fork, and the test tries again.
    let forked = (0..100).find_map(|_| {
        let (tell, told) = mpsc::channel();
        let this = thread::current().id();
        thread::spawn(move || {
            defer(move || _ = tell.send((thread::current().id() == this).then(fork)));
            (0..1000).for_each(|_| defer(|| ()));
        })
        .join()
        .unwrap();
        barrier();
        told.recv().unwrap()
    });
    match forked.expect("the worker was faster each time") {
        Some(child) => must_succeed(child),
        None => leave(catch_unwind(everything_works).unwrap_or(false)),
    }
    must_end(barrier);
}

/// Enters and leaves a section in a thread of its own, without the standard library: that has a
/// lock which its threads take when they begin and end, and a child that is forked meanwhile never
/// gets it.
fn in_plain_thread() {
    extern "C" fn enter(_: *mut libc::c_void) -> *mut libc::c_void {
        drop(read());
        std::ptr::null_mut()
    }
    // SAFETY: any bits are a valid number.
    let mut thread: libc::pthread_t = unsafe { std::mem::zeroed() };
    // SAFETY: the function needs no argument, and does not unwind.
    let started = unsafe { libc::pthread_create(&mut thread, std::ptr::null(), enter, std::ptr::null_mut()) };
    assert_eq!(started, 0);
    // SAFETY: started, and not joined yet.
    assert_eq!(unsafe { libc::pthread_join(thread, std::ptr::null_mut()) }, 0);
}

/// R8: forks at arbitrary instants while other threads use RCU.
#[test]
fn forks_into_the_turmoil() {
    let _alone = alone();
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..3)
        .map(|kind| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let value = Published::new(String::new());
                while !stop.load(SeqCst) {
                    match kind {
                        0 => wait_for_readers(),
                        1 => (0..600).for_each(|number| value.publish(format!("version {number}"))),
                        _ => drop((read(), in_plain_thread())),
                    }
                }
            })
        })
        .collect();
    for _ in 0..40 {
        in_child(everything_works);
    }
    stop.store(true, SeqCst);
    must_end(|| busy.into_iter().for_each(|thread| thread.join().unwrap()));
    must_end(barrier);
}
