//! The map that is tested by the modules that all suites share. The suites of `HashMap` and
//! `FlatMap` have a module of the same name for their maps.

use relativist::{BuildError, Builder, Resizing};
use relativist_testing::wait_until;

use crate::hostile::Map;
use crate::tracked::Tally;

pub use relativist::PrivateMap as HashMap;

pub fn builder() -> Builder {
    Builder::new()
}

pub fn try_build<K, V, S>(builder: Builder<S>) -> Result<HashMap<K, V, S>, BuildError> {
    builder.build_private()
}

pub fn build<K, V, S>(builder: Builder<S>) -> HashMap<K, V, S> {
    try_build(builder).unwrap()
}

/// Returns a map that is resized by hand.
pub fn manual<K, V, S>(hasher: S) -> HashMap<K, V, S> {
    build(builder().resizing(Resizing::Manual).hasher(hasher))
}

/// Drops all entries that were removed. The caller has no handle.
#[track_caller]
pub fn reclaim<K, V, S>(map: &HashMap<K, V, S>) {
    wait_until("removed entries to be dropped", || map.reclaim() == 0);
}

/// Does what `hostile` does with this map only. What it returns must be intact.
pub fn operate(map: &Map, _: u64, _: &'static Tally) {
    map.reclaim();
}
