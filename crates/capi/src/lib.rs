//! The C interface. `include/relativist.h` is generated from these files, with the comments, which
//! explain how to use it.
//!
//! All functions are `extern "C"`: a panic that reaches one of them aborts the process with its
//! message, and never crosses the boundary.

#[cfg(test)]
use relativist_testing as _;

mod rcu;
mod table;
