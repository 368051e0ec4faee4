//! A set together with a guard.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;
use relativist_rcu::Guard;

use super::HashSet;
use crate::iter::Keys;
use crate::node::Node;

/// A set together with a read section. Has all operations on elements. Returned by
/// [`HashSet::pin`]; [`Pinned`](crate::Pinned) explains handles.
pub struct PinnedSet<'s, T, S> {
    pub(super) set: &'s HashSet<T, S>,
    pub(super) guard: Guard,
}

impl<'s, T, S> PinnedSet<'s, T, S> {
    #[inline(always)]
    pub(super) fn new(set: &'s HashSet<T, S>, guard: Guard) -> Self {
        Self { set, guard }
    }

    /// Returns the set.
    pub fn set(&self) -> &'s HashSet<T, S> {
        self.set
    }

    /// Returns the guard, for use with other maps and sets.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// See [`HashSet::len`].
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// See [`HashSet::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Iterates over the elements; see [`HashMap::iter`](crate::HashMap::iter).
    pub fn iter(&self) -> Keys<'_, T, ()> {
        self.set.map.keys(&self.guard)
    }
}

impl<T: Hash + Eq, S: BuildHasher> PinnedSet<'_, T, S> {
    /// Returns whether the value is in the set. Wait-free.
    #[inline]
    pub fn contains<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> bool {
        self.set.map.contains_key(value, &self.guard)
    }

    /// Returns the element that is equal to the value. Wait-free.
    #[inline]
    pub fn get<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> Option<&T> {
        self.set.map.get_key_value(value, &self.guard).map(|(element, ())| element)
    }
}

impl<T: Hash + Eq + Send + Sync + 'static, S: BuildHasher> PinnedSet<'_, T, S> {
    /// Adds a value and returns whether it is new. If an equal element is in the set, that one
    /// stays.
    pub fn insert(&self, value: T) -> bool {
        self.set.map.try_insert(value, (), &self.guard).is_ok()
    }

    /// Adds a value. If there is an equal element, replaces that and returns it.
    pub fn replace(&self, value: T) -> Option<&T> {
        let node = Node::new(self.set.map.hash(&value), value, ());
        self.set.map.put(node, &self.guard).map(|old| &old.key)
    }

    /// Returns the element that is equal to the value. Adds the value if there is none.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use relativist::HashSet;
    ///
    /// /// One allocation for all equal strings.
    /// fn intern(names: &HashSet<Arc<str>>, name: &str) -> Arc<str> {
    ///     let pinned = names.pin();
    ///     let known = pinned.get(name).cloned();
    ///     known.unwrap_or_else(|| pinned.get_or_insert(name.into()).clone())
    /// }
    ///
    /// let names = HashSet::new();
    /// assert!(Arc::ptr_eq(&intern(&names, "a"), &intern(&names, "a")));
    /// ```
    pub fn get_or_insert(&self, value: T) -> &T {
        let map = &self.set.map;
        let hash = map.hash(&value);
        if let Some(node) = map.find_hashed(hash, &value, &self.guard) {
            return &node.key;
        }
        match map.put_new(Node::new(hash, value, ()), &self.guard) {
            Ok(node) | Err((node, _)) => &node.key,
        }
    }

    /// Removes a value and returns whether it was in the set.
    pub fn remove<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> bool {
        self.take(value).is_some()
    }

    /// Removes a value and returns the element that was equal to it, which is dropped after a grace
    /// period.
    pub fn take<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> Option<&T> {
        self.set.map.remove_entry(value, &self.guard).map(|(element, ())| element)
    }
}

impl<T: Send + Sync + 'static, S> PinnedSet<'_, T, S> {
    /// See [`HashMap::clear`](crate::HashMap::clear).
    pub fn clear(&self) {
        self.set.map.clear(&self.guard);
    }

    /// Removes the elements for which `keep` returns false; see
    /// [`HashMap::retain`](crate::HashMap::retain).
    pub fn retain(&self, mut keep: impl FnMut(&T) -> bool) {
        self.set.map.retain(|element, ()| keep(element), &self.guard);
    }

    /// Returns an iterator that removes the elements for which `extract` returns true; see
    /// [`HashMap::extract_if`](crate::HashMap::extract_if).
    pub fn extract_if(&self, mut extract: impl FnMut(&T) -> bool) -> impl Iterator<Item = &T> {
        let entries = self.set.map.extract_if(move |element, ()| extract(element), &self.guard);
        entries.map(|(element, ())| element)
    }

    /// Removes all elements and returns them; see [`HashMap::drain`](crate::HashMap::drain).
    pub fn drain(&self) -> impl Iterator<Item = &T> {
        self.set.map.drain(&self.guard).map(|(element, ())| element)
    }
}

impl<'p, T, S> IntoIterator for &'p PinnedSet<'_, T, S> {
    type Item = &'p T;
    type IntoIter = Keys<'p, T, ()>;

    fn into_iter(self) -> Keys<'p, T, ()> {
        self.iter()
    }
}

impl<T: fmt::Debug, S> fmt::Debug for PinnedSet<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.set.fmt(f)
    }
}
