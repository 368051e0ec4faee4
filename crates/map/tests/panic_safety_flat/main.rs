//! T9 for flat maps and sets: see `panic_safety`, which has all modules but one.
//!
//! Flat maps call `Hash` in more operations, because they move entries: there a panic goes no
//! further. `moves.rs` tests what follows from it.

use relativist_testing as _;

#[path = "../panic_safety/coverage.rs"]
mod coverage;
#[path = "../panic_safety/explore.rs"]
mod explore;
mod moves;
#[path = "../panic_safety/operations.rs"]
mod operations;
#[path = "../panic_safety/parts.rs"]
mod parts;
mod tested;
#[allow(dead_code, reason = "for other test binaries")]
#[path = "../support/tracked.rs"]
mod tracked;

use explore::test;
use operations::{MAP, MAP_WAITING, SET, SET_WAITING};

#[test]
fn maps_survive_each_panic() {
    test(&[MAP], &[MAP_WAITING]);
}

#[test]
fn sets_survive_each_panic() {
    test(&[SET], &[SET_WAITING]);
}
