//! B12: keys and values that borrow from the stack.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use relativist::PrivateMap;

use crate::reclaim;

/// A value whose destructor uses what it borrows.
struct Counted<'a>(&'a AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn threads_share_a_map_of_borrows() {
    let text: String = (0..2000).map(|n| format!("{} ", n % 500)).collect();
    let dropped = AtomicU64::new(0);
    {
        let words: PrivateMap<&str, Counted<'_>> = PrivateMap::new();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for word in text.split_whitespace() {
                        words.pin().insert(word, Counted(&dropped));
                    }
                });
            }
        });
        assert_eq!(words.len(), 500);
        assert!(words.pin().contains_key("499"));
        words.pin().retain(|word, _| word.len() < 3);
        reclaim(&words);
        assert_eq!(dropped.load(Relaxed), 4 * 2000 - 100);
        words.pin().remove("7");
    }
    assert_eq!(dropped.load(Relaxed), 4 * 2000, "dropped before what they borrow");
}

/// A map of borrows that is leaked never touches what they borrowed.
#[test]
fn a_leaked_map_does_not_use_what_it_borrowed() {
    let dropped = Box::new(AtomicU64::new(0));
    let map: PrivateMap<u64, Counted<'_>> = (0..1000).map(|n| (n, Counted(&dropped))).collect();
    map.pin().remove(&1);
    std::mem::forget(map);
    assert_eq!(dropped.load(Relaxed), 0);
    drop(dropped);
    // Threads go on. (AddressSanitizer would see them use the memory.)
    let other: PrivateMap<u64, u64> = (0..10_000).map(|n| (n, n)).collect();
    other.pin().clear();
    reclaim(&other);
    relativist_rcu::barrier();
}

/// A key that is found by one with a shorter life.
#[test]
fn lookups_may_borrow_less() {
    let map = PrivateMap::from([("one", 1)]);
    let found = {
        let key = String::from("one");
        *map.pin().get(&*key).unwrap()
    };
    assert_eq!(found, 1);
}

/// Operations that need no bounds exist for types that are neither `Send` nor `Sync`.
#[test]
fn a_map_of_other_types_can_be_made_and_dropped() {
    let map: PrivateMap<*const u8, Cell<u64>> = PrivateMap::new();
    assert!(map.pin().is_empty() && map.pin().iter().next().is_none());
    assert_eq!(map.pending(), 0);
}
