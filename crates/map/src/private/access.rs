//! Nodes: how they are found, inserted, replaced and removed.
//!
//! Each of these functions enters a section of the process to use the table. It leaves the section
//! before it returns, and before destructors or closures of the caller run. `Hash` and `Eq` of keys
//! run inside, and if they panic, the destructors of the entry that is not inserted.
//!
//! What a function returns is protected by the guard that the caller passes. It must be one of the
//! map's domain. [`Pinned`](super::Pinned) passes its own, and no other module can call these.

use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;
use relativist_rcu::{DomainGuard, read};

use super::map::PrivateMap;
use crate::access::{PutNew, Replaced};
use crate::fill::Batch;
use crate::results::ExhaustedError;
use relativist_table::node::Node;
use relativist_table::{self as raw, Table};

impl<K: Hash + Eq, V, S: BuildHasher> PrivateMap<K, V, S> {
    #[inline(always)]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> raw::Hash {
        self.map.hash(key)
    }

    #[inline(always)]
    pub(super) fn find<'g, Q>(&'g self, key: &Q, guard: &'g DomainGuard<'_>) -> Option<&'g Node<K, V>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find_hashed(self.hash(key), key, guard)
    }

    #[inline(always)]
    pub(super) fn find_hashed<'g, Q>(
        &'g self,
        hash: raw::Hash,
        key: &Q,
        guard: &'g DomainGuard<'_>,
    ) -> Option<&'g Node<K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let link = self.map.table.find(hash, self.map.has_key(key), &read())?;
        // SAFETY: found in this map under the guard.
        Some(unsafe { self.node(link, guard) })
    }

    /// Finds up to a batch of keys. `found` gets the index of the key.
    pub(super) fn find_batch<'g, Q>(
        &'g self,
        keys: &[&Q],
        guard: &'g DomainGuard<'_>,
        mut found: impl FnMut(usize, Option<&'g Node<K, V>>),
    ) where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let mut links = [None; Table::BATCH];
        self.map.find_links(keys, &read(), |index, link| links[index] = link);
        for (index, link) in links.into_iter().take(keys.len()).enumerate() {
            // SAFETY: found in this map under the guard.
            found(index, link.map(|link| unsafe { self.node(link, guard) }));
        }
    }
}

impl<K, V, S> PrivateMap<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher,
{
    /// Inserts many entries, and returns the number of keys that are new. See
    /// [`HashMap::insert_many`](crate::HashMap::insert_many).
    ///
    /// ```
    /// let map = relativist::PrivateMap::from([(1, "one")]);
    /// assert_eq!(map.insert_many([(1, "uno"), (2, "due"), (3, "tre")]), 2);
    /// assert_eq!(map.pin().get(&1), Some(&"uno"));
    /// ```
    pub fn insert_many(&self, entries: impl IntoIterator<Item = (K, V)>) -> usize {
        let mut entries = entries.into_iter().fuse();
        let expected = self.map.worth_reserving(&entries);
        if expected > 0 {
            self.expect(expected);
        }
        let mut batch = Batch::new();
        let mut new = 0;
        while batch.fill(&mut entries, |key| self.hash(key)) {
            let guard = self.enter();
            self.map.table.prefetch_for_updates(batch.hashes(), &read());
            new += batch.take().filter_map(|node| self.put_node(node, &guard).is_none().then_some(())).count();
        }
        new
    }

    pub(super) fn fill(&mut self, entries: impl IntoIterator<Item = (K, V)>) {
        self.insert_many(entries);
    }

    /// See [`HashMap::checked_insert`](crate::HashMap::checked_insert).
    pub(super) fn checked_insert<'g>(
        &'g self,
        key: K,
        value: V,
        guard: &'g DomainGuard<'_>,
    ) -> Result<Option<&'g V>, ExhaustedError<K, V>> {
        let hash = self.hash(&key);
        let node = Node::try_new(hash, key, value).map_err(|(key, value)| ExhaustedError { key, value })?;
        Ok(self.put_node(node, guard).map(|old| &old.value))
    }

    /// Removes a key, and returns its node.
    pub(super) fn remove_hashed<'g, Q>(
        &'g self,
        hash: raw::Hash,
        key: &Q,
        guard: &'g DomainGuard<'_>,
    ) -> Option<&'g Node<K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let removed = self.map.table.remove(hash, self.map.has_key(key), &read())?;
        // SAFETY: this thread has just unlinked it.
        Some(unsafe { self.retire(removed, guard) })
    }

    /// Inserts an entry, and returns the node with the same key that it replaces.
    #[inline]
    pub(super) fn put<'g>(
        &'g self,
        hash: raw::Hash,
        (key, value): (K, V),
        guard: &'g DomainGuard<'_>,
    ) -> Option<&'g Node<K, V>> {
        self.put_node(Node::new(hash, key, value), guard)
    }

    /// Inserts a node, and returns the node with the same key that it replaces.
    fn put_node<'g>(&'g self, node: Box<Node<K, V>>, guard: &'g DomainGuard<'_>) -> Option<&'g Node<K, V>> {
        // SAFETY: the table of this map only frees the memory of nodes.
        let old = unsafe { self.map.link_node(node, &read()) }?;
        // SAFETY: this thread has just unlinked it.
        Some(unsafe { self.retire(old, guard) })
    }

    /// Inserts an entry if its key is not in the map. Otherwise returns the node that has the key,
    /// and the entry.
    pub(super) fn put_new<'g>(
        &'g self,
        hash: raw::Hash,
        entry: (K, V),
        guard: &'g DomainGuard<'_>,
    ) -> PutNew<'g, K, V> {
        // SAFETY: as in `put_node`. Either node was found in this map under the guard.
        unsafe {
            match self.map.link_new(hash, entry, &read()) {
                Ok(new) => Ok(self.node(new, guard)),
                Err((current, entry)) => Err((self.node(current, guard), entry)),
            }
        }
    }

    /// Replaces exactly the node `old`. Returns the new entry if the old one is no longer in the
    /// map.
    pub(super) fn replace<'g>(
        &'g self,
        hash: raw::Hash,
        old: &'g Node<K, V>,
        entry: (K, V),
        guard: &'g DomainGuard<'_>,
    ) -> Result<&'g Node<K, V>, (K, V)> {
        // SAFETY: as in `put_node`, and this thread has just unlinked the old one. The new one was
        // in the map under the guard.
        unsafe {
            let Replaced { new, old } = self.map.link_instead(hash, old, entry, &read())?;
            self.retire(old, guard);
            Ok(self.node(new, guard))
        }
    }

    /// Removes exactly this node, and returns whether it was in the map.
    pub(super) fn remove_exactly(&self, _: raw::Hash, node: &Node<K, V>, guard: &DomainGuard<'_>) -> bool {
        self.unlink(node, guard)
    }
}

impl<K: Send + Sync, V: Send + Sync, S> PrivateMap<K, V, S> {
    /// Removes exactly this node, and returns whether it was in the map.
    pub(super) fn unlink(&self, node: &Node<K, V>, guard: &DomainGuard<'_>) -> bool {
        // The node's memory is not reused as long as the handle lives, so no other node can be
        // mistaken for it.
        let Some(removed) = self.map.unlink_exactly(node, &read()) else { return false };
        // SAFETY: this thread has just unlinked it.
        unsafe { self.retire(removed, guard) };
        true
    }
}
