//! Which types can be sent to other threads, shared with them, and used after a panic. Checked at
//! compile time.
//!
//! `+` and `-` stand for `Send`, `Sync`, `UnwindSafe` and `RefUnwindSafe`.
#![cfg(not(relativist_loom))]

use relativist_rcu::contention::{Attempt, Counts, Site};
use relativist_rcu::{Barrier, BarrierError, Domain, DomainGracePeriod, DomainGuard, GracePeriod, Guard, Published};
use relativist_testing::{OnlySend, OnlySync, auto_traits};
use std::cell::Cell;

auto_traits! {
    // A section belongs to the thread that entered it.
    Guard => - - + +,
    GracePeriod => + + + +,
    Barrier => + + + +,
    BarrierError => + + + +,

    // A section of a private domain belongs to its guard.
    Domain => + + + +,
    DomainGuard<'static> => + + + +,
    DomainGracePeriod<'static> => + + + +,

    // As `Box<T>`: a thread that shares it reads the value, and the thread that drops it drops the
    // value. `publish` has further bounds.
    Published<u64> => + + + +,
    Published<OnlySend> => + - + +,
    Published<OnlySync> => - + + +,
    Published<Cell<u64>> => + - - -,
    Published<&'static mut u64> => + + - +,

    Site => + + + +,
    Counts => + + + +,
    Attempt => + + + +,
}

/// A guard borrows its domain for as long as it lives, and no longer than that is needed.
#[allow(dead_code)]
fn guards_are_covariant<'short, 'long: 'short>(guard: DomainGuard<'long>) -> DomainGuard<'short> {
    guard
}
