//! Filling flat maps from iterators and from each other, and comparing them.

use std::hash::{BuildHasher, Hash};

use relativist_rcu::read;

use super::map::FlatMap;
use super::relocate::Relocatable;
use super::table::Table;

impl<K, V, S> FlatMap<K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    fn fill(&self, entries: impl IntoIterator<Item = (K, V)>) {
        let entries = entries.into_iter();
        self.expect(entries.size_hint().0);
        // Each entry has a guard of its own, so that replaced entries can be dropped before the
        // last entry is inserted.
        for (key, value) in entries {
            self.insert(key, value, &read());
        }
    }
}

impl<K, V, S> FromIterator<(K, V)> for FlatMap<K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Default + Send + Sync + 'static,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let map = Self::default();
        map.fill(entries);
        map
    }
}

/// ```
/// let map = relativist::flat::FlatMap::from([("one", 1), ("two", 2)]);
/// assert_eq!(map.len(), 2);
/// ```
impl<K, V, const N: usize> From<[(K, V); N]> for FlatMap<K, V>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
{
    fn from(entries: [(K, V); N]) -> Self {
        Self::from_iter(entries)
    }
}

impl<K, V, S> Extend<(K, V)> for FlatMap<K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.fill(entries);
    }
}

/// Extends a map through a shared reference.
impl<K, V, S> Extend<(K, V)> for &FlatMap<K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.fill(entries);
    }
}

impl<'a, K, V, S> Extend<(&'a K, &'a V)> for FlatMap<K, V, S>
where
    K: Hash + Eq + Relocatable + Copy,
    V: Relocatable + Copy,
    S: BuildHasher + Send + Sync + 'static,
{
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
        self.fill(entries.into_iter().map(|(&key, &value)| (key, value)));
    }
}

/// Copies the entries as [`FlatMap::iter`] sees them. If other threads update the map at the same
/// time, the copy is not a snapshot of one instant. The copy has the same policy and number of
/// buckets.
///
/// # Panics
///
/// Panics if the buckets cannot be allocated.
impl<K, V, S> Clone for FlatMap<K, V, S>
where
    K: Hash + Eq + Clone + Relocatable,
    V: Clone + Relocatable,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn clone(&self) -> Self {
        let table = Table::new(self.buckets(), self.policy(), self.hasher().clone());
        let clone = Self::of(table.unwrap_or_else(|error| panic!("{error}")));
        let guard = read();
        for (key, value) in self.iter(&guard) {
            clone.insert(key.clone(), value.clone(), &guard);
        }
        clone
    }
}

/// Returns whether both maps have the same keys with equal values. Compares one entry after the
/// other: if other threads update one of the maps at the same time, the result may not be true at
/// any single instant.
impl<K, V, S> PartialEq for FlatMap<K, V, S>
where
    K: Hash + Eq,
    V: PartialEq,
    S: BuildHasher,
{
    fn eq(&self, other: &Self) -> bool {
        let guard = read();
        let has_equal = |(key, value)| other.get(key, &guard).is_some_and(|its: &V| its == value);
        self.len() == other.len() && self.iter(&guard).all(has_equal)
    }
}

impl<K: Hash + Eq, V: Eq, S: BuildHasher> Eq for FlatMap<K, V, S> {}
