//! dashmap: hashbrown tables behind reader-writer locks, four per CPU.

use dashmap::{DashMap, Entry};

use super::{Lookup, Table, View};
use crate::harness::hashers::Foldhash;
use crate::tables::entries::Key;

#[derive(Debug)]
pub struct Dashmap<K: Key>(DashMap<K, u64, Foldhash>);

impl<K: Key> Lookup for Dashmap<K> {
    const NAME: &'static str = "dashmap";
    type Key = K;
    type Session<'t> = &'t DashMap<K, u64, Foldhash>;

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }

    #[inline(always)]
    fn get(map: &mut Self::Session<'_>, key: &K::View) -> Option<u64> {
        map.get(key).map(|entry| *entry)
    }
}

impl<K: Key> Table for Dashmap<K> {
    fn with_capacity(capacity: usize) -> Self {
        Self(DashMap::with_capacity_and_hasher(capacity, Foldhash::default()))
    }

    #[inline(always)]
    fn insert(map: &mut Self::Session<'_>, key: K, value: u64) -> bool {
        map.insert(key, value).is_none()
    }

    #[inline(always)]
    fn try_insert(map: &mut Self::Session<'_>, key: K, value: u64) -> bool {
        match map.entry(key) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(value);
                true
            }
        }
    }

    #[inline(always)]
    fn remove(map: &mut Self::Session<'_>, key: &View<Self>) -> bool {
        map.remove(key).is_some()
    }

    fn clear(map: &mut Self::Session<'_>) {
        map.clear();
    }

    #[inline(always)]
    fn for_each(map: &mut Self::Session<'_>, mut visit: impl FnMut(u64)) {
        map.iter().for_each(|entry| visit(*entry));
    }
}
