//! Breaking the algorithms on purpose, as in the other crates: `ci/mutation.sh` leaves out each step by name, and demands that a test fails.

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
