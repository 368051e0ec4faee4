//! The map that the modules test which both suites share. The suite of `FlatMap` has a module of
//! the same name.

use relativist::{BuildError, Builder, Resizing};

use crate::hashing::Hashing;
use crate::hostile::{Anything, Liar, Map, Value};
use crate::tracked::Tally;

pub use relativist::{HashMap, HashSet, PinnedSet};

pub fn builder() -> Builder {
    HashMap::<(), ()>::builder()
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

pub fn get_each(map: &HashMap<u64, u64, Hashing>, keys: &[u64]) -> Vec<Option<u64>> {
    let mut found = Vec::new();
    map.pin().get_each(keys, |&key, value| found.push((key, value.copied())));
    assert!(found.iter().map(|(key, _)| key).eq(keys));
    found.into_iter().map(|(_, value)| value).collect()
}

/// The number of operations in `hostile` that only this map has.
pub const HOSTILE: u64 = 2;

/// Does one of them. What it returns must be intact.
pub fn operate(map: &Map, operation: u64, n: u64, tally: &'static Tally) {
    if operation == 0 {
        let pinned = map.pin();
        let mut cached = pinned.cached();
        (0..4).for_each(|_| _ = cached.get(&Anything(n)).map(Value::check));
    } else {
        _ = map.rename(&Liar::new(n, tally), Liar::new(n + 1, tally)).map_err(|error| error.into_key().number);
    }
}
