//! Models of the table, explored by loom: all interleavings up to a number of preemptions, and what
//! the memory model allows loads to see. The guarantees are those of `src/design.rs`.
//!
//! ```sh
//! RUSTFLAGS="--cfg relativist_loom" cargo test --release -p relativist-bucket --test loom
//! ```
//!
//! In models a segment has three slots, and each insertion or removal during a resize moves one
//! bucket. Loom fails a model if a thread writes to a slot or drops an entry while another thread
//! may read it.
#![cfg(relativist_loom)]

mod clearing;
mod iteration;
#[expect(dead_code, reason = "threads of these models share a section of the table")]
#[path = "../../../table/tests/loom/models.rs"]
mod models;
mod resizing;
mod scene;
mod slots;
mod updates;
