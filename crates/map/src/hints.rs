//! What the compiler says to those who expect operations on the map itself. These methods cannot
//! be called: nothing implements the traits that they require.

use std::hash::{BuildHasher, Hash};

use relativist_bucket::Form;

use crate::lock_map::{self, Entry, RefMut};
use crate::map::Map;
use crate::pinned::Pinned;
use crate::set::Set;

/// Implemented by nothing.
///
/// ```compile_fail,E0277
/// let map = relativist::HashMap::from([(1, 2)]);
/// map.get(&1); // error: entries are used through a handle: call `pin()` first
/// ```
#[diagnostic::on_unimplemented(
    message = "entries are used through a handle: call `pin()` first, as in `map.pin().get(&key)`",
    label = "`pin()` is missing",
    note = "`get_copied`, `get_cloned` and `contains_key` need no handle. References live as long as the handle: keep it in a variable, `let pinned = map.pin();`"
)]
#[doc(hidden)]
pub trait ThroughPin {}

/// Implemented by nothing.
///
/// ```compile_fail,E0277
/// let map = relativist::HashMap::from([(1, 2)]);
/// map.entry(1); // error: this map replaces values as a whole
/// ```
#[diagnostic::on_unimplemented(
    message = "this map replaces values as a whole, and has no `entry` and no `get_mut`",
    label = "use `compute`, `get_or_insert_with`, `update` or `update_or_insert` of `pin()`, or a `LockMap`",
    note = "in a `LockMap`, values change in place: it has `entry`, and `lock` for what other maps call `get_mut`"
)]
#[doc(hidden)]
pub trait HasEntry {}

/// Implemented by nothing.
///
/// ```compile_fail,E0277
/// let map = relativist::LockMap::from([(1, 2)]);
/// map.get(&1); // error: a `LockMap` has `lock` for `get`, `get_mut`, `view` and `alter`
/// ```
#[diagnostic::on_unimplemented(
    message = "a `LockMap` has `lock` for `get`, `get_mut`, `view` and `alter`",
    label = "use `lock(&key)`, whose guard dereferences to the value",
    note = "a lock is exclusive, also for reading: for a copy use `get_copied` or `get_cloned`"
)]
#[doc(hidden)]
pub trait ThroughLock {}

const NEVER: &str = "nothing implements what this requires";

#[doc(hidden)]
impl<K, V, S, F: Form> Map<K, V, S, F> {
    pub fn get<Q: ?Sized>(&self, _: &Q) -> Option<&V>
    where
        Self: ThroughPin,
    {
        unreachable!("{NEVER}")
    }

    pub fn insert(&self, _: K, _: V) -> Option<&V>
    where
        Self: ThroughPin,
    {
        unreachable!("{NEVER}")
    }

    pub fn remove<Q: ?Sized>(&self, _: &Q) -> Option<&V>
    where
        Self: ThroughPin,
    {
        unreachable!("{NEVER}")
    }

    pub fn iter(&self) -> std::slice::Iter<'_, (&K, &V)>
    where
        Self: ThroughPin,
    {
        unreachable!("{NEVER}")
    }

    pub fn retain(&self, _: impl FnMut(&K, &V) -> bool)
    where
        Self: ThroughPin,
    {
        unreachable!("{NEVER}")
    }

    pub fn clear(&self)
    where
        Self: ThroughPin,
    {
        unreachable!("{NEVER}")
    }

    pub fn entry(&self, _: K) -> Entry<'_, K, V, S>
    where
        K: Hash + Eq + Send + Sync + 'static,
        V: Send + 'static,
        S: BuildHasher,
        Self: HasEntry,
    {
        unreachable!("{NEVER}")
    }
}

#[doc(hidden)]
impl<K, V, S, F: Form> Pinned<'_, K, V, S, F> {
    pub fn entry(&self, _: K) -> Entry<'_, K, V, S>
    where
        K: Hash + Eq + Send + Sync + 'static,
        V: Send + 'static,
        S: BuildHasher,
        Self: HasEntry,
    {
        unreachable!("{NEVER}")
    }

    pub fn get_mut<Q: ?Sized>(&self, _: &Q) -> Option<RefMut<'_, K, V>>
    where
        Self: HasEntry,
    {
        unreachable!("{NEVER}")
    }
}

#[doc(hidden)]
impl<T, S, F: Form> Set<T, S, F> {
    pub fn contains<Q: ?Sized>(&self, _: &Q) -> bool
    where
        Self: ThroughPin,
    {
        unreachable!("{NEVER}")
    }

    pub fn insert(&self, _: T) -> bool
    where
        Self: ThroughPin,
    {
        unreachable!("{NEVER}")
    }

    pub fn remove<Q: ?Sized>(&self, _: &Q) -> bool
    where
        Self: ThroughPin,
    {
        unreachable!("{NEVER}")
    }

    pub fn iter(&self) -> std::slice::Iter<'_, &T>
    where
        Self: ThroughPin,
    {
        unreachable!("{NEVER}")
    }
}

#[doc(hidden)]
impl<K, V, S, F: Form> lock_map::Map<K, V, S, F> {
    pub fn get<Q: ?Sized>(&self, _: &Q) -> Option<RefMut<'_, K, V>>
    where
        Self: ThroughLock,
    {
        unreachable!("{NEVER}")
    }

    pub fn get_mut<Q: ?Sized>(&self, _: &Q) -> Option<RefMut<'_, K, V>>
    where
        Self: ThroughLock,
    {
        unreachable!("{NEVER}")
    }

    pub fn view<Q: ?Sized, R>(&self, _: &Q, _: impl FnOnce(&K, &V) -> R) -> Option<R>
    where
        Self: ThroughLock,
    {
        unreachable!("{NEVER}")
    }

    pub fn alter<Q: ?Sized>(&self, _: &Q, _: impl FnOnce(&K, V) -> V)
    where
        Self: ThroughLock,
    {
        unreachable!("{NEVER}")
    }
}
