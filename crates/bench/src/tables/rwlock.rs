//! The standard library's map behind one reader-writer lock: std's and parking_lot's.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use super::{Lookup, Table, View};
use crate::harness::hashers::Foldhash;
use crate::tables::entries::{Key, Value};

type Map<K, V> = HashMap<K, V, Foldhash>;

/// A reader-writer lock.
pub trait Lock<T>: Send + Sync + 'static {
    /// The name of the table behind it in reports.
    const NAME: &'static str;

    fn new(content: T) -> Self;

    fn read(&self) -> impl Deref<Target = T>;

    fn write(&self) -> impl DerefMut<Target = T>;
}

impl<T: Send + Sync + 'static> Lock<T> for std::sync::RwLock<T> {
    const NAME: &'static str = "std RwLock";

    fn new(content: T) -> Self {
        Self::new(content)
    }

    #[inline(always)]
    fn read(&self) -> impl Deref<Target = T> {
        self.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    fn write(&self) -> impl DerefMut<Target = T> {
        self.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + Sync + 'static> Lock<T> for parking_lot::RwLock<T> {
    const NAME: &'static str = "parking_lot RwLock";

    fn new(content: T) -> Self {
        Self::new(content)
    }

    #[inline(always)]
    fn read(&self) -> impl Deref<Target = T> {
        self.read()
    }

    #[inline(always)]
    fn write(&self) -> impl DerefMut<Target = T> {
        self.write()
    }
}

#[derive(Debug)]
pub struct Locked<L, K, V> {
    map: L,
    _holds: std::marker::PhantomData<fn() -> (K, V)>,
}

impl<L: Lock<Map<K, V>>, K: Key, V: Value> Lookup for Locked<L, K, V> {
    const NAME: &'static str = L::NAME;
    type Key = K;
    type Value = V;
    type Session<'t> = &'t L;

    fn session(&self) -> Self::Session<'_> {
        &self.map
    }

    #[inline(always)]
    fn get(map: &mut Self::Session<'_>, key: &K::View) -> Option<V> {
        map.read().get(key).copied()
    }
}

impl<L: Lock<Map<K, V>>, K: Key, V: Value> Table for Locked<L, K, V> {
    fn with_capacity(capacity: usize) -> Self {
        let map = L::new(HashMap::with_capacity_and_hasher(capacity, Foldhash::default()));
        Self { map, _holds: std::marker::PhantomData }
    }

    #[inline(always)]
    fn insert(map: &mut Self::Session<'_>, key: K, value: V) -> bool {
        map.write().insert(key, value).is_none()
    }

    #[inline(always)]
    fn try_insert(map: &mut Self::Session<'_>, key: K, value: V) -> bool {
        match map.write().entry(key) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(value);
                true
            }
        }
    }

    #[inline(always)]
    fn replace(map: &mut Self::Session<'_>, key: K, value: V) -> bool {
        map.write().get_mut(key.view()).map(|present| *present = value).is_some()
    }

    #[inline(always)]
    fn remove(map: &mut Self::Session<'_>, key: &View<Self>) -> bool {
        map.write().remove(key).is_some()
    }

    fn clear(map: &mut Self::Session<'_>) {
        map.write().clear();
    }

    #[inline(always)]
    fn for_each(map: &mut Self::Session<'_>, mut visit: impl FnMut(V)) {
        map.read().values().for_each(|value| visit(*value));
    }
}
