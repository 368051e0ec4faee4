//! A flat map together with a guard.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::iter::FusedIterator;

use equivalent::Equivalent;
use relativist_rcu::Guard;

use super::bulk::{Drain, ExtractIf};
use super::iter::Iter;
use super::map::FlatMap;
use super::relocate::Relocatable;
use crate::access::{ExhaustedError, OccupiedError};
use crate::atomic::{Change, CompareExchangeError};

/// A map together with a read section. It has all operations on entries, which then take no guard.
/// Returned by [`FlatMap::pin`].
///
/// The references that it returns live as long as the handle. The handle cannot leave its thread,
/// like the guard in it, so it cannot be held across an `.await` of a task that may move to another
/// thread:
///
/// ```compile_fail
/// async fn wait() {}
/// async fn task(map: &relativist::flat::FlatMap<u32, u32>) {
///     let pinned = map.pin();
///     wait().await; // error further down: the future is not `Send`
///     pinned.get(&1);
/// }
/// fn spawn(future: impl Future + Send) {}
/// # let map = relativist::flat::FlatMap::new();
/// spawn(task(&map));
/// ```
///
/// ```
/// async fn wait() {}
/// async fn task(map: &relativist::flat::FlatMap<u32, u32>) {
///     wait().await;
///     map.pin().get(&1);
/// }
/// fn spawn(future: impl Future + Send) {}
/// # let map = relativist::flat::FlatMap::new();
/// spawn(task(&map));
/// ```
pub struct Pinned<'m, K, V, S> {
    map: &'m FlatMap<K, V, S>,
    guard: Guard,
}

impl<'m, K, V, S> Pinned<'m, K, V, S> {
    #[inline(always)]
    pub(crate) fn new(map: &'m FlatMap<K, V, S>, guard: Guard) -> Self {
        Self { map, guard }
    }

    /// Returns the map.
    pub fn map(&self) -> &'m FlatMap<K, V, S> {
        self.map
    }

    /// Returns the guard, for use with other maps.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// See [`FlatMap::len`].
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// See [`FlatMap::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Pinned<'_, K, V, S> {
    /// See [`FlatMap::get`].
    #[inline(always)]
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        self.map.get(key, &self.guard)
    }

    /// See [`FlatMap::iter`].
    pub fn iter(&self) -> Iter<'_, K, V, S> {
        self.map.iter(&self.guard)
    }

    /// See [`FlatMap::keys`].
    pub fn keys(&self) -> impl FusedIterator<Item = &K> {
        self.map.keys(&self.guard)
    }

    /// See [`FlatMap::values`].
    pub fn values(&self) -> impl FusedIterator<Item = &V> {
        self.map.values(&self.guard)
    }

    /// See [`FlatMap::scan`].
    pub fn scan<'p>(&'p self, cursor: u64, n: usize, visit: impl FnMut(&'p K, &'p V)) -> Option<u64> {
        self.map.scan(cursor, n, &self.guard, visit)
    }

    /// See [`FlatMap::get_many`].
    pub fn get_many<Q, const N: usize>(&self, keys: [&Q; N]) -> [Option<&V>; N]
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.map.get_many(keys, &self.guard)
    }

    /// See [`FlatMap::get_key_value`].
    #[inline]
    pub fn get_key_value<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<(&K, &V)> {
        self.map.get_key_value(key, &self.guard)
    }

    /// See [`FlatMap::contains_key`].
    #[inline]
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.map.contains_key(key, &self.guard)
    }
}

