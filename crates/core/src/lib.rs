//! What several crates of `relativist` share. **No stability is promised**: any version may change
//! or remove anything here.
//!
//! | module | contents |
//! |---|---|
//! | [`sync`] | the atomics, cells and mutexes of all crates, which models replace by loom's; fences; threads that park |
//! | [`counter`] | the number of entries of a table, counted by many threads |
//! | [`sleepers`] | threads that sleep until a bucket is unlocked |
//! | [`reentrancy`] | detecting a thread that would wait for itself |
//! | [`eviction`] | the eviction policy of `relativist-cache` and of `relativist-store` |
//! | [`memory`] | zeroed memory for arrays, in huge pages |
//! | [`prefetch`], [`hint`] | prefetch instructions; hints for the compiler |
//! | [`unwind`] | containing panics |

#![allow(clippy::new_without_default, reason = "these types are made by other crates of this project only")]

#[cfg(test)]
use relativist_testing as _;

pub mod counter;
pub mod eviction;
pub mod hint;
pub mod memory;
pub mod prefetch;
pub mod recycle;
pub mod reentrancy;
#[cfg(any(not(relativist_loom), test))]
pub mod sleepers;
pub mod sync;
pub mod unwind;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("relativist needs a 64-bit target");
