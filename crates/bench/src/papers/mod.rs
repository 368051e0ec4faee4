//! Subcommands that reproduce the measurements of papers.
//!
//! | Paper | Modules |
//! |---|---|
//! | Triplett, McKenney and Walpole, USENIX ATC 2011 | [`resize`], [`figures`], [`instructions`], which share [`lookups`] |
//! | Lever, "Linux Kernel Hash Table Behavior", ALS 2000 | [`lever`] (`hash paper`), [`caches`] (`hash caches`) |
//! | Mosberger, "Map Library Design Notes", 1996 | [`xkernel`] |

pub mod caches;
pub mod figures;
pub mod instructions;
pub mod lever;
pub mod lookups;
pub mod resize;
pub mod xkernel;
