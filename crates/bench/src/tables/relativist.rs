//! The maps of this project.

use std::array::from_fn;
use std::borrow::Borrow;
use std::sync::Arc;

use relativist::{Boxed, Inline, Map, Pinned, Stores};

use super::{Handle, Lookup, Table, View, pinned_map};
use crate::harness::hashers::Foldhash;
use crate::harness::keys::Indices;
use crate::tables::candidate::{BATCH, Lookups};
use crate::tables::entries::Key;

/// A `HashMap` or a `FlatMap`.
#[derive(Debug)]
pub struct Relativist<K: Key, F: Ours<K>>(Map<K, u64, Foldhash, F>);

/// A form of the map.
pub trait Ours<K: Key>: Stores<K, u64> + 'static {
    /// The names of lookups with a guard each, with one for many, and of many in one call.
    const NAMES: [&'static str; 3];
}

impl<K: Key> Ours<K> for Boxed {
    const NAMES: [&'static str; 3] = ["relativist", "relativist, handle", "relativist, get_many(32)"];
}

impl<K: Key> Ours<K> for Inline {
    const NAMES: [&'static str; 3] = ["relativist flat", "relativist flat, handle", "relativist flat, get_many(32)"];
}

pinned_map! {
    [K: Key, F: Ours<K>] Relativist<K, F> = Map<K, u64, Foldhash, F>,
    F::NAMES[0], F::NAMES[1], Pinned<'t, K, u64, Foldhash, F>;

    fn settle(&self) {
        relativist_rcu::barrier();
    }

    fn resize(&self) -> bool {
        self.0.reserve(self.0.len());
        self.0.shrink_to_fit().expect("memory for fewer buckets");
        true
    }

    fn lookups(self: Arc<Self>) -> Vec<Arc<dyn Lookups>> {
        vec![Arc::clone(&self) as _, Arc::new(Handle(Arc::clone(&self))), Arc::new(Batched(self))]
    }
}

/// Looks up 32 keys per call, with one guard per call.
struct Batched<T>(Arc<T>);

impl<K: Key, F: Ours<K>> Batched<Relativist<K, F>> {
    /// Looks up a batch. Returns the number of results for which `is_wrong` is true.
    #[inline(always)]
    fn count_batch(&self, indices: &mut Indices, is_wrong: impl Fn(u64, Option<u64>) -> bool) -> u64 {
        let map = &self.0.0;
        let mut wrong = 0;
        for _ in 0..BATCH / 32 {
            let drawn: [u64; 32] = from_fn(|_| indices.draw());
            let probes: [K::Probe; 32] = from_fn(|n| K::probe(drawn[n]));
            let pinned = map.pin();
            let values = pinned.get_many(from_fn::<&K::View, 32, _>(|n| probes[n].borrow()));
            wrong +=
                drawn.iter().zip(values).map(|(&index, value)| u64::from(is_wrong(index, value.copied()))).sum::<u64>();
        }
        wrong
    }
}

impl<K: Key, F: Ours<K>> Lookups for Batched<Relativist<K, F>> {
    fn name(&self) -> &'static str {
        F::NAMES[2]
    }

    #[inline(never)]
    fn hits(&self, indices: &mut Indices) -> u64 {
        self.count_batch(indices, |index, value| value != Some(index))
    }

    #[inline(never)]
    fn misses(&self, indices: &mut Indices) -> u64 {
        self.count_batch(indices, |_, value| value.is_some())
    }
}
