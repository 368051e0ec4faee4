//! Models of flat maps and of private maps, explored by loom: all interleavings up to a number of
//! preemptions, and what the memory model allows loads to see. (`HashMap` is a table of
//! `relativist-table`, whose models are in that crate.)
//!
//! ```sh
//! RUSTFLAGS="--cfg relativist_loom" cargo test --release -p relativist --test loom
//! ```
#![cfg(relativist_loom)]

mod flat;
#[path = "../support/hashing.rs"]
mod hashing;
#[path = "../../../table/tests/loom/models.rs"]
mod models;
mod private;
