//! Nodes: how they are found, inserted, replaced and removed. All operations on single entries use
//! this.

use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;

use equivalent::Equivalent;
use relativist_rcu::Guard;

use crate::map::HashMap;
use crate::results::ExhaustedError;
use relativist_table::node::Node;
use relativist_table::{self as raw, Entry, Link, Table};

impl<K: Hash + Eq, V, S: BuildHasher> HashMap<K, V, S> {
    #[inline(always)]
    pub(crate) fn find<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g Node<K, V>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find_hashed(self.hash(key), key, guard)
    }

    #[inline(always)]
    pub(crate) fn find_hashed<'g, Q>(&'g self, hash: raw::Hash, key: &Q, guard: &'g Guard) -> Option<&'g Node<K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let link = self.table.find(hash, self.has_key(key), guard)?;
        // SAFETY: found in this map under the guard. A node that is removed stays alive as long as
        // the guard, and any other node as long as the map.
        Some(unsafe { self.node(link) })
    }

    /// Finds up to a batch of keys. `found` gets the index of the key.
    #[inline(always)]
    pub(crate) fn find_batch<'g, Q>(
        &'g self,
        keys: &[&Q],
        guard: &'g Guard,
        mut found: impl FnMut(usize, Option<&'g Node<K, V>>),
    ) where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // SAFETY: found in this map under the guard, as in `get`.
        let found = |index, link: Option<_>| found(index, link.map(|link| unsafe { self.node(link) }));
        self.find_links(keys, guard, found);
    }

    /// Like `find_batch`, but returns links.
    #[inline(always)]
    pub(crate) fn find_links<Q>(&self, keys: &[&Q], guard: &Guard, found: impl FnMut(usize, Option<NonNull<Link>>))
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let mut hashes = [raw::Hash::new(0); Table::BATCH];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.hash(*key);
        }
        let is_match = |index: usize, link| self.has_key(keys[index])(link);
        self.table.find_many(&hashes[..keys.len()], is_match, found, guard);
    }
}

impl<K, V, S> HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Like [`HashMap::insert`], but returns an error if memory is exhausted, instead of aborting.
    ///
    /// Only memory for the entry can cause the error. If there is no memory for more buckets, the
    /// map keeps those that it has. Other allocations may abort the process: 6 KiB for every 255
    /// old entries that await reclamation, if a key is replaced; what a thread allocates for its
    /// first read section; and the background thread of automatic maps, when the first of them
    /// grows.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no memory for the entry. The error contains `key` and `value`.
    ///
    /// ```
    /// use relativist::{ExhaustedError, HashMap};
    ///
    /// let map: HashMap<String, Vec<u8>> = HashMap::new();
    /// match map.pin().checked_insert("key".into(), vec![1, 2, 3]) {
    ///     Ok(old) => assert_eq!(old, None),
    ///     Err(ExhaustedError { key, .. }) => eprintln!("no memory for {key}"),
    /// };
    /// ```
    pub fn checked_insert<'g>(
        &'g self,
        key: K,
        value: V,
        guard: &'g Guard,
    ) -> Result<Option<&'g V>, ExhaustedError<K, V>> {
        let hash = self.hash(&key);
        let node = Node::try_new(hash, key, value).map_err(|(key, value)| ExhaustedError { key, value })?;
        Ok(self.put_node(node, guard).map(|old| &old.value))
    }

    /// Removes a key, and returns its node.
    #[inline]
    pub(crate) fn remove_hashed<'g, Q>(&'g self, hash: raw::Hash, key: &Q, guard: &'g Guard) -> Option<&'g Node<K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let removed = self.table.remove(hash, self.has_key(key), guard)?;
        // SAFETY: this thread has just unlinked it.
        Some(unsafe { self.retire(removed, guard) })
    }

    /// Inserts an entry, and returns the node with the same key that it replaces.
    #[inline]
    pub(crate) fn put<'g>(&'g self, hash: raw::Hash, (key, value): (K, V), guard: &'g Guard) -> Option<&'g Node<K, V>> {
        self.put_node(Node::new(hash, key, value), guard)
    }

    /// Inserts a node, and returns the node with the same key that it replaces.
    pub(crate) fn put_node<'g>(&'g self, node: Box<Node<K, V>>, guard: &'g Guard) -> Option<&'g Node<K, V>> {
        // SAFETY: keys and values may be dropped on any thread at any time.
        let old = unsafe { self.link_node(node, guard) }?;
        // SAFETY: this thread has just unlinked it.
        Some(unsafe { self.retire(old, guard) })
    }

    /// Inserts an entry if its key is not in the map. Otherwise returns the node that has the key,
    /// and the entry.
    #[inline]
    pub(crate) fn put_new<'g>(&'g self, hash: raw::Hash, entry: (K, V), guard: &'g Guard) -> PutNew<'g, K, V> {
        // SAFETY: as in `put_node`. The guard keeps either node alive for `'g`, even if another
        // thread removes it.
        unsafe {
            match self.link_new(hash, entry, guard) {
                Ok(new) => Ok(self.node(new)),
                Err((current, entry)) => Err((self.node(current), entry)),
            }
        }
    }

    /// Replaces exactly the node `old`. Returns the new entry if the old one is no longer in the
    /// map.
    #[inline]
    pub(crate) fn replace<'g>(
        &'g self,
        hash: raw::Hash,
        old: &'g Node<K, V>,
        entry: (K, V),
        guard: &'g Guard,
    ) -> Result<&'g Node<K, V>, (K, V)> {
        // SAFETY: as in `put_node`, and this thread has just unlinked the old one; the guard keeps
        // both alive for `'g`.
        unsafe {
            let Replaced { new, old } = self.link_instead(hash, old, entry, guard)?;
            self.retire(old, guard);
            Ok(self.node(new))
        }
    }

    /// Removes exactly this node, and returns whether it was in the map.
    #[inline]
    pub(crate) fn remove_exactly(&self, _: raw::Hash, node: &Node<K, V>, guard: &Guard) -> bool {
        self.unlink(node, guard)
    }
}

