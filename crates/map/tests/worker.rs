//! T9: the background resizer outlives whatever panics on it. In a process of its own, because
//! there is one resizer per process.
#![cfg(not(any(relativist_loom, relativist_shuttle)))]

use std::cell::RefCell;
use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use relativist::{Guard, HashMap, read};

/// How many destructors have panicked on the resizer's thread.
static EXPLODED: AtomicUsize = AtomicUsize::new(0);

/// The payload of a panic. Its destructor panics, too.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("the payload's destructor");
    }
}

/// Whether this is the resizer's thread, outside of a panic.
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

/// Polls for at most 20 seconds.
fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > Duration::from_secs(20) {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Drops a map while the resizer waits for a reader, so that the resizer becomes its last owner.
fn drop_during_a_resize<V: Send + Sync + 'static>(value: fn() -> V) {
    let (entered, is_inside) = channel();
    let (leave, may_leave) = channel::<()>();
    let reader = thread::spawn(move || {
        let _guard = read();
        entered.send(()).unwrap();
        let _ = may_leave.recv();
    });
    is_inside.recv().unwrap();
    let map: HashMap<u64, V> = HashMap::new();
    (0..100).for_each(|n| _ = map.pin().insert(n, value()));
    assert!(comes_true(|| map.is_resizing()), "no resize began");
    drop(map);
    drop(leave);
    reader.join().unwrap();
}

/// Fills a map until it has been resized, and looks everything up.
fn assert_resizes() {
    let map: HashMap<u64, u64> = HashMap::new();
    let mut n = 0;
    let grows = comes_true(|| {
        (n..n + 1000).for_each(|n| _ = map.pin().insert(n, n));
        n += 1000;
        map.buckets() > 1000
    });
    assert!(grows, "the resizer is dead: {n} entries in {} buckets", map.buckets());
    (0..n).for_each(|n| assert_eq!(map.pin().get(&n), Some(&n)));
}

/// One test, because there is one resizer.
#[test]
fn outlives_what_destructors_do_to_it() {
    drop_during_a_resize(|| PanicsThere);
    assert!(comes_true(|| EXPLODED.load(SeqCst) > 0), "the values were not dropped by the resizer");
    assert_resizes();
    // Whatever it does for other tables meanwhile, it must not wait for itself in the middle of a
    // resize.
    drop_during_a_resize(|| StaysThere);
    assert!(comes_true(|| STAYING.load(SeqCst) > 0), "the values were not dropped by the resizer");
    assert_resizes();
}
