//! T9: the background resizer survives panics on its thread. In a process of its own, because there
//! is one resizer per process.
#![cfg(not(relativist_loom))]

use std::cell::RefCell;
use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use relativist::{Guard, HashMap, read};
use relativist_testing::wait_until;

/// How many destructors have panicked on the resizer's thread.
static EXPLODED: AtomicUsize = AtomicUsize::new(0);

/// The payload of a panic. Its destructor panics, too.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("the payload's destructor");
    }
}

/// Returns whether this is the resizer's thread, outside of a panic.
fn is_resizer() -> bool {
    thread::current().name() == Some("relativist-resize") && !thread::panicking()
}

struct PanicsThere;

impl Drop for PanicsThere {
    fn drop(&mut self) {
        if is_resizer() {
            EXPLODED.fetch_add(1, SeqCst);
            panic_any(Payload);
        }
    }
}

/// How many destructors have left a section open on the resizer's thread.
static STAYING: AtomicUsize = AtomicUsize::new(0);

thread_local!(static GUARD: RefCell<Option<Guard>> = const { RefCell::new(None) });

struct StaysThere;

impl Drop for StaysThere {
    fn drop(&mut self) {
        if is_resizer() {
            GUARD.set(Some(read()));
            STAYING.fetch_add(1, SeqCst);
        }
    }
}

/// Drops maps while they shrink, until the resizer was the last owner of one and `happened`. The
/// maps have enough buckets that the test notices a resize before its end.
fn drop_during_a_resize<V: Send + Sync + 'static>(value: fn() -> V, happened: impl Fn() -> bool) {
    wait_until("the resizer to drop the values", || {
        let map: HashMap<u64, V> = HashMap::new();
        map.reserve(1 << 16);
        (0..5000).for_each(|n| _ = map.pin().insert(n, value()));
        (100..5000).for_each(|n| _ = map.pin().remove(&n));
        // The resize may be over already.
        let buckets = map.buckets();
        wait_until("a resize", || map.is_resizing() || map.buckets() < buckets);
        drop(map);
        // The resizer drops the values soon, or not at all.
        (0..1000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            happened()
        })
    });
}

/// Fills a map until it has been resized, and looks everything up.
fn assert_resizes() {
    let map: HashMap<u64, u64> = HashMap::new();
    let mut n = 0;
    wait_until("the resizer to grow the map", || {
        (n..n + 1000).for_each(|n| _ = map.pin().insert(n, n));
        n += 1000;
        map.buckets() > 1000
    });
    // The resize ends. A section left open on the resizer's thread would delay it for ever.
    wait_until("chains to be cut", || !map.is_resizing());
    (0..n).for_each(|n| assert_eq!(map.pin().get(&n), Some(&n)));
}

/// One test, because there is one resizer.
#[test]
fn survives_destructors_that_panic_or_stay_in_a_section() {
    drop_during_a_resize(|| PanicsThere, || EXPLODED.load(SeqCst) > 0);
    assert_resizes();
    drop_during_a_resize(|| StaysThere, || STAYING.load(SeqCst) > 0);
    assert_resizes();
}
