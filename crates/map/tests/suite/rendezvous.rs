//! T3 in real time: when an update has returned, every lookup that begins finds it done, whatever
//! its key and thread.

use relativist::Resizing;
use relativist_testing::{ROUNDS, assert_meet};

use crate::tested::{build, builder};

#[test]
fn two_threads_that_insert_and_look_find_each_other() {
    let map = build::<u64, (), _>(builder().capacity(2 * ROUNDS as usize).resizing(Resizing::Manual));
    assert_meet(|own, other| {
        let pinned = map.pin();
        pinned.insert(own, ());
        pinned.contains_key(&other)
    });
}
