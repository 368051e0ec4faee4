//! Tests of the map in one form, which is `super::Form`.

use std::any::Any;
use std::hash::{BuildHasher, Hash, RandomState};

use relativist::{Map, Private, Set};
use relativist_testing::random::Random;

use super::Form;

mod atomic;
mod cases;
mod collections;
mod costs;
mod drops;
mod hostile;
mod linearizability;
mod many;
mod model;
mod panics;
mod parallel;
mod reentrance;
mod references;
mod serialized;
mod sets;
mod sizing;

type HashMap<K, V, S = RandomState> = Map<K, V, S, Form>;
type HashSet<T, S = RandomState> = Set<T, S, Form>;

/// Does what is necessary so that `relativist_rcu::barrier` drops what was removed from this map.
/// The caller has no handle.
#[track_caller]
fn reclaim<K: 'static, V: 'static, S: 'static>(map: &HashMap<K, V, S>) {
    if let Some(private) = (map as &dyn Any).downcast_ref::<Map<K, V, S, Private>>() {
        crate::reclaim(private);
    }
}

/// Grows a map, or shrinks it as far as its entries permit.
fn resize<K: Hash + Eq, V, S: BuildHasher>(map: &HashMap<K, V, S>, random: &mut Random) {
    match random.below(3) {
        0 => map.shrink_to_fit().unwrap(),
        _ => map.reserve(random.below(300) as usize),
    }
}
