//! What empty maps take: memory, and no threads. A program of its own with one test, because it
//! replaces the global allocator and counts the threads of the process.
#![cfg(not(relativist_loom))]

use relativist_testing as _;

use std::sync::atomic::Ordering::Relaxed;

use relativist::{HashMap, HashSet};

use counting::ALLOCATED;

#[path = "support/counting.rs"]
mod counting;

/// The limit for a map with all that it has allocated.
const MAX_BYTES: usize = 512;

/// Returns what `make` returns, and the bytes that it has allocated and not freed.
fn bytes<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.load(Relaxed);
    let made = make();
    (made, ALLOCATED.load(Relaxed) - before)
}

#[cfg(target_os = "linux")]
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux has it").count()
}

#[cfg(not(target_os = "linux"))]
fn threads() -> usize {
    0
}

/// Uses a map as a program may use many maps that stay empty.
fn use_empty(map: &HashMap<u64, u64>) {
    let pinned = map.pin();
    assert!(pinned.is_empty());
    assert_eq!(pinned.len(), 0);
    assert_eq!(pinned.get(&1), None);
    assert_eq!(pinned.remove(&1), None);
    assert_eq!(pinned.iter().count(), 0);
    pinned.clear();
}

#[test]
fn empty_maps_take_little_memory_and_no_threads() {
    const MAPS: usize = 10_000;
    // Some memory is allocated only once per process.
    use_empty(&HashMap::new());

    // Divisions round down: the test harness may allocate a little meanwhile.
    let threads_before = threads();
    let (maps, allocated) = bytes(|| {
        let maps: Vec<HashMap<u64, u64>> = (0..MAPS).map(|_| HashMap::new()).collect();
        maps.iter().for_each(use_empty);
        maps
    });
    assert!(allocated / MAPS <= MAX_BYTES, "{} bytes for a map", allocated / MAPS);
    assert_eq!(threads(), threads_before);
    drop(maps);

    let (_sets, allocated) = bytes(|| (0..MAPS).map(|_| HashSet::<String>::new()).collect::<Vec<_>>());
    assert!(allocated / MAPS <= MAX_BYTES, "{} bytes for a set", allocated / MAPS);
}
