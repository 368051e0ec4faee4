//! What a leaked guard leaves behind: guarantee R7 of `relativist_rcu::design`. This test has a
//! process of its own, because no grace period ends there afterwards.
#![cfg(not(relativist_loom))]

use relativist_testing as _;

mod support;

use std::hint::black_box;
use std::ptr::{from_mut, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread;

use relativist_rcu::{GracePeriod, Guard, Published, is_reading, read, wait_for_readers};
use support::must_end;

static VALUE: OnceLock<Published<Arc<()>>> = OnceLock::new();
/// Shows LeakSanitizer that this one leaks on purpose.
static LEAKED: AtomicPtr<Guard> = AtomicPtr::new(null_mut());

fn leak_guard() -> &'static Guard {
    let guard = Box::leak(Box::new(read()));
    // The compiler does not leave this store out.
    black_box(&LEAKED).store(from_mut(guard), Relaxed);
    guard
}

/// R7: the section of a leaked guard outlives its thread, as do the references that it protects.
/// Other threads continue to enter and leave sections.
#[test]
fn a_leaked_guard_keeps_its_section_open() {
    must_end(wait_for_readers);
    let alive = Arc::new(());
    let value = VALUE.get_or_init(|| Published::new(Arc::clone(&alive)));
    let thread = thread::spawn(|| value.read(leak_guard()));
    let leaked: &'static Arc<()> = must_end(|| thread.join().unwrap());
    value.publish(Arc::new(()));

    let grace = GracePeriod::start();
    for _ in 0..100 {
        // New threads take slots, but not that one, and their sections end.
        let other = thread::spawn(move || {
            assert!(!is_reading());
            drop(read());
            assert!(!is_reading());
            grace.has_passed()
        });
        assert!(!must_end(|| other.join().unwrap()), "a grace period passed over the leaked section");
    }
    assert_eq!(Arc::strong_count(leaked), 2, "reclaimed under a reference");
    assert!(Arc::ptr_eq(leaked, &alive));
}
