//! Threads that come and go, and what their thread-local destructors may do: guarantees R7 and R10
//! of `relativist_rcu::design`. (A test next to the registry checks that slots are reused.)
#![cfg(not(relativist_loom))]

mod support;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;

use relativist_rcu::{GracePeriod, Guard, Published, barrier, defer, is_reading, read, wait_for_readers};
use relativist_testing::wait_until;
use support::must_end;

type AtExit = Box<dyn FnOnce()>;

/// Calls the function when it is dropped.
struct OnDrop(Option<AtExit>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.take().expect("dropped once")();
    }
}

thread_local! {
    static FIRST: RefCell<Option<OnDrop>> = const { RefCell::new(None) };
    static SECOND: RefCell<Option<OnDrop>> = const { RefCell::new(None) };
    static HELD: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

/// Runs `at_exit` in the destructors of thread-local variables that were first used before and
/// after this crate was: so in any order that the platform has, one call comes before this crate's
/// own destructor and one after. The results of the calls are checked on this thread, because a
/// panic in a destructor aborts the process.
fn in_destructors(at_exit: fn() -> Result<(), &'static str>) {
    let (told, results) = mpsc::channel();
    let thread = thread::spawn(move || {
        let again = told.clone();
        FIRST.set(Some(OnDrop(Some(Box::new(move || told.send(at_exit()).unwrap())))));
        drop(read());
        SECOND.set(Some(OnDrop(Some(Box::new(move || again.send(at_exit()).unwrap())))));
    });
    must_end(|| thread.join().unwrap());
    assert_eq!(results.try_iter().collect::<Vec<_>>(), [Ok(()), Ok(())]);
}

fn ensure(condition: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if condition { Ok(()) } else { Err(otherwise) }
}

/// R7: sections, also nested and renewed, work in destructors.
#[test]
fn sections_in_destructors() {
    in_destructors(|| {
        let mut outer = read();
        let inner = read();
        let grace = GracePeriod::start();
        drop(inner);
        ensure(is_reading() && !grace.has_passed(), "the outer section has ended")?;
        outer.renew();
        ensure(is_reading(), "not renewed")?;
        drop(outer);
        ensure(!is_reading(), "the section has not ended")
    });
}

/// R7: waiting works in destructors.
#[test]
fn waiting_in_destructors() {
    in_destructors(|| {
        wait_for_readers();
        barrier();
        Ok(())
    });
}

/// R7, R10: what destructors defer runs.
#[test]
fn deferring_in_destructors() {
    in_destructors(|| {
        let ran = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ran);
        defer(move || flag.store(true, SeqCst));
        let value = Published::new(1);
        value.publish(2);
        barrier();
        ensure(ran.load(SeqCst), "not run by the barrier")
    });
}

/// R7, R10: functions that destructors defer run, even if no thread waits for them. (Many, because
/// a thread that registers for one section also reclaims at its end.)
#[test]
fn destructors_leave_work_behind() {
    static LEFT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    in_destructors(|| {
        for _ in 0..3000 {
            LEFT.fetch_add(1, SeqCst);
            defer(|| _ = LEFT.fetch_sub(1, SeqCst));
        }
        Ok(())
    });
    wait_until("all threads to end", || LEFT.load(SeqCst) == 0);
}

/// R7: a thread may use this crate for the first time in a destructor.
#[test]
fn first_use_in_a_destructor() {
    let thread = thread::spawn(|| {
        FIRST.set(Some(OnDrop(Some(Box::new(|| {
            drop(read());
            wait_for_readers();
        })))));
    });
    must_end(|| thread.join().unwrap());
    must_end(wait_for_readers);
}

/// R7: a guard in a thread-local variable holds its section open until its destructor, even if that
/// is the last, and ends it there.
#[test]
fn a_guard_kept_until_exit() {
    for registered_first in [false, true] {
        let (told, results) = mpsc::channel();
        let thread = thread::spawn(move || {
            if registered_first {
                drop(read());
            }
            HELD.set(None);
            FIRST.set(Some(OnDrop(Some(Box::new(move || {
                // Either the guard was dropped before this, or the section is open.
                let held = HELD.try_with(|held| held.borrow().is_some()).unwrap_or(false);
                let open = !GracePeriod::start().has_passed();
                told.send((held, is_reading(), open || !held)).unwrap();
            })))));
            let guard = read();
            HELD.set(Some(guard));
        });
        must_end(|| thread.join().unwrap());
        let (held, reading, open) = results.recv().unwrap();
        assert_eq!(held, reading, "the guard and its section go together");
        assert!(open, "a grace period passed over the section");
        must_end(wait_for_readers);
    }
}

/// R7: threads that use this crate briefly, many at a time, with all that it offers.
#[test]
fn churn() {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(|| {
                for _ in 0..200 {
                    let brief = thread::spawn(|| {
                        let value = Published::new(String::from("old"));
                        let guard = read();
                        value.publish(String::from("new"));
                        assert_eq!(value.read(&guard), "new");
                        drop(guard);
                        GracePeriod::start().has_passed();
                    });
                    brief.join().unwrap();
                }
            })
        })
        .collect();
    must_end(|| threads.into_iter().for_each(|thread| thread.join().unwrap()));
    must_end(barrier);
}
