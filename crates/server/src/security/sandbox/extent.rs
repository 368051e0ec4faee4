//! How far a restriction is in force.

/// How much of a restriction is in force.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Extent {
    Whole,
    /// What an older kernel supports.
    Part,
}

/// Why a restriction is not in force.
pub(super) type Lack = String;
