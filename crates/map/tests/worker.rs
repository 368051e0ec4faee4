//! T9: the background resizer outlives whatever panics on it. In a process of its own, because there is one resizer per process.
#![cfg(not(any(relativist_loom, relativist_shuttle)))]

use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use relativist::{HashMap, read};

/// How many destructors have panicked on the resizer's thread.
static EXPLODED: AtomicUsize = AtomicUsize::new(0);

/// The payload of a panic. Its destructor panics, too.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("the payload's destructor");
    }
}

struct Value;

impl Drop for Value {
    fn drop(&mut self) {
        if thread::current().name() == Some("relativist-resize") && !thread::panicking() {
            EXPLODED.fetch_add(1, SeqCst);
            panic_any(Payload);
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
fn drop_during_a_resize() {
    let (entered, is_inside) = channel();
    let (leave, may_leave) = channel::<()>();
    let reader = thread::spawn(move || {
        let _guard = read();
        entered.send(()).unwrap();
        let _ = may_leave.recv();
    });
    is_inside.recv().unwrap();
    let map: HashMap<u64, Value> = HashMap::new();
    (0..100).for_each(|n| _ = map.pin().insert(n, Value));
    assert!(comes_true(|| map.is_resizing()), "no resize began");
    drop(map);
    drop(leave);
    reader.join().unwrap();
}

#[test]
fn outlives_a_payload_whose_destructor_panics() {
    drop_during_a_resize();
    assert!(comes_true(|| EXPLODED.load(SeqCst) > 0), "the values were not dropped by the resizer");
    let other: HashMap<u64, u64> = HashMap::new();
    let mut n = 0;
    let grows = comes_true(|| {
        (n..n + 1000).for_each(|n| _ = other.pin().insert(n, n));
        n += 1000;
        other.buckets() > 2
    });
    assert!(grows, "the resizer is dead: {n} entries in 2 buckets");
}
