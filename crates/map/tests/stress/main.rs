//! Threads that do everything at once, while maps grow, shrink and are cleared. Also run under the
//! sanitizers. `RELATIVIST_STRESS_SECONDS` sets the duration of each test.
//!
//! B1 to B9 are the guarantees of `relativist_bucket::design`.
#![cfg(not(relativist_loom))]

use relativist_testing as _;

#[path = "../support/alongside.rs"]
mod alongside;
#[path = "../support/hashing.rs"]
mod hashing;
#[path = "../support/tracked.rs"]
mod tracked;

#[path = "."]
mod boxed {
    use relativist::Boxed as Form;
    mod each;
    mod lock_map;
}

#[path = "."]
mod inline {
    use relativist::Inline as Form;
    #[allow(clippy::duplicate_mod, reason = "it is compiled for each form")]
    mod each;
    #[allow(clippy::duplicate_mod, reason = "as above")]
    mod lock_map;
}

#[path = "."]
mod private {
    use relativist::Private as Form;
    #[allow(clippy::duplicate_mod, reason = "it is compiled for each form")]
    mod each;
}
