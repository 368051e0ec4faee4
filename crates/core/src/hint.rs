//! Hints for the compiler.

/// Marks the path of a branch that calls this as seldom taken, as `std::hint::cold_path` does since
/// Rust 1.95.
#[cold]
#[inline(always)]
pub const fn cold_path() {}
