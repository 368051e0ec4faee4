//! The checker of histories, on histories written by hand: what it must accept, and what it must
//! not.

use crate::history::Call::{self, CompareExchange, Get, Insert, Remove, TryInsert, Update};
use crate::history::{Event, Value, check};

fn event(begin: u64, end: u64, call: Call, result: Value) -> Event {
    Event { begin, end, call, result }
}

fn is_accepted(threads: &[Vec<Event>]) -> bool {
    check(threads).is_ok()
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

/// An order of calls exists for each key. A single order for both keys is not required.
#[test]
fn looks_at_keys_one_by_one() {
    let insert = |key| event(0, 9, Insert(key, 1), None);
    let found = |key, begin| event(begin, begin + 1, Get(key), Some(1));
    assert!(is_accepted(&[vec![insert(0)], vec![insert(1)], vec![found(0, 1), found(1, 3)]]));
    let missed = event(5, 6, Get(1), None);
    let part = check(&[vec![insert(0)], vec![insert(1)], vec![found(0, 1), found(1, 3), missed]]).unwrap_err();
    assert_eq!(part.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 2], "the history of key 1 alone");
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
