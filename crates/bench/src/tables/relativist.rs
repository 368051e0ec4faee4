//! The relativistic hash table of this project.

use std::array::from_fn;
use std::borrow::Borrow;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use relativist::{HashMap, Pinned};

use super::{Handle, Lookup, Table, View, pinned_map};
use crate::harness::hashers::Foldhash;
use crate::harness::keys::Indices;
use crate::tables::candidate::{BATCH, Lookups};
use crate::tables::entries::Key;

#[derive(Debug)]
pub struct Relativist<K: Key>(HashMap<K, u64, Foldhash>);

pinned_map! {
    Relativist, "relativist", "relativist, handle", Pinned<'t, K, u64, Foldhash>;

    /// Waits until the background worker has finished resizing: no resize is in progress, and none
    /// has happened since the last check. Gives up after a minute. Then waits until removed entries
    /// are freed.
    fn settle(&self) {
        let mut before = self.0.buckets();
        for _ in 0..6000 {
            sleep(Duration::from_millis(10));
            let now = self.0.buckets();
            if now == before && !self.0.is_resizing() {
                break;
            }
            before = now;
        }
        relativist_rcu::barrier();
    }

    fn lookups(self: Arc<Self>) -> Vec<Arc<dyn Lookups>> {
        vec![Arc::clone(&self) as _, Arc::new(Handle(Arc::clone(&self))), Arc::new(Batched(self))]
    }
}

/// Looks up 32 keys per call, with one guard per call.
struct Batched<T>(Arc<T>);

impl<K: Key> Batched<Relativist<K>> {
    /// Looks up a batch. Returns the number of results for which `is_wrong` is true.
    #[inline(always)]
    fn count_batch(&self, indices: &mut Indices, is_wrong: impl Fn(u64, Option<u64>) -> bool) -> u64 {
        let map = &self.0.0;
        let mut wrong = 0;
        for _ in 0..BATCH / 32 {
            let drawn: [u64; 32] = from_fn(|_| indices.draw());
            let probes: [K::Probe; 32] = from_fn(|n| K::probe(drawn[n]));
            let guard = relativist::read();
            let values = map.get_many(from_fn::<&K::View, 32, _>(|n| probes[n].borrow()), &guard);
            wrong +=
                drawn.iter().zip(values).map(|(&index, value)| u64::from(is_wrong(index, value.copied()))).sum::<u64>();
        }
        wrong
    }
}

impl<K: Key> Lookups for Batched<Relativist<K>> {
    fn name(&self) -> &'static str {
        "relativist, get_many(32)"
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
