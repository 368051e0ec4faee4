//! The standard library's map behind its reader-writer lock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{Lookup, Table, View};
use crate::harness::hashers::Foldhash;
use crate::tables::entries::Key;

type Map<K> = HashMap<K, u64, Foldhash>;

#[derive(Debug)]
pub struct Locked<K>(RwLock<Map<K>>);

impl<K: Key> Locked<K> {
    #[inline(always)]
    fn read(&self) -> RwLockReadGuard<'_, Map<K>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    fn write(&self) -> RwLockWriteGuard<'_, Map<K>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Key> Lookup for Locked<K> {
    const NAME: &'static str = "std RwLock";
    type Key = K;
    type Session<'t> = &'t Self;

    fn session(&self) -> Self::Session<'_> {
        self
    }

    #[inline(always)]
    fn get(map: &mut Self::Session<'_>, key: &K::View) -> Option<u64> {
        map.read().get(key).copied()
    }
}

impl<K: Key> Table for Locked<K> {
    fn with_capacity(capacity: usize) -> Self {
        Self(RwLock::new(HashMap::with_capacity_and_hasher(capacity, Foldhash::default())))
    }

    #[inline(always)]
    fn insert(map: &mut Self::Session<'_>, key: K, value: u64) -> bool {
        map.write().insert(key, value).is_none()
    }

    #[inline(always)]
    fn try_insert(map: &mut Self::Session<'_>, key: K, value: u64) -> bool {
        match map.write().entry(key) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(value);
                true
            }
        }
    }

    #[inline(always)]
    fn remove(map: &mut Self::Session<'_>, key: &View<Self>) -> bool {
        map.write().remove(key).is_some()
    }

    fn clear(map: &mut Self::Session<'_>) {
        map.write().clear();
    }

    #[inline(always)]
    fn for_each(map: &mut Self::Session<'_>, mut visit: impl FnMut(u64)) {
        map.read().values().for_each(|value| visit(*value));
    }
}
