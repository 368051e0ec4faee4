//! The basic operations on single entries: look up, insert, remove. The caller passes a guard.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;

use equivalent::Equivalent;
use relativist_rcu::{Guard, read};

use crate::map::HashMap;
use crate::node::Node;
use crate::raw::{self, Entry, Link};

/// The error of [`HashMap::try_insert`] and of
/// [`FlatMap::try_insert`](crate::FlatMap::try_insert): the key is in the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OccupiedError<'g, V> {
    /// The value in the map.
    pub current: &'g V,
    /// The value that was not inserted.
    pub value: V,
}

impl<V: fmt::Debug> fmt::Display for OccupiedError<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not inserted {:?}: the key has the value {:?}", self.value, self.current)
    }
}

impl<V: fmt::Debug> std::error::Error for OccupiedError<'_, V> {}

/// The error of [`HashMap::checked_insert`] and
/// [`FlatMap::checked_insert`](crate::FlatMap::checked_insert): there was no memory for the entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ExhaustedError<K, V> {
    /// The key that was not inserted.
    pub key: K,
    /// The value that was not inserted.
    pub value: V,
}

impl<K, V> fmt::Debug for ExhaustedError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExhaustedError").finish_non_exhaustive()
    }
}

impl<K, V> fmt::Display for ExhaustedError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no memory for the entry")
    }
}

impl<K, V> std::error::Error for ExhaustedError<K, V> {}

impl<K: Hash + Eq, V, S: BuildHasher> HashMap<K, V, S> {
    /// Returns the value of a key. Wait-free.
    ///
    /// Finds every key that is in the map throughout the call, also during resizes.
    #[inline]
    pub fn get<'g, Q: Hash + Equivalent<K> + ?Sized>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g V> {
        self.find(key, guard).map(|node| &node.value)
    }

    /// Returns the key that is in the map, and its value. Wait-free.
    #[inline]
    pub fn get_key_value<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<(&'g K, &'g V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key, guard).map(Node::entry)
    }

    /// Returns whether the key is in the map. Wait-free.
    #[inline]
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q, guard: &Guard) -> bool {
        self.find(key, guard).is_some()
    }

    /// Returns a copy of the value of a key. Takes no guard, and enters a read section of its own.
    /// Wait-free.
    ///
    /// ```
    /// let map = relativist::HashMap::from([("one", 1)]);
    /// assert_eq!(map.get_copied("one"), Some(1));
    /// assert!(map.contains("one"));
    /// ```
    #[inline]
    pub fn get_copied<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Copy,
    {
        self.get(key, &read()).copied()
    }

    /// Returns a clone of the value of a key. Takes no guard. Wait-free, apart from `clone`, which
    /// runs inside the read section.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let map = relativist::HashMap::from([("one", Arc::new(1))]);
    /// assert_eq!(map.get_cloned("one").as_deref(), Some(&1));
    /// ```
    #[inline]
    pub fn get_cloned<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
    where
        V: Clone,
    {
        self.get(key, &read()).cloned()
    }

    /// Like [`HashMap::contains_key`], but takes no guard.
    #[inline]
    pub fn contains<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.contains_key(key, &read())
    }

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
}

