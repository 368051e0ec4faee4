//! Tests of the flat map: the modules of `suite` that test any map, and modules of its own.
//!
//! T1 to T9 are the guarantees of `relativist_table::design`, T11 is that of `relativist::design`.

use relativist_testing as _;

#[path = "../suite/allocation.rs"]
mod allocation;
#[path = "../support/alongside.rs"]
mod alongside;
#[path = "../suite/atomic.rs"]
mod atomic;
#[path = "../suite/batch.rs"]
mod batch;
#[path = "../suite/cases.rs"]
mod cases;
#[path = "../suite/collections.rs"]
mod collections;
#[path = "../suite/drops.rs"]
mod drops;
#[path = "../suite/fill.rs"]
mod fill;
#[path = "../support/hashing.rs"]
mod hashing;
#[path = "../support/history.rs"]
mod history;
#[path = "../suite/hostile.rs"]
mod hostile;
#[path = "../suite/linearizability.rs"]
mod linearizability;
#[path = "../suite/model.rs"]
mod model;
#[path = "../suite/own_sections.rs"]
mod own_sections;
#[path = "../suite/panics.rs"]
mod panics;
#[path = "../suite/parallel.rs"]
mod parallel;
#[path = "../suite/reentrance.rs"]
mod reentrance;
#[path = "../suite/references.rs"]
mod references;
mod relocate;
#[path = "../suite/rendezvous.rs"]
mod rendezvous;
#[path = "../suite/scan.rs"]
mod scan;
mod segments;
#[path = "../suite/serialized.rs"]
mod serialized;
#[path = "../suite/sets.rs"]
mod sets;
mod sizing;
mod tested;
#[path = "../support/tracked.rs"]
mod tracked;
