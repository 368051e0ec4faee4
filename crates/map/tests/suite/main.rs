//! What the map does, apart from races (`stress`) and the order of memory accesses (`loom`).
//!
//! T1 to T9 are the guarantees of `relativist_table::design`, T11 is that of `relativist::design`.

use relativist_testing as _;

mod allocation;
#[path = "../support/alongside.rs"]
mod alongside;
mod atomic;
mod auto_traits;
mod batch;
mod cases;
mod collections;
mod drops;
mod fill;
#[path = "../support/hashing.rs"]
mod hashing;
mod histories;
#[path = "../support/history.rs"]
mod history;
mod hostile;
mod linearizability;
mod model;
mod nodes;
mod own_sections;
mod panics;
mod parallel;
mod reentrance;
mod references;
mod rendezvous;
mod scan;
mod serialized;
mod sets;
mod sizing;
mod sparse;
mod spread;
mod tested;
#[path = "../support/tracked.rs"]
mod tracked;
