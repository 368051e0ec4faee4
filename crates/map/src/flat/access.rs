//! The basic operations on single entries: look up, insert, remove. The caller passes a guard.

use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;
use relativist_rcu::{Guard, read};

use super::map::FlatMap;
use super::relocate::Relocatable;
use super::segment::{Entry, Segment};
use super::table::Put;
use crate::access::{ExhaustedError, OccupiedError};
use crate::raw;

/// The number of lookups that are prefetched together.
const BATCH: usize = 16;

impl<K: Hash + Eq, V, S: BuildHasher> FlatMap<K, V, S> {
    /// Returns the value of a key. Wait-free.
    ///
    /// Finds every key that is in the map throughout the call, also during resizes.
    #[inline(always)]
    pub fn get<'g, Q: Hash + Equivalent<K> + ?Sized>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g V> {
        self.find(key, guard).map(|entry| &entry.value)
    }

    /// Returns a copy of the value of a key, so the caller needs no guard. Wait-free.
    ///
    /// ```
    /// let map = relativist::flat::FlatMap::from([("one", 1)]);
    /// assert_eq!(map.get_copied("one"), Some(1));
    /// ```
    #[inline(always)]
    pub fn get_copied<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Copy,
    {
        self.get(key, &read()).copied()
    }

    /// Returns the key that is in the map, and its value. Wait-free.
    #[inline]
    pub fn get_key_value<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<(&'g K, &'g V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key, guard).map(Entry::pair)
    }

    /// Returns whether the key is in the map. Wait-free.
    #[inline]
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q, guard: &Guard) -> bool {
        self.find(key, guard).is_some()
    }

    /// Returns the values of several keys. Each lookup is linearizable on its own. This is faster
    /// than single lookups if the map is larger than the processor's cache, because it prefetches
    /// the buckets of up to 16 keys at once. Allocates nothing.
    ///
    /// ```
    /// let map = relativist::flat::FlatMap::from([("one", 1), ("two", 2), ("three", 3)]);
    /// let guard = relativist::read();
    /// assert_eq!(map.get_many(["three", "four", "one"], &guard), [Some(&3), None, Some(&1)]);
    /// ```
    pub fn get_many<'g, Q, const N: usize>(&'g self, keys: [&Q; N], guard: &'g Guard) -> [Option<&'g V>; N]
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let mut values = [None; N];
        for (keys, values) in keys.chunks(BATCH).zip(values.chunks_mut(BATCH)) {
            let mut hashes = [raw::Hash::new(0); BATCH];
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = self.table.hash(*key);
                self.table.prefetch(*hash, guard);
            }
            for ((hash, key), value) in hashes.iter().zip(keys).zip(values) {
                *value = self.find_hashed(*hash, *key, guard).map(|entry| &entry.value);
            }
        }
        values
    }

    #[inline(always)]
    pub(super) fn find<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g Entry<K, V>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find_hashed(self.table.hash(key), key, guard)
    }

    #[inline(always)]
    pub(super) fn find_hashed<'g, Q>(&'g self, hash: raw::Hash, key: &Q, guard: &'g Guard) -> Option<&'g Entry<K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.table.find(hash, |found| key.equivalent(found), guard)
    }
}

