//! B9: whichever call of user code panics, the map goes on.
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
//! Lists of operations cover the public functions (`coverage.rs` checks that). What happens without
//! memory is in `exhaustion.rs`.
#![cfg(not(relativist_loom))]

use relativist_testing as _;

mod coverage;
mod parts;
#[allow(dead_code, reason = "for other test binaries")]
#[path = "../support/tracked.rs"]
mod tracked;

#[path = "."]
mod boxed {
    use relativist::Boxed as Form;
    mod explore;
    mod locks;
    mod operations;

    pub fn names() -> impl Iterator<Item = &'static str> {
        let of_maps = operations::MAP.iter().map(|(name, ..)| *name);
        of_maps.chain(operations::SET.iter().map(|(name, ..)| *name)).chain(locks::names())
    }
}

#[path = "."]
mod inline {
    use relativist::Inline as Form;
    #[allow(clippy::duplicate_mod, reason = "it is compiled for each form")]
    mod explore;
    #[allow(clippy::duplicate_mod, reason = "as above")]
    mod locks;
    #[allow(clippy::duplicate_mod, reason = "as above")]
    mod operations;
}

#[path = "."]
mod private {
    use relativist::Private as Form;
    #[allow(clippy::duplicate_mod, reason = "it is compiled for each form")]
    mod explore;
    #[allow(clippy::duplicate_mod, reason = "as above")]
    mod operations;
}
