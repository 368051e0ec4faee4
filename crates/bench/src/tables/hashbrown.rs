//! hashbrown without synchronisation per operation: the lower bound.
//!
//! A reader-writer lock, taken once per batch of 1024 operations, keeps it sound. Lookups take it
//! shared, so any number of threads can run them. Other workloads take it exclusively, and run with
//! one thread only.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hashbrown::HashMap;

use super::{Handle, Lookup, Table, View};
use crate::harness::hashers::Foldhash;
use crate::tables::candidate::Lookups;
use crate::tables::entries::Key;

const NAME: &str = "hashbrown, unsynchronised";

/// hashbrown for workloads with updates, which use one thread.
#[derive(Debug)]
pub struct Hashbrown<K>(RwLock<HashMap<K, u64, Foldhash>>);

impl<K: Key> Lookup for Hashbrown<K> {
    const NAME: &'static str = NAME;
    type Key = K;
    type Session<'t> = RwLockWriteGuard<'t, HashMap<K, u64, Foldhash>>;

    fn session(&self) -> Self::Session<'_> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    fn get(map: &mut Self::Session<'_>, key: &K::View) -> Option<u64> {
        map.get(key).copied()
    }
}

impl<K: Key> Table for Hashbrown<K> {
    fn with_capacity(capacity: usize) -> Self {
        Self(RwLock::new(HashMap::with_capacity_and_hasher(capacity, Foldhash::default())))
    }

    #[inline(always)]
    fn insert(map: &mut Self::Session<'_>, key: K, value: u64) -> bool {
        map.insert(key, value).is_none()
    }

    #[inline(always)]
    fn try_insert(map: &mut Self::Session<'_>, key: K, value: u64) -> bool {
        map.try_insert(key, value).is_ok()
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
        map.values().for_each(|value| visit(*value));
    }

    fn lookups(self: Arc<Self>) -> Vec<Arc<dyn Lookups>> {
        vec![Arc::new(Handle(self))]
    }
}

/// Lookups by any number of threads.
impl<K: Key> Lookup for Handle<Hashbrown<K>> {
    const NAME: &'static str = NAME;
    type Key = K;
    type Session<'t> = RwLockReadGuard<'t, HashMap<K, u64, Foldhash>>;

    fn session(&self) -> Self::Session<'_> {
        self.0.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    fn get(map: &mut Self::Session<'_>, key: &K::View) -> Option<u64> {
        map.get(key).copied()
    }
}