impl<K, V, S> Pinned<'_, K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    /// See [`FlatMap::insert`].
    #[inline]
    pub fn insert(&self, key: K, value: V) -> Option<&V> {
        self.map.insert(key, value, &self.guard)
    }

    /// See [`FlatMap::checked_insert`].
    ///
    /// # Errors
    ///
    /// Returns an error if there is no memory for the entry.
    pub fn checked_insert(&self, key: K, value: V) -> Result<Option<&V>, ExhaustedError<K, V>> {
        self.map.checked_insert(key, value, &self.guard)
    }

    /// See [`FlatMap::insert_many`].
    pub fn insert_many(&self, entries: impl IntoIterator<Item = (K, V)>) -> usize {
        self.map.insert_many(entries)
    }

    /// See [`FlatMap::try_insert`].
    ///
    /// # Errors
    ///
    /// Returns an error if the key is in the map.
    pub fn try_insert(&self, key: K, value: V) -> Result<&V, OccupiedError<'_, V>> {
        self.map.try_insert(key, value, &self.guard)
    }

    /// See [`FlatMap::get_or_insert`].
    pub fn get_or_insert(&self, key: K, value: V) -> &V {
        self.map.get_or_insert(key, value, &self.guard)
    }

    /// See [`FlatMap::get_or_insert_with`].
    pub fn get_or_insert_with(&self, key: K, value: impl FnOnce() -> V) -> &V {
        self.map.get_or_insert_with(key, value, &self.guard)
    }

    /// See [`FlatMap::update`].
    pub fn update(&self, key: K, update: impl FnMut(&V) -> V) -> Option<&V> {
        self.map.update(key, update, &self.guard)
    }

    /// See [`FlatMap::update_or_insert`].
    pub fn update_or_insert(&self, key: K, update: impl FnMut(&V) -> V, value: V) -> &V {
        self.map.update_or_insert(key, update, value, &self.guard)
    }

    /// See [`FlatMap::update_or_insert_with`].
    pub fn update_or_insert_with(&self, key: K, update: impl FnMut(&V) -> V, value: impl FnOnce() -> V) -> &V {
        self.map.update_or_insert_with(key, update, value, &self.guard)
    }

    /// See [`FlatMap::compute`].
    ///
    /// # Errors
    ///
    /// Returns the error of `decide`.
    pub fn compute<'p, E>(
        &'p self,
        key: K,
        decide: impl FnMut(Option<&'p V>) -> Result<Option<V>, E>,
    ) -> Result<Change<'p, V>, E> {
        self.map.compute(key, decide, &self.guard)
    }

    /// See [`FlatMap::compare_exchange`].
    ///
    /// # Errors
    ///
    /// Returns an error if the value is a different one, or the key is absent.
    pub fn compare_exchange(&self, key: K, current: &V, new: V) -> Result<&V, CompareExchangeError<'_, V>>
    where
        V: PartialEq,
    {
        self.map.compare_exchange(key, current, new, &self.guard)
    }

    /// See [`FlatMap::remove`].
    #[inline]
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        self.map.remove(key, &self.guard)
    }

    /// See [`FlatMap::remove_entry`].
    pub fn remove_entry<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<(&K, &V)> {
        self.map.remove_entry(key, &self.guard)
    }

    /// See [`FlatMap::remove_if`].
    pub fn remove_if<Q>(&self, key: &Q, condition: impl FnMut(&K, &V) -> bool) -> Option<(&K, &V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.map.remove_if(key, condition, &self.guard)
    }

    /// See [`FlatMap::clear`].
    pub fn clear(&self) {
        self.map.clear(&self.guard);
    }

    /// See [`FlatMap::retain`].
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) {
        self.map.retain(keep, &self.guard);
    }

    /// See [`FlatMap::extract_if`].
    pub fn extract_if<F: FnMut(&K, &V) -> bool>(&self, extract: F) -> ExtractIf<'_, K, V, S, F> {
        self.map.extract_if(extract, &self.guard)
    }

    /// See [`FlatMap::drain`].
    pub fn drain(&self) -> Drain<'_, K, V, S> {
        self.map.drain(&self.guard)
    }
}

impl<'p, K: Hash + Eq, V, S: BuildHasher> IntoIterator for &'p Pinned<'_, K, V, S> {
    type Item = (&'p K, &'p V);
    type IntoIter = Iter<'p, K, V, S>;

    fn into_iter(self) -> Iter<'p, K, V, S> {
        self.iter()
    }
}

impl<K: fmt::Debug + Hash + Eq, V: fmt::Debug, S: BuildHasher> fmt::Debug for Pinned<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.map.fmt(f)
    }
}
