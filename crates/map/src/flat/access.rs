//! Entries: how they are found, inserted, replaced and removed. All operations on single entries
//! use this.

use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;
use relativist_rcu::{Guard, read};

use super::map::FlatMap;
use super::put::PutNew;
use super::relocate::Relocatable;
use super::segment::{Entry, Segment};
use crate::results::ExhaustedError;
use relativist_table as raw;

/// The number of lookups or insertions that are prefetched together.
pub(super) const BATCH: usize = 16;

impl<K: Hash + Eq, V, S: BuildHasher> FlatMap<K, V, S> {
    #[inline(always)]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> raw::Hash {
        self.table.hash(key)
    }

    #[inline(always)]
    pub(super) fn find<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g Entry<K, V>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find_hashed(self.hash(key), key, guard)
    }

    #[inline(always)]
    pub(super) fn find_hashed<'g, Q>(&'g self, hash: raw::Hash, key: &Q, guard: &'g Guard) -> Option<&'g Entry<K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.table.find(hash, |found| key.equivalent(found), guard)
    }

    /// Finds up to a batch of keys. `found` gets the index of the key.
    #[inline(always)]
    pub(super) fn find_batch<'g, Q>(
        &'g self,
        keys: &[&Q],
        guard: &'g Guard,
        mut found: impl FnMut(usize, Option<&'g Entry<K, V>>),
    ) where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let mut hashes = [raw::Hash::new(0); BATCH];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.hash(*key);
            self.table.prefetch(*hash, guard);
        }
        for (index, (hash, key)) in hashes.iter().zip(keys).enumerate() {
            found(index, self.find_hashed(*hash, *key, guard));
        }
    }
}

impl<K, V, S> FlatMap<K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Like [`FlatMap::insert`], but returns an error if memory is exhausted, instead of aborting.
    ///
    /// It returns the error only if there is no memory for a segment of the key's bucket. If there
    /// is no memory for a larger array, the map keeps the array that it has. Other allocations may
    /// abort the process: further segments when entries move to another array; the deferred drop of
    /// a replaced entry; and those that [`HashMap::checked_insert`](crate::HashMap::checked_insert)
    /// lists.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no memory for the entry. The error contains `key` and `value`.
    pub fn checked_insert<'g>(
        &'g self,
        key: K,
        value: V,
        guard: &'g Guard,
    ) -> Result<Option<&'g V>, ExhaustedError<K, V>> {
        let put = self.table.put(self.hash(&key), Entry { key, value }, guard);
        put.map(|old| old.map(|old| &old.value)).map_err(|Entry { key, value }| ExhaustedError { key, value })
    }

    /// Inserts many entries, and returns the number of keys that are new.
    ///
    /// Each insertion is atomic, like that of [`FlatMap::insert`]. The insertions together are not.
    /// This is faster than single insertions if the map is larger than the processor's cache: it
    /// takes up to 16 entries from the iterator, prefetches their buckets, and then inserts them.
    /// If the iterator or the hasher panics, the entries that were taken and not inserted are
    /// dropped.
    ///
    /// Makes room first, as [`FlatMap::reserve`] does, if the iterator announces more entries than
    /// the map has, and this thread holds no guard or pinned handle. Enters a read section for each
    /// batch, after it has taken the entries from the iterator.
    ///
    /// ```
    /// let map = relativist::FlatMap::from([(1, "one")]);
    /// assert_eq!(map.insert_many([(1, "uno"), (2, "due"), (3, "tre")]), 2);
    /// assert_eq!(map.get_copied(&1), Some("uno"));
    /// ```
    pub fn insert_many(&self, entries: impl IntoIterator<Item = (K, V)>) -> usize {
        let mut entries = entries.into_iter().fuse();
        let expected = entries.size_hint().0;
        if expected > self.len() {
            self.expect(expected);
        }
        let mut batch: Batch<K, V> = [const { None }; BATCH];
        let mut new = 0;
        loop {
            let mut filled = 0;
            // The places come first in `zip`, so that it takes no entry when no place is left.
            for (place, (key, value)) in batch.iter_mut().zip(&mut entries) {
                *place = Some((self.hash(&key), (key, value)));
                filled += 1;
            }
            new += self.put_batch(&mut batch);
            if filled < BATCH {
                return new;
            }
        }
    }

    /// Inserts a batch of entries in one read section. Returns the number of keys that are new.
    fn put_batch(&self, batch: &mut Batch<K, V>) -> usize {
        let guard = read();
        batch.iter().flatten().for_each(|(hash, _)| self.table.prefetch(*hash, &guard));
        let entries = batch.iter_mut().filter_map(Option::take);
        entries.filter_map(|(hash, entry)| self.put(hash, entry, &guard).is_none().then_some(())).count()
    }

    /// Inserts entries into a map that no other thread can see.
    pub(super) fn fill(&mut self, entries: impl IntoIterator<Item = (K, V)>) {
        (&*self).extend(entries);
    }

    /// Removes a key, and returns its entry. Wait-free if the key is absent.
    #[inline(always)]
    pub(super) fn remove_hashed<'g, Q>(&'g self, hash: raw::Hash, key: &Q, guard: &'g Guard) -> Option<&'g Entry<K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.table.remove(hash, |found| key.equivalent(found), guard)
    }

    /// Inserts an entry, and returns the one with the same key that it replaces.
    #[inline(always)]
    pub(super) fn put<'g>(
        &'g self,
        hash: raw::Hash,
        (key, value): (K, V),
        guard: &'g Guard,
    ) -> Option<&'g Entry<K, V>> {
        self.table.put(hash, Entry { key, value }, guard).unwrap_or_else(|_| Segment::<K, V>::abort())
    }

    /// Inserts an entry if its key is not in the map. Otherwise returns the entry in the map, and
    /// the new one.
    #[inline(always)]
    pub(super) fn put_new<'g>(
        &'g self,
        hash: raw::Hash,
        (key, value): (K, V),
        guard: &'g Guard,
    ) -> PutNew<'g, K, V, (K, V)> {
        let put = self.table.put_new(hash, Entry { key, value }, guard);
        put.map_err(|(current, Entry { key, value })| (current, (key, value)))
    }

    /// Replaces the entry `old`. Returns the new entry as the error if `old` is no longer in the
    /// map, or no longer at its address.
    #[inline(always)]
    pub(super) fn replace<'g>(
        &'g self,
        hash: raw::Hash,
        old: &'g Entry<K, V>,
        (key, value): (K, V),
        guard: &'g Guard,
    ) -> Result<&'g Entry<K, V>, (K, V)> {
        self.table.replace(hash, old, Entry { key, value }, guard).map_err(|Entry { key, value }| (key, value))
    }

    /// Removes the entry `old`. Returns false if it is no longer in the map, or no longer at its
    /// address.
    #[inline(always)]
    pub(super) fn remove_exactly(&self, hash: raw::Hash, old: &Entry<K, V>, guard: &Guard) -> bool {
        self.table.remove_exactly(hash, old, guard)
    }
}

/// Entries that are about to be inserted, and their hashes.
type Batch<K, V> = [Option<(raw::Hash, (K, V))>; BATCH];
