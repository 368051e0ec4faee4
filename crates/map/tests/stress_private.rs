//! Threads that do everything at once with a map in a private domain, under continuous resizing.
//! Also run under the sanitizers. `RELATIVIST_STRESS_SECONDS` sets the duration of each test.
//!
//! T1 to T9 are the guarantees of `relativist_table::design`, T11 is that of `relativist::design`.

use relativist_testing as _;

#[path = "support/alongside.rs"]
mod alongside;
#[path = "support/hashing.rs"]
mod hashing;
#[path = "support/stress.rs"]
mod stress;
#[path = "support/tracked.rs"]
mod tracked;

/// What the map is to the tests of `stress`.
mod tested {
    pub use relativist::PrivateMap as HashMap;
    use relativist::{Builder, Resizing, Stats};

    use crate::hashing::Hashing;

    /// The number of entries per bucket at which it grows.
    pub const MAX_LOAD: u64 = 1;

    pub fn build<K, V>(resizing: Resizing, hashing: Hashing) -> HashMap<K, V, Hashing> {
        Builder::new().resizing(resizing).hasher(hashing).build_private().unwrap()
    }

    pub fn assert_waits(stats: &Stats) {
        assert_eq!(stats.grace_periods, stats.grows, "T5: handles delay no growth");
    }
}
