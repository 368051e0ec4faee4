//! Which types can be sent to other threads, shared with them, and used after a panic. Checked at
//! compile time.
//!
//! `+` and `-` stand for `Send`, `Sync`, `UnwindSafe` and `RefUnwindSafe`.

use std::cell::Cell;
use std::hash::RandomState;

use relativist_cache::{Cache, Iter, RemovalCause, Stats, TooHeavy};
use relativist_testing::{OnlySend, OnlySync, auto_traits};

auto_traits! {
    // A background thread and that of the builder share it: the hasher must be `Sync`, too. A panic
    // leaves it consistent, whatever it contains.
    Cache<u64, u64> => + + + +,
    Cache<OnlySend, u64> => - - + +,
    Cache<OnlySync, u64> => - - + +,
    Cache<u64, OnlySend> => - - + +,
    Cache<u64, OnlySync> => - - + +,
    Cache<u64, u64, OnlySend> => - - + +,
    Cache<u64, u64, OnlySync> => - - + +,
    Cache<u64, Cell<u64>> => - - + +,
    Iter<'static, u64, u64, RandomState> => + + + +,
    Iter<'static, OnlySend, u64, RandomState> => - - + +,
    Iter<'static, u64, Cell<u64>, RandomState> => - - + -,
    Stats => + + + +,
    RemovalCause => + + + +,
    TooHeavy<u64, u64> => + + + +,
    TooHeavy<u64, OnlySend> => + - + +,
}
