//! Tests of the map with a private domain: the modules of `suite` that test any map, and modules of
//! its own.
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
mod borrows;
#[path = "../suite/cases.rs"]
mod cases;
#[path = "../suite/collections.rs"]
mod collections;
mod destructors;
#[path = "../suite/drops.rs"]
mod drops;
mod handles;
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
#[path = "../suite/panics.rs"]
mod panics;
#[path = "../suite/reentrance.rs"]
mod reentrance;
#[path = "../suite/references.rs"]
mod references;
#[path = "../suite/rendezvous.rs"]
mod rendezvous;
#[path = "../suite/scan.rs"]
mod scan;
mod tasks;
mod tested;
#[path = "../support/tracked.rs"]
mod tracked;
