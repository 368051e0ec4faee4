//! What repeats the measurements of three papers: their tables, figures and experiments.
//!
//! | Paper | Modules |
//! |---|---|
//! | Triplett, McKenney and Walpole, USENIX ATC 2011 | [`tables`], `resize`, `figures`, `instructions`; the last three share `lookups` |
//! | Lever, "Linux Kernel Hash Table Behavior", ALS 2000 | `lever`, `caches` |
//! | Mosberger, "Map Library Design Notes", 1996 | [`tables::xkernel`], `xkernel` |
//!
//! Measurements use the harness of `relativist-bench`. They need the feature `experiments`, which
//! is on by default. Without this feature, only the tables are built. Tests of the tables in
//! emulators and under sanitizers need nothing else.

#[cfg(test)]
use relativist_testing as _;

#[cfg(feature = "experiments")]
mod caches;
#[cfg(feature = "experiments")]
mod cli;
#[cfg(feature = "experiments")]
mod figures;
#[cfg(feature = "experiments")]
mod instructions;
#[cfg(feature = "experiments")]
mod lever;
#[cfg(feature = "experiments")]
mod lookups;
#[cfg(feature = "experiments")]
mod resize;
pub mod tables;
#[cfg(feature = "experiments")]
mod xkernel;

#[cfg(feature = "experiments")]
pub use cli::{Cli, run};
