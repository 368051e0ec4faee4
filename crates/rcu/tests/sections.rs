//! Read sections and grace periods, seen from outside: guarantees R2, R3, R4, R6 and R9 of
//! `relativist_rcu::design`.
#![cfg(not(relativist_loom))]

mod support;

use std::panic::catch_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};

use relativist_rcu::{
    Barrier, BarrierError, GracePeriod, active_barrier, barrier, grace_periods, is_reading, read, set_barrier,
    wait_for_readers,
};
use support::{Reader, must_end};

/// These tests hold up the grace periods of the process, so only one runs at a time. (Tests that
/// count grace periods run in processes of their own.)
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn message_of(panic: Box<dyn std::any::Any + Send>) -> String {
    panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).expect("a panic with a constant message")
}

/// R2: neither a stalled reader nor a waiting writer blocks other readers.
#[test]
fn readers_pass_while_a_writer_waits() {
    let _alone = alone();
    let stalled = Reader::enter();
    let grace = GracePeriod::start();
    assert!(!grace.has_passed());
    let writer = std::thread::spawn(move || grace.wait());
    must_end(|| (0..10_000).for_each(|_| drop((read(), read()))));
    assert!(!writer.is_finished(), "the stalled reader was not waited for");
    stalled.leave();
    must_end(|| writer.join().unwrap());
}

/// R3: a grace period that has begun ends without waiting for later readers.
#[test]
fn later_sections_are_not_waited_for() {
    relativist_testing::alone(|| {
        let before = Reader::enter();
        let grace = GracePeriod::start();
        assert!(!grace.has_passed(), "a section from before is open");
        let after = Reader::enter();
        before.leave();
        must_end(move || grace.wait());
        after.leave();
    });
}

/// R3: nesting prolongs the section. It ends with its last guard, in whatever order the guards are
/// dropped.
#[test]
fn the_last_guard_ends_the_section() {
    let _alone = alone();
    let (first, second, third) = (read(), read(), read());
    let grace = GracePeriod::start();
    for guard in [first, third, second] {
        assert!(is_reading());
        assert!(!grace.has_passed(), "a guard is left");
        drop(guard);
    }
    assert!(!is_reading());
    must_end(move || grace.wait());
}

/// R3: a renewed guard is a new section, unless another guard holds the old one open.
#[test]
fn renewing_begins_a_new_section() {
    let _alone = alone();
    let mut guard = read();
    let grace = GracePeriod::start();
    let nested = read();
    guard.renew();
    assert!(!grace.has_passed(), "the nested guard holds the section open");
    drop(nested);
    guard.renew();
    must_end(move || while !grace.has_passed() {});
    assert!(is_reading());
}

/// R4: all threads that begin to wait while a grace period runs share the next.
#[test]
fn waiters_share_a_grace_period() {
    relativist_testing::alone(|| {
        let stalled = Reader::enter();
        let before = grace_periods();
        let running = GracePeriod::start();
        assert!(!running.has_passed());
        let waiters: Vec<_> =
            (0..8).map(|_| GracePeriod::start()).map(|grace| std::thread::spawn(move || grace.wait())).collect();
        stalled.leave();
        must_end(|| waiters.into_iter().for_each(|waiter| waiter.join().unwrap()));
        assert!(running.has_passed());
        assert_eq!(grace_periods() - before, 2, "one was running, one answers all eight");
    });
}

/// R6: a call that would wait for itself panics and says why.
#[test]
fn waiting_inside_a_section_panics() {
    let _alone = alone();
    must_end(|| {
        let guard = read();
        let wait = catch_unwind(wait_for_readers).expect_err("waited inside a section");
        assert!(message_of(wait).contains("inside a read section"));
        let wait = catch_unwind(barrier).expect_err("waited inside a section");
        assert!(message_of(wait).contains("inside a read section"));
        drop(guard);
        wait_for_readers();
        barrier();
    });
}

/// R6: only waiting panics. Polling does not, nor does waiting for a grace period that has passed.
#[test]
fn asking_inside_a_section_is_fine() {
    let _alone = alone();
    must_end(|| {
        let passed = GracePeriod::start();
        passed.wait();
        let _guard = read();
        passed.wait();
        assert!(passed.has_passed());
        assert!(!GracePeriod::start().has_passed());
    });
}

/// R9: a section ends with the panic that unwinds it.
#[test]
fn a_panic_ends_the_section() {
    let _alone = alone();
    must_end(|| {
        catch_unwind(|| {
            let _guards = (read(), read());
            panic!("on purpose");
        })
        .expect_err("it panics");
        assert!(!is_reading());
        wait_for_readers();
    });
}

/// A barrier is chosen once.
#[test]
fn the_barrier_cannot_change() {
    let _alone = alone();
    let active = active_barrier();
    assert_eq!(set_barrier(active), Ok(()));
    let refused = match active {
        Barrier::Membarrier => set_barrier(Barrier::Fence),
        Barrier::Fence => Err(BarrierError::InUse(active)),
    };
    assert_eq!(refused, Err(BarrierError::InUse(active)));
    assert!(refused.unwrap_err().to_string().contains("before its first use"));
}
