//! Operations that read an entry and then change it, as one atomic step.
//!
//! All are optimistic, and run the caller's closures outside of locks: they look the entry up,
//! compute and allocate the new one, and replace *exactly the entry* that was looked up. If another
//! thread has changed it since, they start again. So an attempt fails only if an operation of
//! another thread on the same key has succeeded.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;
use relativist_rcu::Guard;

use crate::map::HashMap;
use crate::node::Node;

/// The result of [`HashMap::compute`] and [`FlatMap::compute`](crate::FlatMap::compute): the value
/// before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'g, V> {
    /// The value that was replaced or removed; `None` if the key was absent.
    pub old: Option<&'g V>,
    /// The value that is in the map now; `None` if the entry was removed.
    pub new: Option<&'g V>,
}

/// The error of [`HashMap::compare_exchange`] and
/// [`FlatMap::compare_exchange`](crate::FlatMap::compare_exchange): the value was not the expected
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompareExchangeError<'g, V> {
    /// The value in the map; `None` if the key is absent.
    pub current: Option<&'g V>,
    /// The value that was not inserted.
    pub new: V,
}

impl<V: fmt::Debug> fmt::Display for CompareExchangeError<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.current {
            Some(current) => write!(f, "not exchanged for {:?}: the key has the value {current:?}", self.new),
            None => write!(f, "not exchanged for {:?}: the key is not in the map", self.new),
        }
    }
}

impl<V: fmt::Debug> std::error::Error for CompareExchangeError<'_, V> {}

