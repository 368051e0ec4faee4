//! The map that the modules test which both suites share. The suite of `FlatMap` has a module of
//! the same name.

use relativist::{BuildError, Builder, Resizing};

use crate::hostile::{Anything, Map, Value};
use crate::tracked::Tally;

pub use relativist::{HashMap, HashSet, PinnedSet};

pub fn builder() -> Builder {
    Builder::new()
}

pub fn try_build<K, V, S>(builder: Builder<S>) -> Result<HashMap<K, V, S>, BuildError> {
    builder.build()
}

pub fn build<K, V, S>(builder: Builder<S>) -> HashMap<K, V, S> {
    try_build(builder).unwrap()
}

pub fn build_set<T, S>(builder: Builder<S>) -> HashSet<T, S> {
    builder.build_set().unwrap()
}

/// Returns a map that is resized by hand.
pub fn manual<K, V, S>(hasher: S) -> HashMap<K, V, S> {
    build(builder().resizing(Resizing::Manual).hasher(hasher))
}

/// Does what is necessary so that `relativist_rcu::barrier` drops what was removed from this map.
pub fn reclaim<K, V, S>(_: &HashMap<K, V, S>) {}

/// Does what `hostile` does with this map only. What it returns must be intact.
pub fn operate(map: &Map, n: u64, _: &'static Tally) {
    _ = map.pin().get(&Anything(n)).map(Value::check);
}
