//! The torture tests with [`Barrier::Fence`]; see their module.
#![cfg(not(relativist_loom))]

use relativist_testing as _;

mod torture;

use relativist_rcu::Barrier;

/// R1, R7, R10.
#[test]
fn fence_holds_under_torture() {
    torture::torture(Barrier::Fence);
}

/// R1.
#[test]
fn fence_holds_against_lagging_stores() {
    torture::lag::overtake(Barrier::Fence);
}

/// D1, D3.
#[test]
fn fence_holds_for_migrating_guards() {
    torture::migrating::migrate(Barrier::Fence);
}
