//! What the map does when there is no memory left. In a binary of its own, because it takes an allocator that can fail.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

use relativist::{ExhaustedError, HashMap, Resizing};

thread_local!(static EXHAUSTED: Cell<bool> = const { Cell::new(false) });

/// The system's allocator, which has nothing left for threads that say so.
struct Failing;

// SAFETY: the system's, or nothing.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller vouches.
        if EXHAUSTED.get() { null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller vouches.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

fn without_memory<T>(act: impl FnOnce() -> T) -> T {
    EXHAUSTED.set(true);
    let result = act();
    EXHAUSTED.set(false);
    result
}

type Map = HashMap<String, Vec<u64>>;

fn manual() -> Map {
    HashMap::<String, Vec<u64>>::builder().resizing(Resizing::Manual).build().unwrap()
}

/// The next of these entries for which there is no memory.
fn insert_until_exhausted(
    map: &Map,
    entries: &mut Vec<(String, Vec<u64>)>,
) -> Option<ExhaustedError<String, Vec<u64>>> {
    loop {
        let (key, value) = entries.pop()?;
        if let Err(error) = map.pin().checked_insert(key, value) {
            return Some(error);
        }
    }
}

#[test]
fn checked_insert_gives_key_and_value_back() {
    let map = manual();
    map.resize_to(1 << 16).unwrap();
    map.pin().insert("there".into(), vec![0]);
    // More than any stock of free nodes would last.
    let mut entries: Vec<_> = (0..100_000).map(|n| (n.to_string(), vec![n])).collect();
    let mut again = vec![("there".to_string(), vec![1])];
    let (error, not_replaced) =
        without_memory(|| (insert_until_exhausted(&map, &mut entries), insert_until_exhausted(&map, &mut again)));
    let error = error.expect("no memory is left");
    assert_eq!(error.key, error.value[0].to_string());
    assert!(error.to_string().contains("cannot allocate"), "{error}");
    assert!(format!("{error:?}").starts_with("ExhaustedError"));
    assert_eq!(not_replaced.map(|error| error.value), Some(vec![1]));

    let pinned = map.pin();
    assert_eq!((pinned.contains_key(&error.key), pinned.get("there")), (false, Some(&vec![0])));
    assert_eq!(pinned.len(), 100_000 - entries.len());
    assert_eq!(pinned.checked_insert(error.key, error.value).unwrap(), None);
    assert_eq!(pinned.checked_insert("there".into(), vec![1]).unwrap(), Some(&vec![0]));
}

/// T6: if the new array can't be allocated, the table goes on with the old one.
#[test]
fn a_resize_without_memory_is_an_error() {
    let map = manual();
    map.pin().insert("there".into(), vec![0]);
    assert!(without_memory(|| map.resize_to(64)).is_err());
    assert!(without_memory(|| map.try_reserve(64)).is_err());
    assert_eq!((map.buckets(), map.pin().get("there")), (2, Some(&vec![0])));
    map.try_reserve(63).unwrap();
    assert_eq!(map.buckets(), 128);
    assert!(without_memory(|| map.shrink_to_fit()).is_err());
    assert_eq!(map.buckets(), 128);
    assert!(without_memory(|| HashMap::<u64, u64>::builder().build::<u64, u64>()).is_err());
}
