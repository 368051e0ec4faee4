//! Lookups in batches.

use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;
use relativist_rcu::Guard;

use crate::map::HashMap;
use crate::node::Node;
use crate::pinned::Pinned;
use crate::raw::{self, Table};

impl<K: Hash + Eq, V, S: BuildHasher> HashMap<K, V, S> {
    /// Returns the values of several keys.
    ///
    /// Each lookup is wait-free and linearizable on its own, like [`get`](HashMap::get). This is
    /// faster if the map is larger than the processor's cache, because it requests the memory for
    /// up to [`Table::BATCH`] lookups at once, while a loop of single lookups waits for one after
    /// the other. In maps that fit the cache it gains nothing. It allocates nothing.
    ///
    /// ```
    /// let map = relativist::HashMap::from([("one", 1), ("two", 2), ("three", 3)]);
    /// let guard = relativist::read();
    /// assert_eq!(map.get_many(["three", "four", "one"], &guard), [Some(&3), None, Some(&1)]);
    /// ```
    pub fn get_many<'g, Q, const N: usize>(&'g self, keys: [&Q; N], guard: &'g Guard) -> [Option<&'g V>; N]
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let mut values = [None; N];
        for (keys, values) in keys.chunks(Table::BATCH).zip(values.chunks_mut(Table::BATCH)) {
            self.find_batch(keys, guard, |index, node| values[index] = node.map(|node| &node.value));
        }
        values
    }

    /// Looks up any number of keys as [`get_many`](HashMap::get_many) does, and calls `found` with
    /// each key and its value, in the order of the keys. (All lookups of a batch may take place
    /// before the first call of `found`.)
    ///
    /// ```
    /// let map = relativist::HashMap::from([("one", 1), ("two", 2), ("three", 3)]);
    /// let mut sum = 0;
    /// let words = "one two buckle my shoe".split(' ');
    /// map.get_each(words, &relativist::read(), |_, value| sum += value.unwrap_or(&0));
    /// assert_eq!(sum, 3);
    /// ```
    pub fn get_each<'g, 'k, Q>(
        &'g self,
        keys: impl IntoIterator<Item = &'k Q>,
        guard: &'g Guard,
        mut found: impl FnMut(&'k Q, Option<&'g V>),
    ) where
        Q: Hash + Equivalent<K> + ?Sized + 'k,
    {
        let mut keys = keys.into_iter();
        while let Some(first) = keys.next() {
            let mut batch = [first; Table::BATCH];
            let more = batch[1..].iter_mut().zip(&mut keys).map(|(place, key)| *place = key).count();
            let batch = &batch[..=more];
            self.find_batch(batch, guard, |index, node| found(batch[index], node.map(|node| &node.value)));
        }
    }

    /// Finds up to a batch of keys. `found` gets the index of the key.
    #[inline(always)]
    fn find_batch<'g, Q>(&'g self, keys: &[&Q], guard: &'g Guard, mut found: impl FnMut(usize, Option<&'g Node<K, V>>))
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let mut hashes = [raw::Hash::new(0); Table::BATCH];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.hash(*key);
        }
        let is_match = |index: usize, link| self.has_key(keys[index])(link);
        // SAFETY: found in this map under the guard, as in `get`.
        let found = |index, link: Option<_>| found(index, link.map(|link| unsafe { self.node(link) }));
        self.table.find_many(&hashes[..keys.len()], is_match, found, guard);
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Pinned<'_, K, V, S> {
    /// See [`HashMap::get_many`].
    pub fn get_many<Q, const N: usize>(&self, keys: [&Q; N]) -> [Option<&V>; N]
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.map().get_many(keys, self.guard())
    }

    /// See [`HashMap::get_each`].
    pub fn get_each<'p, 'k, Q>(&'p self, keys: impl IntoIterator<Item = &'k Q>, found: impl FnMut(&'k Q, Option<&'p V>))
    where
        Q: Hash + Equivalent<K> + ?Sized + 'k,
    {
        self.map().get_each(keys, self.guard(), found);
    }
}
