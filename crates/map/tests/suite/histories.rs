//! The checker of histories, on histories written by hand: what it must accept, and what it must not.

use crate::history::Operation::{Get, Insert, Remove, TryInsert};
use crate::history::{Event, Operation, check};

fn event(call: u64, end: u64, operation: Operation) -> Event {
    Event { call, end, operation }
}

fn is_accepted(threads: &[Vec<Event>]) -> bool {
    check(threads).is_ok()
}

#[test]
fn accepts_what_an_overlap_explains() {
    let insert = event(0, 9, Insert { key: 0, value: 1, replaced: None });
    let before = event(1, 2, Get { key: 0, found: None });
    let after = event(3, 4, Get { key: 0, found: Some(1) });
    assert!(is_accepted(&[vec![insert], vec![before, after]]));
    let refused = event(1, 2, TryInsert { key: 0, value: 2, current: Some(1) });
    let removed = event(3, 4, Remove { key: 0, removed: Some(1) });
    let again = event(5, 6, TryInsert { key: 0, value: 3, current: None });
    assert!(is_accepted(&[vec![insert], vec![refused, removed, again]]));
}

/// Each key has an order of its own that explains it, and no order has to explain both.
#[test]
fn looks_at_keys_one_by_one() {
    let insert = |key| event(0, 9, Insert { key, value: 1, replaced: None });
    let get = |key, call| event(call, call + 1, Get { key, found: Some(1) });
    assert!(is_accepted(&[vec![insert(0)], vec![insert(1)], vec![get(0, 1), get(1, 3)]]));
    let missed = event(5, 6, Get { key: 1, found: None });
    let part = check(&[vec![insert(0)], vec![insert(1)], vec![get(0, 1), get(1, 3), missed]]).unwrap_err();
    assert_eq!(part.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 2], "the history of key 1 alone");
}

#[test]
fn rejects_a_stale_read() {
    let insert = event(0, 1, Insert { key: 0, value: 1, replaced: None });
    let missed = event(2, 3, Get { key: 0, found: None });
    assert!(!is_accepted(&[vec![insert], vec![missed]]));
}

#[test]
fn rejects_two_readers_who_disagree_on_the_order() {
    let insert = event(0, 9, Insert { key: 0, value: 1, replaced: None });
    let found = event(1, 2, Get { key: 0, found: Some(1) });
    let missed = event(3, 4, Get { key: 0, found: None });
    assert!(!is_accepted(&[vec![insert], vec![found], vec![missed]]));
}

#[test]
fn rejects_a_value_that_was_overwritten() {
    let one = event(0, 1, Insert { key: 0, value: 1, replaced: None });
    let two = event(2, 3, Insert { key: 0, value: 2, replaced: Some(1) });
    let stale = event(4, 5, Get { key: 0, found: Some(1) });
    assert!(!is_accepted(&[vec![one, two], vec![stale]]));
}

#[test]
fn rejects_an_update_that_was_lost() {
    let one = event(0, 5, Insert { key: 0, value: 1, replaced: None });
    let two = event(0, 5, Insert { key: 0, value: 2, replaced: None });
    assert!(!is_accepted(&[vec![one], vec![two]]));
    let removed = event(6, 7, Remove { key: 0, removed: Some(1) });
    assert!(!is_accepted(&[vec![one, removed], vec![event(8, 9, Remove { key: 0, removed: Some(1) })]]));
}

#[test]
fn rejects_a_value_that_nobody_inserted() {
    assert!(!is_accepted(&[vec![event(0, 1, Get { key: 0, found: Some(7) })]]));
    let current = event(0, 1, TryInsert { key: 0, value: 1, current: Some(7) });
    assert!(!is_accepted(&[vec![current]]));
}
