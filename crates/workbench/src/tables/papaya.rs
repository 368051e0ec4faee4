//! papaya: open addressing, lock-free, reclaimed by seize. Resizes incrementally, which is its
//! default.

use std::sync::Arc;

use papaya::{HashMap, HashMapRef, LocalGuard};

use super::hashers::Foldhash;
use super::{Handle, Lookup, Table, View};
use crate::tables::candidate::Lookups;
use crate::tables::entries::{Key, Value};

#[derive(Debug)]
pub struct Papaya<K: Key, V: Value>(HashMap<K, V, Foldhash>);

impl<K: Key, V: Value> Lookup for Papaya<K, V> {
    const NAME: &'static str = "papaya";
    type Key = K;
    type Value = V;
    type Session<'t> = &'t HashMap<K, V, Foldhash>;

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }

    #[inline(always)]
    fn get(map: &mut Self::Session<'_>, key: &K::View) -> Option<V> {
        map.pin().get(key).copied()
    }
}

impl<K: Key, V: Value> Table for Papaya<K, V> {
    fn with_capacity(capacity: usize) -> Self {
        Self(HashMap::with_capacity_and_hasher(capacity, Foldhash::default()))
    }

    #[inline(always)]
    fn insert(map: &mut Self::Session<'_>, key: K, value: V) -> bool {
        map.pin().insert(key, value).is_none()
    }

    #[inline(always)]
    fn try_insert(map: &mut Self::Session<'_>, key: K, value: V) -> bool {
        map.pin().try_insert(key, value).is_ok()
    }

    #[inline(always)]
    fn replace(map: &mut Self::Session<'_>, key: K, value: V) -> bool {
        map.pin().insert(key, value).is_some()
    }

    #[inline(always)]
    fn remove(map: &mut Self::Session<'_>, key: &View<Self>) -> bool {
        map.pin().remove(key).is_some()
    }

    fn clear(map: &mut Self::Session<'_>) {
        map.pin().clear();
    }

    #[inline(always)]
    fn for_each(map: &mut Self::Session<'_>, mut visit: impl FnMut(V)) {
        map.pin().iter().for_each(|(_, value)| visit(*value));
    }

    fn lookups(self: Arc<Self>) -> Vec<Arc<dyn Lookups>> {
        vec![Arc::clone(&self) as _, Arc::new(Handle(self))]
    }
}

impl<K: Key, V: Value> Lookup for Handle<Papaya<K, V>> {
    const NAME: &'static str = "papaya, handle";
    type Key = K;
    type Value = V;
    type Session<'t> = HashMapRef<'t, K, V, Foldhash, LocalGuard<'t>>;

    fn session(&self) -> Self::Session<'_> {
        self.0.0.pin()
    }

    #[inline(always)]
    fn get(pinned: &mut Self::Session<'_>, key: &K::View) -> Option<V> {
        pinned.get(key).copied()
    }
}
