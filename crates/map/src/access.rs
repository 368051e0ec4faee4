//! Operations on single entries that do one thing: look up, insert, remove. Under a guard of the
//! caller's.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;

use equivalent::Equivalent;
use relativist_rcu::Guard;

use crate::map::HashMap;
use crate::node::Node;
use crate::raw::{self, Entry, Link};

/// [`HashMap::try_insert`] found the key present.
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

/// [`HashMap::checked_insert`] found no memory for the entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ExhaustedError<K, V> {
    /// The key that was not inserted.
    pub key: K,
    /// The value that was not inserted.
    pub value: V,
}

impl<K, V> ExhaustedError<K, V> {
    const BYTES: usize = size_of::<Node<K, V>>();
}

impl<K, V> fmt::Debug for ExhaustedError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExhaustedError").finish_non_exhaustive()
    }
}

impl<K, V> fmt::Display for ExhaustedError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot allocate {} bytes for an entry", Self::BYTES)
    }
}

impl<K, V> std::error::Error for ExhaustedError<K, V> {}

impl<K: Hash + Eq, V, S: BuildHasher> HashMap<K, V, S> {
    /// The value of a key. Wait-free.
    ///
    /// A key that is in the map throughout the call is found, whatever resizes go on.
    #[inline]
    pub fn get<'g, Q: Hash + Equivalent<K> + ?Sized>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g V> {
        self.find(key, guard).map(|node| &node.value)
    }

    /// The key as it is in the map, and its value. Wait-free.
    #[inline]
    pub fn get_key_value<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<(&'g K, &'g V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key, guard).map(Node::entry)
    }

    /// Whether the key is in the map. Wait-free.
    #[inline]
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q, guard: &Guard) -> bool {
        self.find(key, guard).is_some()
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
        // SAFETY: found in this map under the guard: alive as long as the guard, or, if it is not
        // removed, the map.
        Some(unsafe { self.node(link) })
    }
}