impl<K, V, S> HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Sets the value of a key, and returns the previous one. A lookup sees either of them, and at
    /// no instant neither.
    ///
    /// The key is replaced as well, which matters if equal keys can be distinguished. (std's map
    /// keeps the old key.)
    pub fn insert<'g>(&'g self, key: K, value: V, guard: &'g Guard) -> Option<&'g V> {
        let hash = self.hash(&key);
        self.put(Node::new(hash, key, value), guard).map(|old| &old.value)
    }

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
        Ok(self.put(node, guard).map(|old| &old.value))
    }

    /// Inserts an entry if the key is not in the map, and returns a reference to the value.
    /// Wait-free if the key is present.
    ///
    /// # Errors
    ///
    /// Returns an error if the key is in the map. The error contains the value in the map, and
    /// `value`.
    pub fn try_insert<'g>(&'g self, key: K, value: V, guard: &'g Guard) -> Result<&'g V, OccupiedError<'g, V>> {
        let hash = self.hash(&key);
        if let Some(node) = self.find_hashed(hash, &key, guard) {
            // The key is dropped first: if its destructor panicked later, the result would be
            // leaked.
            drop(key);
            return Err(OccupiedError { current: &node.value, value });
        }
        match self.put_new(Node::new(hash, key, value), guard) {
            Ok(new) => Ok(&new.value),
            Err((current, node)) => Err(OccupiedError { current: &current.value, value: node.into_parts().1 }),
        }
    }

    /// Removes a key and returns its value, which stays valid as long as the guard and is dropped
    /// after a grace period.
    pub fn remove<'g, Q: Hash + Equivalent<K> + ?Sized>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g V> {
        self.remove_entry(key, guard).map(|(_, value)| value)
    }

    /// Like [`HashMap::remove`], but also returns the key that was in the map.
    pub fn remove_entry<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<(&'g K, &'g V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let removed = self.table.remove(self.hash(key), self.has_key(key), guard)?;
        // SAFETY: this thread has just unlinked it.
        Some(unsafe { self.retire(removed) }.entry())
    }

    /// Inserts a node, and returns the node with the same key that it replaces.
    pub(crate) fn put<'g>(&'g self, node: Box<Node<K, V>>, guard: &'g Guard) -> Option<&'g Node<K, V>> {
        match self.table.entry(node.link().hash(), self.has_key(&node.key), guard) {
            Entry::Vacant(entry) => {
                // SAFETY: a node of this map's type that no box owns any more: freed a grace period
                // after it is unlinked, or with the table.
                unsafe { entry.insert(node.into_link()) };
                None
            }
            Entry::Occupied(entry) => {
                // SAFETY: as above.
                let old = unsafe { entry.replace(node.into_link()) };
                // SAFETY: this thread has just unlinked it.
                Some(unsafe { self.retire(old) })
            }
        }
    }

    /// Inserts a node if its key is not in the map. Otherwise returns the node that has the key,
    /// and the new node.
    pub(crate) fn put_new<'g>(&'g self, node: Box<Node<K, V>>, guard: &'g Guard) -> PutNew<'g, K, V> {
        match self.table.entry(node.link().hash(), self.has_key(&node.key), guard) {
            Entry::Vacant(entry) => {
                let link = node.into_link();
                // SAFETY: as in `put`; the guard keeps it alive for `'g`, even if another thread
                // removes it.
                unsafe {
                    entry.insert(link);
                    Ok(self.node(link))
                }
            }
            // SAFETY: found in this map under the guard.
            Entry::Occupied(entry) => Err((unsafe { self.node(entry.get()) }, node)),
        }
    }

    /// Replaces exactly the node `old`. Returns the new one if the old one is no longer in the map.
    pub(crate) fn replace<'g>(
        &'g self,
        old: &'g Node<K, V>,
        node: Box<Node<K, V>>,
        guard: &'g Guard,
    ) -> Result<&'g Node<K, V>, Box<Node<K, V>>> {
        match self.entry_of(old, guard) {
            Entry::Vacant(_) => Err(node),
            Entry::Occupied(entry) => {
                let link = node.into_link();
                // SAFETY: as in `put`, and this thread has just unlinked the old one; the guard
                // keeps both alive for `'g`.
                unsafe {
                    self.retire(entry.replace(link));
                    Ok(self.node(link))
                }
            }
        }
    }
}

/// The result for a new node; see [`HashMap::put_new`].
pub(crate) type PutNew<'g, K, V> = Result<&'g Node<K, V>, (&'g Node<K, V>, Box<Node<K, V>>)>;

impl<K, V, S> HashMap<K, V, S> {
    /// Removes exactly this node, and returns whether it was in the map.
    pub(crate) fn unlink(&self, node: &Node<K, V>, guard: &Guard) -> bool
    where
        K: Send + 'static,
        V: Send + 'static,
    {
        match self.entry_of(node, guard) {
            Entry::Vacant(_) => false,
            Entry::Occupied(entry) => {
                // SAFETY: this thread has just unlinked it.
                unsafe { self.retire(entry.remove()) };
                true
            }
        }
    }

    /// Locks the bucket and checks whether exactly this node is in it. If it was removed, no other
    /// node can be mistaken for it, because its memory is not reused as long as the guard lives.
    pub(crate) fn entry_of<'g>(&'g self, node: &Node<K, V>, guard: &'g Guard) -> Entry<'g> {
        let link = NonNull::from(node.link());
        self.table.entry(node.link().hash(), |found| found == link, guard)
    }

    /// Defers the drop of a node until after a grace period, and returns the node, which the
    /// caller's guard keeps alive.
    ///
    /// # Safety
    ///
    /// The caller has unlinked it from this map, and holds a guard during `'g`.
    pub(crate) unsafe fn retire<'g>(&self, link: NonNull<Link>) -> &'g Node<K, V>
    where
        K: Send + 'static,
        V: Send + 'static,
    {
        // SAFETY: no reader that begins now finds it, and the guard delays the end of the grace
        // period.
        unsafe {
            Node::<K, V>::retire(link);
            self.node(link)
        }
    }
}