impl<K, V, S> FlatMap<K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Sets the value of a key, and returns the previous value. If there was one, each
    /// lookup meanwhile finds one of the two values.
    ///
    /// The key is replaced as well, which matters if equal keys can be distinguished. (std's map
    /// keeps the old key.)
    ///
    /// Aborts the process if there is no memory; [`FlatMap::checked_insert`] returns an error
    /// instead.
    #[inline]
    pub fn insert<'g>(&'g self, key: K, value: V, guard: &'g Guard) -> Option<&'g V> {
        let hash = self.table.hash(&key);
        match self.table.put(hash, Entry { key, value }, true, guard) {
            Put::Inserted(_) => None,
            Put::Replaced { old } => Some(&old.value),
            Put::Occupied { .. } | Put::Exhausted(_) => Segment::<K, V>::abort(),
        }
    }

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
        let hash = self.table.hash(&key);
        match self.table.put(hash, Entry { key, value }, true, guard) {
            Put::Inserted(_) => Ok(None),
            Put::Replaced { old } => Ok(Some(&old.value)),
            Put::Occupied { entry, .. } | Put::Exhausted(entry) => {
                let Entry { key, value } = entry;
                Err(ExhaustedError { key, value })
            }
        }
    }

    /// Inserts an entry if the key is not in the map, and returns a reference to the value.
    /// Wait-free if the key is present.
    ///
    /// # Errors
    ///
    /// Returns an error if the key is in the map. The error contains the value in the map, and
    /// `value`.
    pub fn try_insert<'g>(&'g self, key: K, value: V, guard: &'g Guard) -> Result<&'g V, OccupiedError<'g, V>> {
        let hash = self.table.hash(&key);
        if let Some(entry) = self.find_hashed(hash, &key, guard) {
            // The key is dropped first: if its destructor panicked later, the result would be
            // leaked.
            drop(key);
            return Err(OccupiedError { current: &entry.value, value });
        }
        self.put_new(hash, Entry { key, value }, guard)
            .map(|new| &new.value)
            .map_err(|(current, entry)| OccupiedError { current: &current.value, value: entry.value })
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
        let mut batch: [Option<(raw::Hash, Entry<K, V>)>; BATCH] = [const { None }; BATCH];
        let mut new = 0;
        loop {
            let mut filled = 0;
            // The places come first in `zip`, so that it takes no entry when no place is left.
            for (place, (key, value)) in batch.iter_mut().zip(&mut entries) {
                *place = Some((self.table.hash(&key), Entry { key, value }));
                filled += 1;
            }
            new += self.put_batch(&mut batch);
            if filled < BATCH {
                return new;
            }
        }
    }

    /// Inserts a batch of entries in one read section. Returns the number of keys that are new.
    fn put_batch(&self, batch: &mut [Option<(raw::Hash, Entry<K, V>)>; BATCH]) -> usize {
        let guard = read();
        batch.iter().flatten().for_each(|(hash, _)| self.table.prefetch(*hash, &guard));
        let entries = batch.iter_mut().filter_map(Option::take);
        let is_new = |(hash, entry)| match self.table.put(hash, entry, true, &guard) {
            Put::Inserted(_) => true,
            Put::Replaced { .. } => false,
            Put::Occupied { .. } | Put::Exhausted(_) => Segment::<K, V>::abort(),
        };
        entries.filter_map(|entry| is_new(entry).then_some(())).count()
    }

    /// Removes a key and returns its value, which stays valid as long as the guard and is dropped
    /// after a grace period. Wait-free if the key is absent.
    #[inline]
    pub fn remove<'g, Q: Hash + Equivalent<K> + ?Sized>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g V> {
        self.remove_entry(key, guard).map(|(_, value)| value)
    }

    /// Like [`FlatMap::remove`], but also returns the key that was in the map.
    #[inline]
    pub fn remove_entry<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<(&'g K, &'g V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.table.remove(self.table.hash(key), |found| key.equivalent(found), guard).map(Entry::pair)
    }

    /// Inserts an entry if its key is not in the map. Otherwise returns the entry in the map, and
    /// the new one.
    pub(super) fn put_new<'g>(&'g self, hash: raw::Hash, entry: Entry<K, V>, guard: &'g Guard) -> PutNew<'g, K, V> {
        match self.table.put(hash, entry, false, guard) {
            Put::Inserted(new) => Ok(new),
            Put::Occupied { current, entry } => Err((current, entry)),
            Put::Replaced { .. } | Put::Exhausted(_) => Segment::<K, V>::abort(),
        }
    }
}

/// The result for a new entry; see [`FlatMap::put_new`].
pub(super) type PutNew<'g, K, V> = Result<&'g Entry<K, V>, (&'g Entry<K, V>, Entry<K, V>)>;
