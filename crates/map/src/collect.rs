//! Filling maps from iterators and from each other, and comparing them.

use std::hash::{BuildHasher, Hash};

use relativist_rcu::{is_reading, read};

use crate::fill::Duplicates;
use crate::map::HashMap;
use crate::node::Node;
use crate::raw::Table;

impl<K, V, S> HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Makes room for the entries that are about to be inserted. This only saves resizes: if there
    /// is no memory for the buckets, or if this thread must not wait, the map grows step by step.
    pub(crate) fn expect(&self, additional: usize) {
        if !is_reading() {
            let _ = self.try_reserve(additional);
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
        let mut map = Self::default();
        map.fill_unseen(entries, Duplicates::Replace);
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

/// Extends a map that no other thread can see at the time: without locks, and without waiting for
/// readers.
impl<K, V, S> Extend<(K, V)> for HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.fill_unseen(entries, Duplicates::Replace);
    }
}

/// Extends a map through a shared reference. Inserts each entry before it takes the next one from
/// the iterator; [`HashMap::insert_many`] is faster.
impl<K, V, S> Extend<(K, V)> for &HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        let entries = entries.into_iter();
        self.expect(entries.size_hint().0);
        // Takes a guard for each entry, so that replaced entries can be dropped before the last one
        // is inserted.
        for (key, value) in entries {
            self.insert(key, value, &read());
        }
    }
}

impl<'a, K, V, S> Extend<(&'a K, &'a V)> for HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + Copy + 'static,
    V: Send + Sync + Copy + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
        self.fill_unseen(entries.into_iter().map(|(&key, &value)| (key, value)), Duplicates::Replace);
    }
}

/// Copies the entries as [`HashMap::iter`] sees them. If other threads update the map at the same
/// time, the copy is not a snapshot of one instant. The copy has the same policy and number of
/// buckets.
///
/// # Panics
///
/// Panics if the buckets cannot be allocated.
impl<K, V, S> Clone for HashMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    fn clone(&self) -> Self {
        let table = Table::new(self.buckets(), self.policy(), Node::<K, V>::dispose);
        let table = table.unwrap_or_else(|error| panic!("{error}"));
        let mut clone = Self::of(table, self.hasher.clone());
        let guard = read();
        let entries = self.iter(&guard).map(|(key, value)| (key.clone(), value.clone()));
        clone.fill_unseen(entries, Duplicates::Replace);
        clone
    }
}

/// Returns whether both maps have the same keys with equal values. Compares one entry after the
/// other: if other threads update one of the maps at the same time, the result may not be true at
/// any single instant.
impl<K, V, S> PartialEq for HashMap<K, V, S>
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

impl<K: Hash + Eq, V: Eq, S: BuildHasher> Eq for HashMap<K, V, S> {}
