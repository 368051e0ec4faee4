//! Filling lock maps from iterators, copying and showing them.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ptr::NonNull;

use relativist_bucket::Form;
use relativist_core::sync::yield_now;

use super::lockable::Attempt;
use super::{Map, RefMut, Stores};

impl<K, V, S: Default, F: Form> Default for Map<K, V, S, F> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K, V, S, F> Extend<(K, V)> for Map<K, V, S, F>
where
    K: Hash + Eq,
    S: BuildHasher,
    F: Stores<K, V>,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        (&*self).extend(entries);
    }
}

/// Extends a map through a shared reference.
impl<K, V, S, F> Extend<(K, V)> for &Map<K, V, S, F>
where
    K: Hash + Eq,
    S: BuildHasher,
    F: Stores<K, V>,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        entries.into_iter().for_each(|(key, value)| _ = self.insert(key, value));
    }
}

/// If several entries have equal keys, the last value is kept.
impl<K, V, S, F> FromIterator<(K, V)> for Map<K, V, S, F>
where
    K: Hash + Eq,
    S: BuildHasher + Default,
    F: Stores<K, V>,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        let map = Self::with_capacity_and_hasher(0, S::default());
        // Without memory for the buckets the map grows as far as it can.
        _ = map.try_reserve(entries.size_hint().0);
        (&map).extend(entries);
        map
    }
}

/// ```
/// let map = relativist::LockMap::from([("one", 1), ("two", 2)]);
/// assert_eq!(map.len(), 2);
/// ```
impl<K: Hash + Eq, V, F: Stores<K, V>, const N: usize> From<[(K, V); N]> for Map<K, V, RandomState, F> {
    fn from(entries: [(K, V); N]) -> Self {
        Self::from_iter(entries)
    }
}

/// Copies the entries, one after the other, each under its lock.
///
/// **A clone is another map.** To share one map between threads or tasks, clone an `Arc` of it.
impl<K, V, S, F> Clone for Map<K, V, S, F>
where
    K: Hash + Eq + Clone,
    V: Clone,
    S: BuildHasher + Clone,
    F: Stores<K, V>,
{
    fn clone(&self) -> Self {
        let clone = Self::with_capacity_and_hasher(self.len(), self.hasher().clone());
        for guard in self {
            let (key, value) = guard.pair();
            let (key, value) = (key.clone(), value.clone());
            drop(guard);
            clone.insert(key, value);
        }
        clone
    }
}

/// Does not wait for locks: shows `<locked>` for values that are locked.
impl<K: fmt::Debug + Hash + Eq, V: fmt::Debug, S: BuildHasher, F: Form> fmt::Debug for Map<K, V, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let section = self.table.enter();
        let mut entries = f.debug_map();
        for mut node in section.iter(&self.hashing) {
            let attempt = loop {
                match node.value.try_lock() {
                    // Copying takes a moment, and the copy is found where lookups find it.
                    Attempt::Moved => match section.find(self.hash(&node.key), |other| other.key == node.key) {
                        Some(found) => node = found,
                        None => break Attempt::Removed,
                    },
                    attempt => break attempt,
                }
                yield_now();
            };
            if attempt == Attempt::Locked {
                // SAFETY: this thread has locked it.
                let guard = unsafe { RefMut::new(NonNull::from(node)) };
                entries.entry(guard.key(), guard.value());
            } else if attempt == Attempt::Busy && node.value.has_value() {
                entries.entry(&node.key, &format_args!("<locked>"));
            }
        }
        entries.finish()
    }
}
