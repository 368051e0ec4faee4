//! The standard library's map behind one of its locks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError, RwLock};

use super::{Lookup, Table, View};
use crate::harness::hashers::Foldhash;
use crate::tables::entries::Key;

type Map<K> = HashMap<K, u64, Foldhash>;

/// A lock around a map.
pub trait Lock: Debug + Send + Sync + 'static {
    const NAME: &'static str;
    type Key: Key;

    fn around(map: Map<Self::Key>) -> Self;

    fn read(&self) -> impl Deref<Target = Map<Self::Key>>;

    fn write(&self) -> impl DerefMut<Target = Map<Self::Key>>;
}

macro_rules! lock {
    ($lock:ident, $name:literal, $read:ident, $write:ident) => {
        impl<K: Key> Lock for $lock<Map<K>> {
            const NAME: &'static str = $name;
            type Key = K;

            fn around(map: Map<K>) -> Self {
                Self::new(map)
            }

            #[inline(always)]
            fn read(&self) -> impl Deref<Target = Map<K>> {
                self.$read().unwrap_or_else(PoisonError::into_inner)
            }

            #[inline(always)]
            fn write(&self) -> impl DerefMut<Target = Map<K>> {
                self.$write().unwrap_or_else(PoisonError::into_inner)
            }
        }
    };
}
lock!(RwLock, "std RwLock", read, write);
lock!(Mutex, "std Mutex", lock, lock);

#[derive(Debug)]
pub struct Locked<L>(L);

impl<L: Lock> Lookup for Locked<L> {
    const NAME: &'static str = L::NAME;
    type Key = L::Key;
    type Session<'t> = &'t L;

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }

    #[inline(always)]
    fn get(map: &mut Self::Session<'_>, key: &View<Self>) -> Option<u64> {
        map.read().get(key).copied()
    }
}

impl<L: Lock> Table for Locked<L> {
    fn with_capacity(capacity: usize) -> Self {
        Self(L::around(HashMap::with_capacity_and_hasher(capacity, Foldhash::default())))
    }

    #[inline(always)]
    fn insert(map: &mut Self::Session<'_>, key: L::Key, value: u64) -> bool {
        map.write().insert(key, value).is_none()
    }

    #[inline(always)]
    fn try_insert(map: &mut Self::Session<'_>, key: L::Key, value: u64) -> bool {
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
