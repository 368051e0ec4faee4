//! Operations on entries, under a guard of the caller's.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;

use relativist_rcu::Guard;

use crate::iter::Iter;
use crate::map::HashMap;
use crate::node::Node;
use crate::raw::{Entry, Link};

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

impl<K, V, S> HashMap<K, V, S> {
    /// Iterates over the entries in an arbitrary order, which is that of their mixed hashes.
    ///
    /// An entry that is in the map throughout is seen exactly once, however often the map is resized meanwhile; one that
    /// comes or goes or is [renamed](HashMap::rename) may be seen or not. Wait-free per step; all of it takes time proportional to buckets and entries.
    pub fn iter<'g>(&'g self, guard: &'g Guard) -> Iter<'g, K, V> {
        Iter::new(self.table.iter(guard))
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> HashMap<K, V, S> {
    /// The value of a key. Wait-free.
    ///
    /// A key that is in the map throughout the call is found, whatever resizes go on.
    #[inline]
    pub fn get<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.find(key, guard).map(|node| &node.value)
    }

    /// The key as it is in the map, and its value. Wait-free.
    #[inline]
    pub fn get_key_value<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<(&'g K, &'g V)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.find(key, guard).map(|node| (&node.key, &node.value))
    }

    /// Whether the key is in the map. Wait-free.
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q, guard: &Guard) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.find(key, guard).is_some()
    }

    #[inline(always)]
    fn find<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g Node<K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let link = self.table.find(self.hash(key), self.has_key(key), guard)?;
        // SAFETY: found in this map under the guard: alive as long as the guard, or, if it is not removed, the map.
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
    /// The old key is replaced as well, which matters where equal keys can be told apart (std's map keeps the old).
    pub fn insert<'g>(&'g self, key: K, value: V, guard: &'g Guard) -> Option<&'g V> {
        let hash = self.hash(&key);
        let node = Node::new(hash, key, value);
        match self.table.entry(hash, self.has_key(&node.key), guard) {
            Entry::Vacant(entry) => {
                // SAFETY: a node of this map's type, whose box is given up: freed a grace period after it is unlinked, or
                // with the table.
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

    /// Inserts an entry if the key is not in the map, and returns a reference to the value.
    ///
    /// # Errors
    ///
    /// When the key is in the map: the error has the value there, and gives `value` back.
    pub fn try_insert<'g>(&'g self, key: K, value: V, guard: &'g Guard) -> Result<&'g V, OccupiedError<'g, V>> {
        let hash = self.hash(&key);
        if let Some(current) = self.get(&key, guard) {
            return Err(OccupiedError { current, value });
        }
        let node = Node::new(hash, key, value);
        match self.table.entry(hash, self.has_key(&node.key), guard) {
            Entry::Vacant(entry) => {
                let link = node.into_link();
                // SAFETY: as in `insert`; the guard keeps it alive for `'g`, should it be removed at once.
                unsafe {
                    entry.insert(link);
                    Ok(&self.node(link).value)
                }
            }
            Entry::Occupied(entry) => {
                // SAFETY: found in this map under the guard.
                let current = unsafe { &self.node(entry.get()).value };
                Err(OccupiedError { current, value: node.value })
            }
        }
    }

    /// Removes a key and returns its value, which stays readable for the guard and is dropped after a grace period.
    pub fn remove<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let removed = self.table.remove(self.hash(key), self.has_key(key), guard)?;
        // SAFETY: just unlinked by us.
        Some(unsafe { self.retire(removed) })
    }

    /// Removes the entries that are in the map when it gets to them, one by one.
    pub fn clear(&self, guard: &Guard) {
        for link in self.table.iter(guard) {
            // SAFETY: reached under the guard.
            let hash = unsafe { link.as_ref() }.hash();
            if let Entry::Occupied(entry) = self.table.entry(hash, |found| found == link, guard) {
                // SAFETY: just unlinked by us.
                unsafe { self.retire(entry.remove()) };
            }
        }
    }

    /// Sees to it that a node is dropped after a grace period, and returns its value, which the caller's guard keeps alive.
    ///
    /// # Safety
    ///
    /// The caller has unlinked it from this map, and holds a guard during `'g`.
    unsafe fn retire<'g>(&self, link: NonNull<Link>) -> &'g V {
        // SAFETY: no reader who begins now finds it; the guard holds the grace period off.
        unsafe {
            Node::<K, V>::retire(link);
            &self.node(link).value
        }
    }
}
