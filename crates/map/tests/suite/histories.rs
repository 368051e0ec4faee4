//! The checker of histories, on histories written by hand: what it must accept, and what it must
//! not.

use crate::history::Call::{self, Clear, CompareExchange, Get, Insert, Remove, TryInsert, Update};
use crate::history::{Event, Value, is_linearizable as is_accepted};

fn event(begin: u64, end: u64, call: Call, result: Value) -> Event {
    Event { begin, end, call, result }
}

#[test]
fn accepts_what_an_overlap_explains() {
    let insert = event(0, 9, Insert(0, 1), None);
    let (before, after) = (event(1, 2, Get(0), None), event(3, 4, Get(0), Some(1)));
    assert!(is_accepted(&[vec![insert], vec![before, after]]));
    let refused = event(1, 2, TryInsert(0, 2), Some(1));
    let removed = event(3, 4, Remove(0), Some(1));
    let again = event(5, 6, TryInsert(0, 3), None);
    assert!(is_accepted(&[vec![insert], vec![refused, removed, again]]));
}

/// One order must explain the calls on all keys.
#[test]
fn rejects_a_clear_in_pieces() {
    let insert = |key| event(key, key + 1, Insert(key, 1), None);
    let clear = event(10, 20, Clear, None);
    let get = |key, begin, result| event(begin, begin + 1, Get(key), result);
    let (cleared, left) = (get(0, 11, None), get(2, 13, Some(1)));
    assert!(is_accepted(&[vec![insert(0), insert(2), clear], vec![left, get(0, 15, None)]]));
    assert!(!is_accepted(&[vec![insert(0), insert(2), clear], vec![cleared, left]]), "2 was left when 0 was gone");
    assert!(!is_accepted(&[vec![insert(0), clear, get(0, 21, Some(1))]]), "not cleared");
}

#[test]
fn rejects_a_stale_read() {
    let insert = event(0, 1, Insert(0, 1), None);
    assert!(!is_accepted(&[vec![insert], vec![event(2, 3, Get(0), None)]]));
}

#[test]
fn rejects_two_readers_who_disagree_on_the_order() {
    let insert = event(0, 9, Insert(0, 1), None);
    let (found, missed) = (event(1, 2, Get(0), Some(1)), event(3, 4, Get(0), None));
    assert!(!is_accepted(&[vec![insert], vec![found], vec![missed]]));
}

#[test]
fn rejects_a_value_that_was_overwritten() {
    let (one, two) = (event(0, 1, Insert(0, 1), None), event(2, 3, Insert(0, 2), Some(1)));
    assert!(!is_accepted(&[vec![one, two], vec![event(4, 5, Get(0), Some(1))]]));
}

#[test]
fn rejects_an_update_that_was_lost() {
    let (one, two) = (event(0, 5, Insert(0, 1), None), event(0, 5, Insert(0, 2), None));
    assert!(!is_accepted(&[vec![one], vec![two]]));
    let removed = |begin| event(begin, begin + 1, Remove(0), Some(1));
    assert!(!is_accepted(&[vec![one, removed(6)], vec![removed(8)]]));
    let updated = |value| event(6, 9, Update(0, value), Some(1));
    assert!(is_accepted(&[vec![one, updated(2)]]));
    assert!(!is_accepted(&[vec![one, updated(2)], vec![updated(3)]]), "both have updated the same value");
    let exchanged = |value| event(6, 9, CompareExchange(0, 1, value), Some(1));
    assert!(!is_accepted(&[vec![one, exchanged(2)], vec![exchanged(3)]]), "both have exchanged the same value");
}

#[test]
fn rejects_a_value_that_nobody_inserted() {
    assert!(!is_accepted(&[vec![event(0, 1, Get(0), Some(7))]]));
    assert!(!is_accepted(&[vec![event(0, 1, TryInsert(0, 1), Some(7))]]));
}
