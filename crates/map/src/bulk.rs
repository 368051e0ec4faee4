//! Operations on all entries: iterating, and removing entries during an iteration.
//!
//! An operation removes exactly the entry that it has read. If another thread has replaced that
//! entry, the new one stays.

use std::fmt;
use std::iter::FusedIterator;

use relativist_rcu::Guard;

use crate::iter::{Iter, Keys, Values};
use crate::map::HashMap;

impl<K, V, S> HashMap<K, V, S> {
    /// Iterates over the entries in an arbitrary order, which is that of their mixed hashes.
    ///
    /// An entry that is in the map throughout is seen exactly once, however often the map is
    /// resized. One that is inserted or removed during the iteration may be seen or not. Each step
    /// is wait-free, except for the empty buckets that it passes; the whole iteration takes time
    /// proportional to buckets and entries.
    pub fn iter<'g>(&'g self, guard: &'g Guard) -> Iter<'g, K, V> {
        Iter::new(self.table.iter(guard))
    }

    /// Iterates over the keys; see [`HashMap::iter`].
    pub fn keys<'g>(&'g self, guard: &'g Guard) -> Keys<'g, K, V> {
        Keys(self.iter(guard))
    }

    /// Iterates over the values; see [`HashMap::iter`].
    pub fn values<'g>(&'g self, guard: &'g Guard) -> Values<'g, K, V> {
        Values(self.iter(guard))
    }
}

/// The entries that these methods remove are reclaimed after the guard is dropped.
impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> HashMap<K, V, S> {
    /// Removes all entries, one bucket at a time. Entries that are inserted meanwhile may stay.
    ///
    /// Takes time proportional to buckets and entries. Lookups are not affected. Updates of a
    /// bucket wait while it is emptied, which takes as long as a single update.
    pub fn clear(&self, guard: &Guard) {
        // SAFETY: this thread has unlinked it.
        self.table.clear(guard, |link| _ = unsafe { self.retire(link, guard) });
    }

    /// Removes the entries for which `keep` returns false. `keep` runs outside of locks, once for
    /// each entry that [`HashMap::iter`] would see.
    ///
    /// ```
    /// let map: relativist::HashMap<u32, u32> = (0..10).map(|n| (n, n * n)).collect();
    /// map.pin().retain(|_, square| square % 2 == 0);
    /// assert_eq!(map.len(), 5);
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool, guard: &Guard) {
        self.extract_if(|key, value| !keep(key, value), guard).for_each(drop);
    }

    /// Returns an iterator that removes the entries for which `extract` returns true. Entries that
    /// the iterator does not reach stay. Each entry is returned to one thread only, even if several
    /// drain the map.
    ///
    /// ```
    /// let map: relativist::HashMap<u32, u32> = (0..10).map(|n| (n, n * n)).collect();
    /// let pinned = map.pin();
    /// let odd: u32 = pinned.extract_if(|_, square| square % 2 == 1).map(|(_, square)| square).sum();
    /// assert_eq!((odd, map.len()), (1 + 9 + 25 + 49 + 81, 5));
    /// ```
    pub fn extract_if<'g, F>(&'g self, extract: F, guard: &'g Guard) -> ExtractIf<'g, K, V, S, F>
    where
        F: FnMut(&K, &V) -> bool,
    {
        ExtractIf { map: self, entries: self.iter(guard), extract, guard }
    }

    /// Removes all entries and returns them. Entries that the iterator has not reached are removed
    /// when it is dropped.
    ///
    /// ```
    /// let map: relativist::HashMap<u32, u32> = (0..10).map(|n| (n, n * n)).collect();
    /// assert_eq!(map.pin().drain().count(), 10);
    /// assert!(map.is_empty());
    /// ```
    pub fn drain<'g>(&'g self, guard: &'g Guard) -> Drain<'g, K, V, S> {
        Drain(self.extract_if(|_, _| true, guard))
    }
}

/// An iterator that removes entries; see [`HashMap::extract_if`].
#[must_use = "entries are removed as the iterator gets to them"]
pub struct ExtractIf<'g, K, V, S, F> {
    map: &'g HashMap<K, V, S>,
    entries: Iter<'g, K, V>,
    extract: F,
    guard: &'g Guard,
}

impl<'g, K, V, S, F> Iterator for ExtractIf<'g, K, V, S, F>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    F: FnMut(&K, &V) -> bool,
{
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let node = self.entries.next_node()?;
            if (self.extract)(&node.key, &node.value) && self.map.unlink(node, self.guard) {
                return Some(node.pair());
            }
        }
    }
}

impl<K, V, S, F> FusedIterator for ExtractIf<'_, K, V, S, F> where Self: Iterator {}

impl<K, V, S, F> fmt::Debug for ExtractIf<'_, K, V, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExtractIf")
    }
}

/// An iterator that removes all entries; see [`HashMap::drain`].
pub struct Drain<'g, K: Send + Sync + 'static, V: Send + Sync + 'static, S>(ExtractIf<'g, K, V, S, All<K, V>>);

type All<K, V> = fn(&K, &V) -> bool;

impl<'g, K: Send + Sync + 'static, V: Send + Sync + 'static, S> Iterator for Drain<'g, K, V, S> {
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> FusedIterator for Drain<'_, K, V, S> {}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for Drain<'_, K, V, S> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> fmt::Debug for Drain<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drain")
    }
}
