//! Slots that are used again.

use std::sync::Arc;

use loom::thread;
use relativist_bucket::{Inline, Table};
use relativist_rcu::clock;

use crate::models::unless_quick;
use crate::scene::*;

/// B8: a vacated slot is used again only when readers that may have found its entry have left.
fn used_again(residents: &'static [u64], preemptions: usize) {
    explore_entries(preemptions, move || {
        let table = table::<Inline>(COARSE, residents);
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || read(&table))
        };
        assert_eq!(remove(&table.enter(), 0), Some(0));
        clock::drive();
        clock::drive();
        // The slot of key 0 is the only one that is not live.
        assert_eq!(insert(&table.enter(), 0, 1), None);
        reader.join().unwrap();
        let mut entries: Vec<_> = residents.iter().map(|&key| (key, u64::from(key == 0))).collect();
        entries.sort_unstable();
        assert_holds(table, &entries);
    });
}

/// Looks key 0 up, and reads the entry later in the same section.
fn read(table: &Table<Entry, Inline>) {
    // Begins a grace period, and another one if the first one has ended.
    clock::drive();
    clock::drive();
    let section = table.enter();
    let found = section.find(Places::hash_of(0), |entry| entry.key() == 0);
    thread::yield_now();
    assert!([None, Some(0), Some(1)].contains(&found.map(Entry::value)));
}

#[test]
fn references_while_slots_are_used_again() {
    used_again(&[1, 4, 0], unless_quick(2));
}

/// B8: the same with a removal under the lock, because the slot is in a later segment.
#[test]
fn references_while_slots_of_later_segments_are_used_again() {
    used_again(&[1, 2, 4, 5, 0, 6], unless_quick(2));
}
