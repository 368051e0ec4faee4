//! Breaking the algorithm on purpose.
//!
//! Each wait, hand-over of a lock and publication of the transition can be left out by name, to show that some test fails
//! without it: `ci/mutation.sh` does so for all of them. Outside of builds with `--cfg relativist_mutation` nothing of this
//! is left in the code.

use crate::sync::Ordering;

/// Whether the named step is to be left out or done wrongly in this run: when `RELATIVIST_MUTATION` names it.
#[cfg(relativist_mutation)]
pub(crate) fn is(name: &str) -> bool {
    static ACTIVE: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ACTIVE.get_or_init(|| std::env::var("RELATIVIST_MUTATION").ok()).as_deref() == Some(name)
}

/// Never, in this build.
#[cfg(not(relativist_mutation))]
#[inline(always)]
pub(crate) const fn is(_name: &str) -> bool {
    false
}

/// The ordering that the algorithm needs; `Relaxed` while it is to be broken in this way.
#[inline(always)]
pub(crate) fn unless(name: &str, needed: Ordering) -> Ordering {
    if is(name) { Ordering::Relaxed } else { needed }
}
