//! The torture tests with [`Barrier::Membarrier`]; see their module.
#![cfg(not(relativist_loom))]

use relativist_testing as _;

mod torture;

use relativist_rcu::Barrier;

/// R1, R7, R10.
#[test]
fn membarrier_holds_under_torture() {
    torture::torture(Barrier::Membarrier);
}

/// R1.
#[test]
fn membarrier_holds_against_lagging_stores() {
    torture::lag::overtake(Barrier::Membarrier);
}

/// D1, D3.
#[test]
fn membarrier_holds_for_migrating_guards() {
    torture::migrating::migrate(Barrier::Membarrier);
}
