//! Filling lock maps from iterators, copying and showing them.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;

use super::lockable::Attempt;
use super::{LockMap, RefMut};

impl<K, V, S: Default> Default for LockMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K, V, S> Extend<(K, V)> for LockMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        (&*self).extend(entries);
    }
}

/// Extends a map through a shared reference.
impl<K, V, S> Extend<(K, V)> for &LockMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        entries.into_iter().for_each(|(key, value)| _ = self.insert(key, value));
    }
}

/// If several entries have equal keys, the last value is kept.
impl<K, V, S> FromIterator<(K, V)> for LockMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    S: BuildHasher + Default,
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
impl<K: Hash + Eq + Send + Sync + 'static, V: Send + 'static, const N: usize> From<[(K, V); N]> for LockMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        Self::from_iter(entries)
    }
}

/// Copies the entries, one after the other, each under its lock.
///
/// **A clone is another map.** To share one map between threads or tasks, clone an `Arc` of it.
impl<K, V, S> Clone for LockMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + 'static,
    S: BuildHasher + Clone,
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

/// Does not wait: shows `<locked>` for values that are locked.
impl<K: fmt::Debug + Hash + Eq, V: fmt::Debug, S: BuildHasher> fmt::Debug for LockMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pinned = self.map.pin();
        let mut entries = f.debug_map();
        for node in pinned.section.iter(&self.map.hashing) {
            match node.value.try_lock() {
                Attempt::Locked => {
                    // SAFETY: this thread has locked it.
                    let guard = unsafe { RefMut::new(NonNull::from(node)) };
                    entries.entry(guard.key(), guard.value());
                }
                Attempt::Busy if node.value.has_value() => _ = entries.entry(&node.key, &format_args!("<locked>")),
                Attempt::Busy | Attempt::Removed => {}
            }
        }
        entries.finish()
    }
}
