//! T9: whichever call of user code panics, the map goes on.
//!
//! Each operation runs repeatedly, each time on a fresh map: the first call of user code panics,
//! then the second, and so on until the operation runs to its end. User code is hashing, comparing,
//! cloning, dropping, formatting, serializing, closures and iterators (`parts.rs`). Checked each
//! time:
//!
//! * Each entry is as before the operation, or as after it. An operation that is one atomic step
//!   was done as a whole or not at all.
//! * Iteration, lookups and the number of entries agree.
//! * No lock is held: any thread can update all keys, and the table can grow and shrink.
//! * Every key and value is dropped once: none is alive when the map is gone and readers have left.
//!
//! Lists of operations cover the public interface (`coverage.rs` checks that). What happens without
//! memory is in `exhaustion.rs`.

use relativist_testing as _;

mod coverage;
mod explore;
mod operations;
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
