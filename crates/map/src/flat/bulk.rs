//! Operations on all entries: iterating, and removing entries during an iteration.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::iter::FusedIterator;

use relativist_rcu::Guard;

use super::iter::Iter;
use super::map::FlatMap;
use super::relocate::Relocatable;
use crate::iter::keys_and_values;

keys_and_values!(FlatMap, of: [K, V, S], iterate: [K: Hash + Eq, S: BuildHasher]);

impl<K: Hash + Eq, V, S: BuildHasher> FlatMap<K, V, S> {
    /// Iterates over the entries in an arbitrary order.
    ///
    /// The iterator returns an entry that is in the map throughout exactly once, however often the
    /// map is resized. It may or may not return an entry that is inserted or removed meanwhile.
    /// Each step is wait-free, but may pass many empty buckets. The whole iteration takes time
    /// proportional to buckets and entries.
    pub fn iter<'g>(&'g self, guard: &'g Guard) -> Iter<'g, K, V, S> {
        Iter::new(&self.table, 0, guard)
    }

    /// Iterates over the keys; see [`FlatMap::iter`].
    pub fn keys<'g>(&'g self, guard: &'g Guard) -> Keys<'g, K, V, S> {
        Keys(self.iter(guard))
    }

    /// Iterates over the values; see [`FlatMap::iter`].
    pub fn values<'g>(&'g self, guard: &'g Guard) -> Values<'g, K, V, S> {
        Values(self.iter(guard))
    }

    /// Performs one piece of an iteration: visits about `n` entries from `cursor` on, and returns
    /// the cursor of the next piece, or `None` after the last entry. The first cursor is 0.
    ///
    /// Like [`HashMap::scan`](crate::HashMap::scan), all calls together visit an entry that is in
    /// the map from the first call to the last exactly once, however much the map is resized in
    /// between. A call visits `n` entries (one if `n` is 0), and then the rest of the last entry's
    /// bucket. The last call may visit fewer.
    ///
    /// ```
    /// let map: relativist::flat::FlatMap<u32, u32> = (0..1000).map(|n| (n, n * n)).collect();
    /// let mut sum = 0;
    /// let mut next = Some(0);
    /// while let Some(cursor) = next {
    ///     next = map.pin().scan(cursor, 100, |_, square| sum += square);
    ///     map.resize_to(sum as usize % 5000)?; // not while a guard is held
    /// }
    /// assert_eq!(sum, (0..1000).map(|n| n * n).sum());
    /// # Ok::<(), relativist::AllocError>(())
    /// ```
    pub fn scan<'g>(
        &'g self,
        cursor: u64,
        n: usize,
        guard: &'g Guard,
        mut visit: impl FnMut(&'g K, &'g V),
    ) -> Option<u64> {
        let mut entries = Iter::new(&self.table, cursor, guard);
        let mut visited = 0;
        while visited < n.max(1) && entries.enter_batch(1) {
            while let Some(place) = entries.next_in_batch() {
                // SAFETY: the slot was live in this section.
                let (key, value) = unsafe { place.entry() }.pair();
                visit(key, value);
                visited += 1;
            }
        }
        entries.cursor()
    }
}

/// The entries that these methods remove are reclaimed after the guard is dropped.
impl<K, V, S> FlatMap<K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Removes all entries, one bucket at a time. Entries that are inserted meanwhile may stay.
    ///
    /// Takes time proportional to buckets and entries. Lookups do not wait for it. An update waits
    /// only while its own bucket is emptied.
    pub fn clear(&self, guard: &Guard) {
        self.table.clear(guard);
    }

    /// Removes the entries for which `keep` returns false. `keep` runs outside of locks, for each
    /// entry that [`FlatMap::iter`] would return. It runs again if it has returned false, but
    /// another thread has moved the entry before its removal. If another thread replaces the entry
    /// first, the new value stays, unless `keep` runs for it, too.
    ///
    /// ```
    /// let map: relativist::flat::FlatMap<u32, u32> = (0..10).map(|n| (n, n * n)).collect();
    /// map.pin().retain(|_, square| square % 2 == 0);
    /// assert_eq!(map.len(), 5);
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool, guard: &Guard) {
        self.extract_if(|key, value| !keep(key, value), guard).for_each(drop);
    }

    /// Returns an iterator that removes the entries for which `extract` returns true. `extract`
    /// runs like the closure of [`FlatMap::retain`]. Entries that the iterator does not reach stay.
    /// Each entry is returned to one thread only, even if several threads drain the map.
    ///
    /// ```
    /// let map: relativist::flat::FlatMap<u32, u32> = (0..10).map(|n| (n, n * n)).collect();
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
    /// let map: relativist::flat::FlatMap<u32, u32> = (0..10).map(|n| (n, n * n)).collect();
    /// assert_eq!(map.pin().drain().count(), 10);
    /// assert!(map.is_empty());
    /// ```
    pub fn drain<'g>(&'g self, guard: &'g Guard) -> Drain<'g, K, V, S> {
        Drain(self.extract_if(|_, _| true, guard))
    }
}

/// An iterator that removes entries; see [`FlatMap::extract_if`].
#[must_use = "entries are removed as the iterator gets to them"]
pub struct ExtractIf<'g, K, V, S, F> {
    map: &'g FlatMap<K, V, S>,
    entries: Iter<'g, K, V, S>,
    extract: F,
    guard: &'g Guard,
}

impl<'g, K, V, S, F> Iterator for ExtractIf<'g, K, V, S, F>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
    F: FnMut(&K, &V) -> bool,
{
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut found = Some(self.entries.next_place()?);
            let mut hash = None;
            while let Some(place) = found.take() {
                // SAFETY: live in this section.
                let entry = unsafe { place.entry() };
                if !(self.extract)(&entry.key, &entry.value) {
                    break;
                }
                // Hashed once: if `Hash` returned something else each time, this could look for
                // each of two entries with this key in the bucket of the other one, without end.
                let hash = *hash.get_or_insert_with(|| self.map.table.hash(&entry.key));
                if self.map.table.remove_exactly(hash, entry, self.guard) {
                    return Some(entry.pair());
                }
                // Another thread has changed or moved the entry. If it has replaced or removed the
                // entry, the slot is vacated. Otherwise the entry has moved, and may have been
                // replaced before or since.
                if place.segment.word().is_moved() || place.is_live() {
                    found = self.map.table.find_place(hash, |key| *key == entry.key, self.guard);
                }
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

/// An iterator that removes all entries; see [`FlatMap::drain`].
pub struct Drain<'g, K, V, S>(ExtractIf<'g, K, V, S, All<K, V>>)
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static;

type All<K, V> = fn(&K, &V) -> bool;

impl<'g, K, V, S> Iterator for Drain<'g, K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl<K, V, S> FusedIterator for Drain<'_, K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
}

impl<K, V, S> Drop for Drain<'_, K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<K, V, S> fmt::Debug for Drain<'_, K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drain")
    }
}
