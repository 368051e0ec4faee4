//! Operations that read an entry and then change it, as one atomic step.
//!
//! All are optimistic, and run the caller's closures outside of locks: they look the entry up,
//! compute the new one, and replace *exactly the entry* that was looked up. If another thread has
//! changed or moved it since, they start again.

use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;
use relativist_rcu::Guard;

use super::map::FlatMap;
use super::relocate::Relocatable;
use super::segment::Entry;
use crate::atomic::{Change, CompareExchangeError};

impl<K, V, S> FlatMap<K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Returns the value of a key. Inserts the key with `value` if it is absent. Wait-free if it is
    /// present.
    ///
    /// ```
    /// let map = relativist::flat::FlatMap::new();
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
    /// let map = relativist::flat::FlatMap::new();
    /// let pinned = map.pin();
    /// assert_eq!(pinned.get_or_insert_with("seven", || "seven".len()), &5);
    /// ```
    pub fn get_or_insert_with<'g>(&'g self, key: K, value: impl FnOnce() -> V, guard: &'g Guard) -> &'g V {
        let hash = self.table.hash(&key);
        if let Some(entry) = self.find_hashed(hash, &key, guard) {
            return &entry.value;
        }
        match self.put_new(hash, Entry { key, value: value() }, guard) {
            Ok(new) => &new.value,
            Err((current, _)) => &current.value,
        }
    }

    /// Replaces the value of a key by the result of `update`, and returns the new value. Returns
    /// `None` if the key is absent.
    ///
    /// Other threads see the old value or the new one. `update` runs outside of locks, and runs
    /// again if another thread has changed or moved the entry: only the last result is inserted.
    /// `key` replaces the key in the map, as with [`FlatMap::insert`].
    ///
    /// ```
    /// let map = relativist::flat::FlatMap::from([("a", 1)]);
    /// let pinned = map.pin();
    /// assert_eq!(pinned.update("a", |n| n + 1), Some(&2));
    /// assert_eq!(pinned.update("b", |n| n + 1), None);
    /// ```
    pub fn update<'g>(&'g self, key: K, update: impl FnMut(&V) -> V, guard: &'g Guard) -> Option<&'g V> {
        self.update_or_give_back(key, update, guard).ok()
    }

    /// Like [`FlatMap::update`], but inserts `value` if the key is absent.
    ///
    /// ```
    /// let words = relativist::flat::FlatMap::new();
    /// for word in ["no", "more", "no", "less"] {
    ///     words.pin().update_or_insert(word, |n| n + 1, 1);
    /// }
    /// assert_eq!(words.pin().get("no"), Some(&2));
    /// ```
    pub fn update_or_insert<'g>(&'g self, key: K, update: impl FnMut(&V) -> V, value: V, guard: &'g Guard) -> &'g V {
        self.update_or_insert_with(key, update, || value, guard)
    }

    /// Like [`FlatMap::update`], but inserts the result of `value` if the key is absent. `value`
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
            let hash = self.table.hash(&key);
            (key, value) = match self.put_new(hash, Entry { key, value }, guard) {
                Ok(new) => return &new.value,
                Err((_, Entry { key, value })) => (key, value),
            };
            key = match self.update_or_give_back(key, &mut update, guard) {
                Ok(new) => return new,
                Err(key) => key,
            };
        }
    }

    /// Updates a value. Returns the key as the error if it is absent.
    fn update_or_give_back<'g>(
        &'g self,
        mut key: K,
        mut update: impl FnMut(&V) -> V,
        guard: &'g Guard,
    ) -> Result<&'g V, K> {
        let hash = self.table.hash(&key);
        loop {
            let Some(old) = self.find_hashed(hash, &key, guard) else { return Err(key) };
            let new = update(&old.value);
            match self.table.replace(hash, old, Entry { key, value: new }, guard) {
                Ok(new) => return Ok(&new.value),
                Err(entry) => key = entry.key,
            }
        }
    }

    /// Calls `decide` with the value of a key, or `None`, and applies the result: `Ok(Some(value))`
    /// sets the value, `Ok(None)` removes the entry, and `Err` changes nothing and is returned. All
    /// other operations on an entry are special cases of this one.
    ///
    /// `decide` runs outside of locks, and runs again if another thread has changed or moved the
    /// entry: only its last result is applied. It may use the map. If there is a new value, `key`
    /// replaces the key in the map, as with [`FlatMap::insert`].
    ///
    /// # Errors
    ///
    /// Returns the error of `decide`.
    ///
    /// ```
    /// use relativist::flat::FlatMap;
    ///
    /// /// Takes one from the stock. Removes the entry when none is left.
    /// fn take(stock: &FlatMap<&'static str, u32>, what: &'static str) -> Result<(), String> {
    ///     stock.pin().compute(what, |left| match left {
    ///         None => Err(format!("no {what} left")),
    ///         Some(1) => Ok(None),
    ///         Some(n) => Ok(Some(n - 1)),
    ///     })?;
    ///     Ok(())
    /// }
    ///
    /// let stock = FlatMap::from([("bolts", 2)]);
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
        let hash = self.table.hash(&key);
        loop {
            let found = self.find_hashed(hash, &key, guard);
            let old = found.map(|entry| &entry.value);
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
                (Some(entry), None) => {
                    if self.table.remove_exactly(hash, entry, guard) {
                        return Ok(Change { old, new: None });
                    }
                }
                (_, Some(value)) => {
                    let new = Entry { key, value };
                    let done = match found {
                        None => self.put_new(hash, new, guard).map_err(|(_, entry)| entry),
                        Some(entry) => self.table.replace(hash, entry, new, guard),
                    };
                    match done {
                        Ok(entry) => return Ok(Change { old, new: Some(&entry.value) }),
                        Err(entry) => key = entry.key,
                    }
                }
            }
        }
    }

    /// Replaces the value of a key if it equals `current`, and returns the replaced value.
    ///
    /// Values are compared outside of locks. To insert if there is no value, use
    /// [`FlatMap::try_insert`]; to remove conditionally, [`FlatMap::remove_if`].
    ///
    /// # Errors
    ///
    /// Returns an error if the value is a different one, or the key is absent. The error contains
    /// the value in the map, if any, and `new`.
    ///
    /// ```
    /// let map = relativist::flat::FlatMap::from([("a", 1)]);
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
        let hash = self.table.hash(&key);
        loop {
            let found = self.find_hashed(hash, &key, guard);
            let Some(old) = found.filter(|entry| entry.value == *current) else {
                drop(key); // before the error exists, as in `compute`
                return Err(CompareExchangeError { current: found.map(|entry| &entry.value), new });
            };
            match self.table.replace(hash, old, Entry { key, value: new }, guard) {
                Ok(_) => return Ok(&old.value),
                Err(entry) => Entry { key, value: new } = entry,
            }
        }
    }

    /// Removes a key if `condition` returns true for its entry, and returns the entry.
    ///
    /// `condition` runs outside of locks, and runs again if another thread has changed or moved the
    /// entry: the removed entry is one for which it returned true.
    ///
    /// ```
    /// let map = relativist::flat::FlatMap::from([("a", 1)]);
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
        let hash = self.table.hash(key);
        loop {
            let entry = self.find_hashed(hash, key, guard).filter(|entry| condition(&entry.key, &entry.value))?;
            if self.table.remove_exactly(hash, entry, guard) {
                return Some(entry.pair());
            }
        }
    }
}
