//! The map that is tested by the modules that both suites share. The suite of `HashMap` has a
//! module of the same name for its map.

use relativist::flat::Builder;
use relativist::{BuildError, Relocatable, Resizing};

use crate::hostile::{Anything, Map, Value};
use crate::tracked::Tally;

pub use relativist::flat::PinnedSet;
pub use relativist::{FlatMap as HashMap, FlatSet as HashSet};

pub fn builder() -> Builder {
    Builder::new()
}

pub fn try_build<K: Relocatable, V: Relocatable, S>(builder: Builder<S>) -> Result<HashMap<K, V, S>, BuildError> {
    builder.build()
}

pub fn build<K: Relocatable, V: Relocatable, S>(builder: Builder<S>) -> HashMap<K, V, S> {
    try_build(builder).unwrap()
}

pub fn build_set<T: Relocatable, S>(builder: Builder<S>) -> HashSet<T, S> {
    builder.build_set().unwrap()
}

/// Returns a map that is resized by hand.
pub fn manual<K: Relocatable, V: Relocatable, S>(hasher: S) -> HashMap<K, V, S> {
    build(builder().resizing(Resizing::Manual).hasher(hasher))
}

/// Does what is necessary so that `relativist_rcu::barrier` drops what was removed from this map.
pub fn reclaim<K, V, S>(_: &HashMap<K, V, S>) {}

/// Does what `hostile` does with this map only. What it returns must be intact.
pub fn operate(map: &Map, n: u64, _: &'static Tally) {
    if n % 2 == 0 {
        _ = map.resize_to(1 << (n % 8));
    } else {
        _ = map.pin().get(&Anything(n)).map(Value::check);
    }
}
