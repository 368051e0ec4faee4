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
use crate::tables::entries::{Key, Value};

const NAME: &str = "hashbrown, unsynchronised";

/// hashbrown for workloads with updates, which use one thread.
#[derive(Debug)]
pub struct Hashbrown<K, V>(RwLock<HashMap<K, V, Foldhash>>);

impl<K: Key, V: Value> Lookup for Hashbrown<K, V> {
    const NAME: &'static str = NAME;
    type Key = K;
    type Value = V;
    type Session<'t> = RwLockWriteGuard<'t, HashMap<K, V, Foldhash>>;

    fn session(&self) -> Self::Session<'_> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    fn get(map: &mut Self::Session<'_>, key: &K::View) -> Option<V> {
        map.get(key).copied()
    }
}

impl<K: Key, V: Value> Table for Hashbrown<K, V> {
    fn with_capacity(capacity: usize) -> Self {
        Self(RwLock::new(HashMap::with_capacity_and_hasher(capacity, Foldhash::default())))
    }

    #[inline(always)]
    fn insert(map: &mut Self::Session<'_>, key: K, value: V) -> bool {
        map.insert(key, value).is_none()
    }

    #[inline(always)]
    fn try_insert(map: &mut Self::Session<'_>, key: K, value: V) -> bool {
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
    fn for_each(map: &mut Self::Session<'_>, mut visit: impl FnMut(V)) {
        map.values().for_each(|value| visit(*value));
    }

    fn lookups(self: Arc<Self>) -> Vec<Arc<dyn Lookups>> {
        vec![Arc::new(Handle(self))]
    }
}

/// Lookups by any number of threads.
impl<K: Key, V: Value> Lookup for Handle<Hashbrown<K, V>> {
    const NAME: &'static str = NAME;
    type Key = K;
    type Value = V;
    type Session<'t> = RwLockReadGuard<'t, HashMap<K, V, Foldhash>>;

    fn session(&self) -> Self::Session<'_> {
        self.0.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    fn get(map: &mut Self::Session<'_>, key: &K::View) -> Option<V> {
        map.get(key).copied()
    }
}
