//! The C interface: `include/relativist.h` is made from these files, comments included, and tells
//! how to use it.
//!
//! All functions are `extern "C"`, so that a panic which gets there ends the process with its
//! message, and never crosses the boundary.

#[cfg(test)]
use relativist_testing as _;

mod rcu;
mod table;
