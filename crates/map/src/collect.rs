//! Filling maps from iterators, copying and comparing them.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use relativist_bucket::Form;

use crate::entry::Stores;
use crate::map::Map;

impl<K, V, S: Default, F: Form> Default for Map<K, V, S, F> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

/// If several entries have equal keys, the last one is kept.
impl<K: Hash + Eq, V, S: BuildHasher + Default, F: Stores<K, V>> FromIterator<(K, V)> for Map<K, V, S, F> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let map = Self::default();
        map.insert_many(entries);
        map
    }
}

/// ```
/// let map = relativist::HashMap::from([("one", 1), ("two", 2)]);
/// assert_eq!(map.len(), 2);
/// ```
impl<K, V, F: Form, const N: usize> From<[(K, V); N]> for Map<K, V, RandomState, F>
where
    Self: FromIterator<(K, V)>,
{
    fn from(entries: [(K, V); N]) -> Self {
        Self::from_iter(entries)
    }
}

impl<K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> Extend<(K, V)> for Map<K, V, S, F> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.insert_many(entries);
    }
}

/// Extends a map through a shared reference; see [`Map::insert_many`].
impl<K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> Extend<(K, V)> for &Map<K, V, S, F> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.insert_many(entries);
    }
}

impl<'a, K: Hash + Eq + Copy, V: Copy, S: BuildHasher, F: Stores<K, V>> Extend<(&'a K, &'a V)> for Map<K, V, S, F> {
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
        self.insert_many(entries.into_iter().map(|(&key, &value)| (key, value)));
    }
}

/// Copies the entries as an iteration sees them. If other threads update the map at the same time,
/// the copy is not a snapshot of one instant.
///
/// **A clone is another map.** To share one map between threads or tasks, clone an `Arc` of it.
impl<K: Hash + Eq + Clone, V: Clone, S: BuildHasher + Clone, F: Stores<K, V>> Clone for Map<K, V, S, F> {
    fn clone(&self) -> Self {
        let clone = Self::with_capacity_and_hasher(self.len(), self.hasher().clone());
        clone.insert_many(self.pin().iter().map(|(key, value)| (key.clone(), value.clone())));
        clone
    }
}

/// Returns whether both maps have the same keys with equal values. Compares one entry after the
/// other: if other threads update one of the maps at the same time, the result may not be true at
/// any single instant.
impl<K: Hash + Eq, V: PartialEq, S: BuildHasher, F: Form> PartialEq for Map<K, V, S, F> {
    fn eq(&self, other: &Self) -> bool {
        let (pinned, others) = (self.pin(), other.pin());
        self.len() == other.len() && pinned.iter().all(|(key, value)| others.get(key) == Some(value))
    }
}

impl<K: Hash + Eq, V: Eq, S: BuildHasher, F: Form> Eq for Map<K, V, S, F> {}

impl<K: fmt::Debug + Hash + Eq, V: fmt::Debug, S: BuildHasher, F: Form> fmt::Debug for Map<K, V, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pin().fmt(f)
    }
}
