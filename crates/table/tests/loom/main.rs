//! Models of the resize, explored by loom: all interleavings up to a number of preemptions, and
//! what the memory model allows loads to see.
//!
//! ```sh
//! RUSTFLAGS="--cfg relativist_loom" cargo test --release -p relativist-table --test loom
//! ```
//!
//! The table of a model is a single group: a coarse bucket with the places 0 to 7, which belong to
//! two fine buckets, 0 to 3 and 4 to 7. Places 1 and 5 are *residents*: no thread removes them. The
//! hard cases are 0 and 4, each the first link of a fine bucket, and 3, the last link before a cut.
#![cfg(relativist_loom)]

mod compact;
mod iteration;
mod lookups;
mod models;
mod scene;
mod updates;