/// The result for a new entry; see [`HashMap::put_new`].
pub(crate) type PutNew<'g, K, V> = Result<&'g Node<K, V>, (&'g Node<K, V>, (K, V))>;

/// The same with links.
pub(crate) type LinkNew<K, V> = Result<NonNull<Link>, (NonNull<Link>, (K, V))>;

/// The links of two nodes, one of which has replaced the other.
pub(crate) struct Replaced {
    pub(crate) new: NonNull<Link>,
    pub(crate) old: NonNull<Link>,
}

/// Changes to the table. The caller reclaims what they unlink.
impl<K, V, S> HashMap<K, V, S> {
    /// Inserts a node, and returns the one with the same key that it replaces.
    ///
    /// # Safety
    ///
    /// The function that disposes of the table's links may do so with this node, on any thread.
    #[inline]
    pub(crate) unsafe fn link_node(&self, node: Box<Node<K, V>>, guard: &Guard) -> Option<NonNull<Link>>
    where
        K: Eq + Hash,
        S: BuildHasher,
    {
        match self.table.entry(node.link().hash(), self.has_key(&node.key), guard) {
            Entry::Vacant(entry) => {
                // SAFETY: a node of this map's type that no box owns any more: freed a grace period
                // after it is unlinked, or with the table.
                unsafe { entry.insert(node.into_link()) };
                None
            }
            // SAFETY: as above.
            Entry::Occupied(entry) => Some(unsafe { entry.replace(node.into_link()) }),
        }
    }

    /// Inserts an entry if its key is not in the map, and returns its link. Otherwise returns the
    /// link of the node that has the key, and the entry.
    ///
    /// # Safety
    ///
    /// See [`HashMap::link_node`].
    #[inline]
    pub(crate) unsafe fn link_new(&self, hash: raw::Hash, (key, value): (K, V), guard: &Guard) -> LinkNew<K, V>
    where
        K: Eq + Hash,
        S: BuildHasher,
    {
        let node = Node::new(hash, key, value);
        match self.table.entry(hash, self.has_key(&node.key), guard) {
            Entry::Vacant(entry) => {
                let link = node.into_link();
                // SAFETY: as in `link_node`.
                unsafe { entry.insert(link) };
                Ok(link)
            }
            Entry::Occupied(entry) => Err((entry.get(), node.into_parts())),
        }
    }

    /// Replaces exactly the node `old`. Returns the new entry if the old one is no longer in the
    /// map.
    ///
    /// # Safety
    ///
    /// See [`HashMap::link_node`]. The old node was found in this map, and is alive.
    #[inline]
    pub(crate) unsafe fn link_instead(
        &self,
        hash: raw::Hash,
        old: &Node<K, V>,
        (key, value): (K, V),
        guard: &Guard,
    ) -> Result<Replaced, (K, V)> {
        let node = Node::new(hash, key, value);
        match self.entry_of(old, guard) {
            Entry::Vacant(_) => Err(node.into_parts()),
            Entry::Occupied(entry) => {
                let new = node.into_link();
                // SAFETY: as in `link_node`.
                let old = unsafe { entry.replace(new) };
                Ok(Replaced { new, old })
            }
        }
    }

    /// Removes exactly this node, and returns its link if it was in the map.
    #[inline]
    pub(crate) fn unlink_exactly(&self, node: &Node<K, V>, guard: &Guard) -> Option<NonNull<Link>> {
        self.table.unlink(node.link(), guard)
    }

    /// Removes exactly this node, and returns whether it was in the map.
    pub(crate) fn unlink(&self, node: &Node<K, V>, guard: &Guard) -> bool
    where
        K: Send + 'static,
        V: Send + 'static,
    {
        let Some(removed) = self.unlink_exactly(node, guard) else { return false };
        // SAFETY: this thread has just unlinked it.
        unsafe { self.retire(removed, guard) };
        true
    }

    /// Locks the bucket and checks whether exactly this node is in it. If it was removed, no other
    /// node can be mistaken for it, because its memory is not reused as long as the guard lives.
    #[inline(always)]
    pub(crate) fn entry_of<'g>(&'g self, node: &Node<K, V>, guard: &'g Guard) -> Entry<'g> {
        let link = NonNull::from(node.link());
        self.table.entry(node.link().hash(), |found| found == link, guard)
    }

    /// Defers the drop of a node until after a grace period, and returns the node, which the
    /// caller's guard keeps alive.
    ///
    /// # Safety
    ///
    /// The caller has unlinked it from this map in the section of the guard.
    #[inline]
    pub(crate) unsafe fn retire<'g>(&self, link: NonNull<Link>, guard: &'g Guard) -> &'g Node<K, V>
    where
        K: Send + 'static,
        V: Send + 'static,
    {
        // SAFETY: no reader that begins now finds it, and the guard delays the end of the grace
        // period.
        unsafe {
            Node::<K, V>::retire(link, guard);
            self.node(link)
        }
    }
}