impl<K, V, S> HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the value of a key. Inserts the key with `value` if it is absent. Wait-free if it is
    /// present.
    ///
    /// ```
    /// let map = relativist::HashMap::new();
    /// let pinned = map.pin();
    /// assert_eq!(pinned.get_or_insert("a", 1), &1);
    /// assert_eq!(pinned.get_or_insert("a", 2), &1);
    /// ```
    pub fn get_or_insert<'g>(&'g self, key: K, value: V, guard: &'g Guard) -> &'g V {
        self.get_or_insert_with(key, || value, guard)
    }

    /// Returns the value of a key. Inserts the key with the result of `value` if it is absent.
    /// Wait-free if it is present.
    ///
    /// `value` runs at most once, outside of locks. If several threads miss the same key at the
    /// same time, each calls its `value`. One result is inserted, the others are dropped, and all
    /// threads get the one in the map.
    ///
    /// ```
    /// let map = relativist::HashMap::new();
    /// let pinned = map.pin();
    /// assert_eq!(pinned.get_or_insert_with("seven", || "seven".len()), &5);
    /// ```
    pub fn get_or_insert_with<'g>(&'g self, key: K, value: impl FnOnce() -> V, guard: &'g Guard) -> &'g V {
        let hash = self.hash(&key);
        if let Some(node) = self.find_hashed(hash, &key, guard) {
            return &node.value;
        }
        match self.put_new(Node::new(hash, key, value()), guard) {
            Ok(new) => &new.value,
            Err((current, _)) => &current.value,
        }
    }

    /// Replaces the value of a key by the result of `update`, and returns the new value; `None` if
    /// the key is absent.
    ///
    /// Other threads see the old value or the new one. `update` runs outside of locks, and runs
    /// again if another thread has changed the entry: only the last result is inserted. `key`
    /// replaces the key in the map, as with [`HashMap::insert`].
    ///
    /// ```
    /// let map = relativist::HashMap::from([("a", 1)]);
    /// let pinned = map.pin();
    /// assert_eq!(pinned.update("a", |n| n + 1), Some(&2));
    /// assert_eq!(pinned.update("b", |n| n + 1), None);
    /// ```
    pub fn update<'g>(&'g self, key: K, update: impl FnMut(&V) -> V, guard: &'g Guard) -> Option<&'g V> {
        self.update_or_give_back(key, update, guard).ok()
    }

    /// Like [`HashMap::update`], but inserts `value` if the key is absent.
    ///
    /// ```
    /// let words = relativist::HashMap::new();
    /// for word in ["no", "more", "no", "less"] {
    ///     words.pin().update_or_insert(word, |n| n + 1, 1);
    /// }
    /// assert_eq!(words.pin().get("no"), Some(&2));
    /// ```
    pub fn update_or_insert<'g>(&'g self, key: K, update: impl FnMut(&V) -> V, value: V, guard: &'g Guard) -> &'g V {
        self.update_or_insert_with(key, update, || value, guard)
    }

    /// Like [`HashMap::update`], but inserts the result of `value` if the key is absent. `value`
    /// runs at most once.
    pub fn update_or_insert_with<'g>(
        &'g self,
        key: K,
        mut update: impl FnMut(&V) -> V,
        value: impl FnOnce() -> V,
        guard: &'g Guard,
    ) -> &'g V {
        let mut key = match self.update_or_give_back(key, &mut update, guard) {
            Ok(new) => return new,
            Err(key) => key,
        };
        let mut value = value();
        loop {
            let hash = self.hash(&key);
            (key, value) = match self.put_new(Node::new(hash, key, value), guard) {
                Ok(new) => return &new.value,
                Err((_, node)) => node.into_parts(),
            };
            key = match self.update_or_give_back(key, &mut update, guard) {
                Ok(new) => return new,
                Err(key) => key,
            };
        }
    }

    fn update_or_give_back<'g>(
        &'g self,
        mut key: K,
        mut update: impl FnMut(&V) -> V,
        guard: &'g Guard,
    ) -> Result<&'g V, K> {
        let hash = self.hash(&key);
        loop {
            let Some(old) = self.find_hashed(hash, &key, guard) else { return Err(key) };
            let new = update(&old.value);
            match self.replace(old, Node::new(hash, key, new), guard) {
                Ok(new) => return Ok(&new.value),
                Err(node) => (key, _) = node.into_parts(),
            }
        }
    }

    /// Calls `decide` with the value of a key, or `None`, and applies the result: `Ok(Some(value))`
    /// sets the value, `Ok(None)` removes the entry, and `Err` changes nothing and is returned. All
    /// other operations on an entry are special cases of this one.
    ///
    /// `decide` runs outside of locks, and runs again if another thread has changed the entry: only
    /// its last result is applied. It may use the map. If there is a new value, `key` replaces the
    /// key in the map, as with [`HashMap::insert`].
    ///
    /// # Errors
    ///
    /// Returns the error of `decide`.
    ///
    /// ```
    /// use relativist::HashMap;
    ///
    /// /// Takes one from the stock; the last one takes the entry with it.
    /// fn take(stock: &HashMap<&'static str, u32>, what: &'static str) -> Result<(), String> {
    ///     stock.pin().compute(what, |left| match left {
    ///         None => Err(format!("no {what} left")),
    ///         Some(1) => Ok(None),
    ///         Some(n) => Ok(Some(n - 1)),
    ///     })?;
    ///     Ok(())
    /// }
    ///
    /// let stock = HashMap::from([("bolts", 2)]);
    /// assert_eq!(take(&stock, "bolts"), Ok(()));
    /// assert_eq!(take(&stock, "bolts"), Ok(()));
    /// assert_eq!(take(&stock, "bolts"), Err("no bolts left".into()));
    /// assert!(stock.is_empty());
    /// ```
    pub fn compute<'g, E>(
        &'g self,
        mut key: K,
        mut decide: impl FnMut(Option<&'g V>) -> Result<Option<V>, E>,
        guard: &'g Guard,
    ) -> Result<Change<'g, V>, E> {
        let hash = self.hash(&key);
        loop {
            let found = self.find_hashed(hash, &key, guard);
            let old = found.map(|node| &node.value);
            let decision = match decide(old) {
                Ok(decision) => decision,
                Err(error) => {
                    // The key is dropped first: if its destructor panicked later, the error would
                    // be leaked.
                    drop(key);
                    return Err(error);
                }
            };
            match (found, decision) {
                (None, None) => return Ok(Change { old, new: None }),
                (Some(node), None) => {
                    if self.unlink(node, guard) {
                        return Ok(Change { old, new: None });
                    }
                }
                (_, Some(value)) => {
                    let new = Node::new(hash, key, value);
                    let done = match found {
                        None => self.put_new(new, guard).map_err(|(_, node)| node),
                        Some(node) => self.replace(node, new, guard),
                    };
                    match done {
                        Ok(node) => return Ok(Change { old, new: Some(&node.value) }),
                        Err(node) => (key, _) = node.into_parts(),
                    }
                }
            }
        }
    }

    /// Replaces the value of a key if it equals `current`, and returns the replaced value.
    ///
    /// Values are compared outside of locks. To insert if there is no value, use
    /// [`HashMap::try_insert`]; to remove conditionally, [`HashMap::remove_if`].
    ///
    /// # Errors
    ///
    /// Returns an error if the value is a different one, or the key is absent. The error contains
    /// the value in the map, if any, and `new`.
    ///
    /// ```
    /// let map = relativist::HashMap::from([("a", 1)]);
    /// let pinned = map.pin();
    /// assert_eq!(pinned.compare_exchange("a", &1, 2), Ok(&1));
    /// let error = pinned.compare_exchange("a", &1, 3).unwrap_err();
    /// assert_eq!((error.current, error.new), (Some(&2), 3));
    /// ```
    pub fn compare_exchange<'g>(
        &'g self,
        mut key: K,
        current: &V,
        mut new: V,
        guard: &'g Guard,
    ) -> Result<&'g V, CompareExchangeError<'g, V>>
    where
        V: PartialEq,
    {
        let hash = self.hash(&key);
        loop {
            let found = self.find_hashed(hash, &key, guard);
            let Some(old) = found.filter(|node| node.value == *current) else {
                drop(key); // first, as in `compute`
                return Err(CompareExchangeError { current: found.map(|node| &node.value), new });
            };
            match self.replace(old, Node::new(hash, key, new), guard) {
                Ok(_) => return Ok(&old.value),
                Err(node) => (key, new) = node.into_parts(),
            }
        }
    }

    /// Removes a key if `condition` returns true for its entry, and returns the entry.
    ///
    /// `condition` runs outside of locks, and runs again if another thread has changed the entry:
    /// the removed entry is one for which it returned true.
    ///
    /// ```
    /// let map = relativist::HashMap::from([("a", 1)]);
    /// let pinned = map.pin();
    /// assert_eq!(pinned.remove_if("a", |_, &n| n > 1), None);
    /// assert_eq!(pinned.remove_if("a", |_, &n| n == 1), Some((&"a", &1)));
    /// ```
    pub fn remove_if<'g, Q: Hash + Equivalent<K> + ?Sized>(
        &'g self,
        key: &Q,
        mut condition: impl FnMut(&K, &V) -> bool,
        guard: &'g Guard,
    ) -> Option<(&'g K, &'g V)> {
        let hash = self.hash(key);
        loop {
            let node = self.find_hashed(hash, key, guard).filter(|node| condition(&node.key, &node.value))?;
            if self.unlink(node, guard) {
                return Some(node.entry());
            }
        }
    }
}
