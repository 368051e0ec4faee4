//! scc's `HashMap`: buckets of 32 entries, each with a reader-writer lock.

use scc::HashMap;

use super::{Lookup, Table, View};
use crate::harness::hashers::Foldhash;
use crate::tables::entries::Key;

#[derive(Debug)]
pub struct SccMap<K: Key>(HashMap<K, u64, Foldhash>);

impl<K: Key> Lookup for SccMap<K> {
    const NAME: &'static str = "scc::HashMap";
    type Key = K;
    type Session<'t> = &'t HashMap<K, u64, Foldhash>;

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }

    #[inline(always)]
    fn get(map: &mut Self::Session<'_>, key: &K::View) -> Option<u64> {
        map.read_sync(key, |_, value| *value)
    }
}

impl<K: Key> Table for SccMap<K> {
    fn with_capacity(capacity: usize) -> Self {
        Self(HashMap::with_capacity_and_hasher(capacity, Foldhash::default()))
    }

    #[inline(always)]
    fn insert(map: &mut Self::Session<'_>, key: K, value: u64) -> bool {
        map.upsert_sync(key, value).is_none()
    }

    #[inline(always)]
    fn try_insert(map: &mut Self::Session<'_>, key: K, value: u64) -> bool {
        map.insert_sync(key, value).is_ok()
    }

    #[inline(always)]
    fn remove(map: &mut Self::Session<'_>, key: &View<Self>) -> bool {
        map.remove_sync(key).is_some()
    }

    fn clear(map: &mut Self::Session<'_>) {
        map.clear_sync();
    }

    #[inline(always)]
    fn for_each(map: &mut Self::Session<'_>, mut visit: impl FnMut(u64)) {
        map.iter_sync(|_, value| {
            visit(*value);
            true
        });
    }
}