impl<K, V, S> HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Sets the value of a key, and returns the one it had. Lookups see either, never none.
    ///
    /// The old key is replaced as well, which matters where equal keys can be told apart (std's map
    /// keeps the old).
    pub fn insert<'g>(&'g self, key: K, value: V, guard: &'g Guard) -> Option<&'g V> {
        let hash = self.hash(&key);
        self.put(Node::new(hash, key, value), guard).map(|old| &old.value)
    }

    /// [`HashMap::insert`] that reports exhaustion of memory instead of aborting.
    ///
    /// It reports the lack of memory for the entry. Without memory for more buckets the map goes on
    /// with those it has. The other allocations may abort: 6 KiB for every 255 old entries that
    /// await reclamation, if a key is replaced; what a thread allocates for its first read section;
    /// and the background thread of automatic maps, when the first of them grows.
    ///
    /// # Errors
    ///
    /// When there is no memory for the entry: the error gives `key` and `value` back.
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
    /// Wait-free where the key is present.
    ///
    /// # Errors
    ///
    /// When the key is in the map: the error has the value there, and gives `value` back.
    pub fn try_insert<'g>(&'g self, key: K, value: V, guard: &'g Guard) -> Result<&'g V, OccupiedError<'g, V>> {
        let hash = self.hash(&key);
        if let Some(node) = self.find_hashed(hash, &key, guard) {
            // First: if this destructor panicked later, the result would be leaked.
            drop(key);
            return Err(OccupiedError { current: &node.value, value });
        }
        match self.put_new(Node::new(hash, key, value), guard) {
            Ok(new) => Ok(&new.value),
            Err((current, node)) => Err(OccupiedError { current: &current.value, value: node.into_parts().1 }),
        }
    }

    /// Removes a key and returns its value, which stays readable for the guard and is dropped after
    /// a grace period.
    pub fn remove<'g, Q: Hash + Equivalent<K> + ?Sized>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g V> {
        self.remove_entry(key, guard).map(|(_, value)| value)
    }

    /// [`HashMap::remove`] that returns the key as well, as it was in the map.
    pub fn remove_entry<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<(&'g K, &'g V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let removed = self.table.remove(self.hash(key), self.has_key(key), guard)?;
        // SAFETY: just unlinked by us.
        Some(unsafe { self.retire(removed) }.entry())
    }

    /// Links a node in, and returns the one of the same key that it replaces.
    pub(crate) fn put<'g>(&'g self, node: Box<Node<K, V>>, guard: &'g Guard) -> Option<&'g Node<K, V>> {
        match self.table.entry(node.link().hash(), self.has_key(&node.key), guard) {
            Entry::Vacant(entry) => {
                // SAFETY: a node of this map's type, whose box is given up: freed a grace period
                // after it is unlinked, or with the table.
                unsafe { entry.insert(node.into_link()) };
                None
            }
            Entry::Occupied(entry) => {
                // SAFETY: as above.
                let old = unsafe { entry.replace(node.into_link()) };
                // SAFETY: just unlinked by us.
                Some(unsafe { self.retire(old) })
            }
        }
    }

    /// Links a node in if its key is not in the map. Else returns the one that is in the way, and
    /// gives the node back.
    pub(crate) fn put_new<'g>(&'g self, node: Box<Node<K, V>>, guard: &'g Guard) -> PutNew<'g, K, V> {
        match self.table.entry(node.link().hash(), self.has_key(&node.key), guard) {
            Entry::Vacant(entry) => {
                let link = node.into_link();
                // SAFETY: as in `put`; the guard keeps it alive for `'g`, should it be removed at
                // once.
                unsafe {
                    entry.insert(link);
                    Ok(self.node(link))
                }
            }
            // SAFETY: found in this map under the guard.
            Entry::Occupied(entry) => Err((unsafe { self.node(entry.get()) }, node)),
        }
    }

    /// Replaces the very node `old`. Gives the new one back if the old is not in the map any more.
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
                // SAFETY: as in `put`, and the old one just unlinked by us; the guard keeps both
                // alive for `'g`.
                unsafe {
                    self.retire(entry.replace(link));
                    Ok(self.node(link))
                }
            }
        }
    }
}

/// What became of a new node; see [`HashMap::put_new`].
pub(crate) type PutNew<'g, K, V> = Result<&'g Node<K, V>, (&'g Node<K, V>, Box<Node<K, V>>)>;

impl<K, V, S> HashMap<K, V, S> {
    /// Removes the very node, and says whether it was in the map.
    pub(crate) fn unlink(&self, node: &Node<K, V>, guard: &Guard) -> bool
    where
        K: Send + 'static,
        V: Send + 'static,
    {
        match self.entry_of(node, guard) {
            Entry::Vacant(_) => false,
            Entry::Occupied(entry) => {
                // SAFETY: just unlinked by us.
                unsafe { self.retire(entry.remove()) };
                true
            }
        }
    }

    /// Locks the bucket and looks whether the very node is in it. No other node can be mistaken for
    /// it, should it have been removed: its memory is not reused as long as the guard lives.
    pub(crate) fn entry_of<'g>(&'g self, node: &Node<K, V>, guard: &'g Guard) -> Entry<'g> {
        let link = NonNull::from(node.link());
        self.table.entry(node.link().hash(), |found| found == link, guard)
    }

    /// Sees to it that a node is dropped after a grace period, and returns it, which the caller's
    /// guard keeps alive.
    ///
    /// # Safety
    ///
    /// The caller has unlinked it from this map, and holds a guard during `'g`.
    pub(crate) unsafe fn retire<'g>(&self, link: NonNull<Link>) -> &'g Node<K, V>
    where
        K: Send + 'static,
        V: Send + 'static,
    {
        // SAFETY: no reader who begins now finds it; the guard holds the grace period off.
        unsafe {
            Node::<K, V>::retire(link);
            self.node(link)
        }
    }
}
