//! T4, T9: no lock of the map is held while destructors run, so they may use the map, and even resize it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use relativist::{HashMap, Resizing};

type Map = HashMap<u64, User>;

/// A value that uses its map when it is dropped.
struct User {
    map: Weak<Map>,
}

static DROPPED: AtomicU64 = AtomicU64::new(0);

impl Drop for User {
    fn drop(&mut self) {
        if let Some(map) = self.map.upgrade() {
            assert!(map.pin().remove(&2).is_none());
            map.resize_to(2).unwrap();
            DROPPED.fetch_add(1, Relaxed);
        }
    }
}

/// Retires one value and two arrays at a time, many more than a thread lets pile up: sooner or later values are reclaimed when an
/// array is retired.
fn replace_and_resize(map: &Arc<Map>) {
    for _ in 0..3000 {
        map.pin().insert(1, User { map: Arc::downgrade(map) });
        for buckets in [4, 8, 2] {
            map.resize_to(buckets).unwrap();
        }
    }
}

#[test]
fn destructors_may_resize_the_map() {
    let (done, result) = channel();
    thread::spawn(move || {
        let map = Arc::new(HashMap::<u64, User>::builder().resizing(Resizing::Manual).build().unwrap());
        replace_and_resize(&map);
        relativist_rcu::barrier();
        done.send(DROPPED.load(Relaxed)).unwrap();
    });
    let dropped = result.recv_timeout(Duration::from_secs(60)).expect("no lock is held while destructors run");
    assert_eq!(dropped, 2999);
}
