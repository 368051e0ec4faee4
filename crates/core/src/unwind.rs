//! Catches panics.

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a function, and catches a panic, which the panic hook has reported. Returns whether the
/// function has returned.
///
/// The payload of a panic is any value, so its destructor may panic in turn. The payload of that
/// second panic is leaked.
pub fn contain(function: impl FnOnce()) -> bool {
    let Err(payload) = catch_unwind(AssertUnwindSafe(function)) else { return true };
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        forget(again);
    }
    false
}
