//! Filling maps from iterators.

use std::hash::{BuildHasher, Hash};

use relativist_rcu::{is_reading, read};

use crate::map::HashMap;

impl<K, V, S> HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn fill(&self, entries: impl IntoIterator<Item = (K, V)>) {
        let entries = entries.into_iter();
        // Only to save resizes: without memory for so many buckets, or where we may not wait, the map grows as it goes.
        if !is_reading() {
            let _ = self.reserve(entries.size_hint().0);
        }
        // A guard for each entry: what is replaced can be dropped before all are in.
        for (key, value) in entries {
            self.insert(key, value, &read());
        }
    }
}

impl<K, V, S> FromIterator<(K, V)> for HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let map = Self::default();
        map.fill(entries);
        map
    }
}

/// ```
/// let map = relativist::HashMap::from([("one", 1), ("two", 2)]);
/// assert_eq!(map.len(), 2);
/// ```
impl<K, V, const N: usize> From<[(K, V); N]> for HashMap<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn from(entries: [(K, V); N]) -> Self {
        Self::from_iter(entries)
    }
}

impl<K, V, S> Extend<(K, V)> for HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.fill(entries);
    }
}

/// So that a map can be extended through a shared reference.
impl<K, V, S> Extend<(K, V)> for &HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.fill(entries);
    }
}
