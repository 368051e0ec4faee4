//! Switches that break an algorithm on purpose, one at a time, to prove that the tests would
//! notice.
//!
//! In a build with `--cfg relativist_mutation` the environment variable `RELATIVIST_MUTATION` names
//! the switch that is on. In every other build each of them is a constant `false`, and leaves no
//! code behind. `tests/mutations.txt` of each crate lists which test notices which, and
//! `ci/mutation.sh` goes through all of them.

use crate::sync::atomic::Ordering;

/// Whether the algorithm is to be broken in this way.
#[cfg(relativist_mutation)]
pub fn is(name: &str) -> bool {
    static ACTIVE: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    ACTIVE.get_or_init(|| std::env::var("RELATIVIST_MUTATION").unwrap_or_default()) == name
}

/// Never, in this build.
#[cfg(not(relativist_mutation))]
#[inline(always)]
pub const fn is(_: &str) -> bool {
    false
}

/// The ordering that the algorithm needs; `Relaxed` while it is to be broken in this way.
#[inline(always)]
pub fn unless(name: &str, needed: Ordering) -> Ordering {
    if is(name) { Ordering::Relaxed } else { needed }
}
