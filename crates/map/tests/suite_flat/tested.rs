//! The map that is tested by the modules that both suites share. The suite of `HashMap` has a
//! module of the same name for its map.

use relativist::{BuildError, Builder, Relocatable, Resizing};

use crate::hashing::Hashing;
use crate::hostile::{Liar, Map, Value};
use crate::tracked::Tally;

pub use relativist::flat::PinnedSet;
pub use relativist::{FlatMap as HashMap, FlatSet as HashSet};

pub fn builder() -> Builder {
    relativist::HashMap::<(), ()>::builder()
}

pub fn try_build<K: Relocatable, V: Relocatable, S>(builder: Builder<S>) -> Result<HashMap<K, V, S>, BuildError> {
    builder.build_flat()
}

pub fn build<K: Relocatable, V: Relocatable, S>(builder: Builder<S>) -> HashMap<K, V, S> {
    try_build(builder).unwrap()
}

pub fn build_set<T: Relocatable, S>(builder: Builder<S>) -> HashSet<T, S> {
    builder.build_flat_set().unwrap()
}

/// Returns a map that is resized by hand.
pub fn manual<K: Relocatable, V: Relocatable, S>(hasher: S) -> HashMap<K, V, S> {
    build(builder().resizing(Resizing::Manual).hasher(hasher))
}

/// Stands in for `get_each`, which this map does not have.
pub fn get_each(map: &HashMap<u64, u64, Hashing>, keys: &[u64]) -> Vec<Option<u64>> {
    keys.iter().map(|key| map.get_copied(key)).collect()
}

/// The number of operations that `hostile` does with this map only.
pub const HOSTILE: u64 = 1;

/// Does the only one of them.
pub fn operate(map: &Map, _: u64, n: u64, tally: &'static Tally) {
    let keys = (n..n + 40).step_by(2);
    map.pin().insert_many(keys.map(|n| (Liar::new(n, tally), Value::new(n, tally))));
}
