//! scc's `HashIndex`: buckets of 32 entries, lock-free reads, reclaimed by sdd.

use std::sync::Arc;

use scc::Guard;
use scc::hash_index::{Entry, HashIndex};

use super::{Handle, Lookup, Table, View};
use crate::harness::hashers::Foldhash;
use crate::tables::candidate::Lookups;
use crate::tables::entries::Key;

/// `HashIndex` with a guard per operation, which `peek_with` makes.
#[derive(Debug)]
pub struct SccIndex<K: Key>(HashIndex<K, u64, Foldhash>);

impl<K: Key> Lookup for SccIndex<K> {
    const NAME: &'static str = "scc::HashIndex";
    type Key = K;
    type Session<'t> = &'t HashIndex<K, u64, Foldhash>;

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }

    #[inline(always)]
    fn get(index: &mut Self::Session<'_>, key: &K::View) -> Option<u64> {
        index.peek_with(key, |_, value| *value)
    }
}

impl<K: Key> Table for SccIndex<K> {
    fn with_capacity(capacity: usize) -> Self {
        Self(HashIndex::with_capacity_and_hasher(capacity, Foldhash::default()))
    }

    #[inline(always)]
    fn insert(index: &mut Self::Session<'_>, key: K, value: u64) -> bool {
        match index.entry_sync(key) {
            Entry::Occupied(mut entry) => {
                entry.update(value);
                false
            }
            Entry::Vacant(entry) => {
                entry.insert_entry(value);
                true
            }
        }
    }

    #[inline(always)]
    fn try_insert(index: &mut Self::Session<'_>, key: K, value: u64) -> bool {
        index.insert_sync(key, value).is_ok()
    }

    #[inline(always)]
    fn remove(index: &mut Self::Session<'_>, key: &View<Self>) -> bool {
        index.remove_sync(key)
    }

    fn clear(index: &mut Self::Session<'_>) {
        index.clear_sync();
    }

    #[inline(always)]
    fn for_each(index: &mut Self::Session<'_>, mut visit: impl FnMut(u64)) {
        index.iter(&Guard::new()).for_each(|(_, value)| visit(*value));
    }

    fn lookups(self: Arc<Self>) -> Vec<Arc<dyn Lookups>> {
        vec![Arc::clone(&self) as _, Arc::new(Handle(self))]
    }
}

impl<K: Key> Lookup for Handle<SccIndex<K>> {
    const NAME: &'static str = "scc::HashIndex, handle";
    type Key = K;
    type Session<'t> = (&'t HashIndex<K, u64, Foldhash>, Guard);

    fn session(&self) -> Self::Session<'_> {
        (&self.0.0, Guard::new())
    }

    #[inline(always)]
    fn get((index, guard): &mut Self::Session<'_>, key: &K::View) -> Option<u64> {
        index.peek(key, guard).copied()
    }
}
