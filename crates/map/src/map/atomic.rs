//! Operations that read an entry and then change it, as one atomic step.
//!
//! All are optimistic, and run the caller's closures outside of locks: they look the entry up,
//! compute the new one, and replace *exactly the entry* that was looked up. If another thread has
//! changed it since, or a flat map has moved it, they start again. So in a `HashMap` an attempt
//! fails only if an operation of another thread on the same key has succeeded.

/// `$Guard` is the type of guards, and `$vis` the visibility of operations that take one.
/// `$changed` says why closures run again.
macro_rules! atomic {
    ($Map:ident, $Guard:ty, visible: [$($vis:tt)*], $changed:literal, update: [$($update:tt)*]) => {
        impl<K, V, S> $Map<K, V, S> where $($update)* {
            /// Returns the value of a key. Inserts the key with `value` if it is absent. Wait-free
            /// if it is present.
            ///
            /// ```
            #[doc = concat!("let map = relativist::", stringify!($Map), "::new();")]
            /// let pinned = map.pin();
            /// assert_eq!(pinned.get_or_insert("a", 1), &1);
            /// assert_eq!(pinned.get_or_insert("a", 2), &1);
            /// ```
            $($vis)* fn get_or_insert<'g>(&'g self, key: K, value: V, guard: &'g $Guard) -> &'g V {
                self.get_or_insert_with(key, || value, guard)
            }

            /// Returns the value of a key. Inserts the key with the result of `value` if it is
            /// absent. Wait-free if it is present.
            ///
            /// `value` runs at most once, outside of locks. If several threads miss the same key at
            /// the same time, each calls its `value`. One result is inserted, the others are
            /// dropped, and all threads get the one in the map.
            ///
            /// ```
            #[doc = concat!("let map = relativist::", stringify!($Map), "::new();")]
            /// let pinned = map.pin();
            /// assert_eq!(pinned.get_or_insert_with("seven", || "seven".len()), &5);
            /// ```
            $($vis)* fn get_or_insert_with<'g>(&'g self, key: K, value: impl FnOnce() -> V, guard: &'g $Guard) -> &'g V {
                let hash = self.hash(&key);
                if let Some(entry) = self.find_hashed(hash, &key, guard) {
                    return &entry.value;
                }
                match self.put_new(hash, (key, value()), guard) {
                    Ok(new) => &new.value,
                    Err((current, _)) => &current.value,
                }
            }

            /// Replaces the value of a key by the result of `update`, and returns the new value.
            /// Returns `None` if the key is absent.
            ///
            /// Other threads see the old value or the new one. `update` runs outside of locks, and
            #[doc = concat!("runs again if another thread has ", $changed, " the entry: only the last result is")]
            #[doc = concat!("inserted. `key` replaces the key in the map, as with [`", stringify!($Map), "::insert`].")]
            ///
            /// ```
            #[doc = concat!("let map = relativist::", stringify!($Map), "::from([(\"a\", 1)]);")]
            /// let pinned = map.pin();
            /// assert_eq!(pinned.update("a", |n| n + 1), Some(&2));
            /// assert_eq!(pinned.update("b", |n| n + 1), None);
            /// ```
            $($vis)* fn update<'g>(&'g self, key: K, update: impl FnMut(&V) -> V, guard: &'g $Guard) -> Option<&'g V> {
                self.update_or_give_back(key, update, guard).ok()
            }

            #[doc = concat!("Like [`", stringify!($Map), "::update`], but inserts `value` if the key is absent.")]
            ///
            /// ```
            #[doc = concat!("let words = relativist::", stringify!($Map), "::new();")]
            /// for word in ["no", "more", "no", "less"] {
            ///     words.pin().update_or_insert(word, |n| n + 1, 1);
            /// }
            /// assert_eq!(words.pin().get("no"), Some(&2));
            /// ```
            $($vis)* fn update_or_insert<'g>(
                &'g self,
                key: K,
                update: impl FnMut(&V) -> V,
                value: V,
                guard: &'g $Guard,
            ) -> &'g V {
                self.update_or_insert_with(key, update, || value, guard)
            }

            #[doc = concat!("Like [`", stringify!($Map), "::update`], but inserts the result of `value` if the key is")]
            /// absent. `value` runs at most once.
            $($vis)* fn update_or_insert_with<'g>(
                &'g self,
                key: K,
                mut update: impl FnMut(&V) -> V,
                value: impl FnOnce() -> V,
                guard: &'g $Guard,
            ) -> &'g V {
                let mut key = match self.update_or_give_back(key, &mut update, guard) {
                    Ok(new) => return new,
                    Err(key) => key,
                };
                let mut value = value();
                loop {
                    let hash = self.hash(&key);
                    (key, value) = match self.put_new(hash, (key, value), guard) {
                        Ok(new) => return &new.value,
                        Err((_, entry)) => entry,
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
                guard: &'g $Guard,
            ) -> Result<&'g V, K> {
                let hash = self.hash(&key);
                loop {
                    let Some(old) = self.find_hashed(hash, &key, guard) else { return Err(key) };
                    let new = update(&old.value);
                    match self.replace(hash, old, (key, new), guard) {
                        Ok(new) => return Ok(&new.value),
                        Err(entry) => (key, _) = entry,
                    }
                }
            }

            /// Calls `decide` with the value of a key, or `None`, and applies the result:
            /// `Ok(Some(value))` sets the value, `Ok(None)` removes the entry, and `Err` changes
            /// nothing and is returned. All other operations on an entry are special cases of this
            /// one.
            ///
            #[doc = concat!("`decide` runs outside of locks, and runs again if another thread has ", $changed, " the")]
            /// entry: only its last result is applied. It may use the map. If there is a new value,
            #[doc = concat!("`key` replaces the key in the map, as with [`", stringify!($Map), "::insert`].")]
            ///
            /// # Errors
            ///
            /// Returns the error of `decide`.
            ///
            /// ```
            #[doc = concat!("use relativist::", stringify!($Map), " as Map;")]
            ///
            /// /// Takes one from the stock. Removes the entry when none is left.
            /// fn take(stock: &Map<&'static str, u32>, what: &'static str) -> Result<(), String> {
            ///     stock.pin().compute(what, |left| match left {
            ///         None => Err(format!("no {what} left")),
            ///         Some(1) => Ok(None),
            ///         Some(n) => Ok(Some(n - 1)),
            ///     })?;
            ///     Ok(())
            /// }
            ///
            /// let stock = Map::from([("bolts", 2)]);
            /// assert_eq!(take(&stock, "bolts"), Ok(()));
            /// assert_eq!(take(&stock, "bolts"), Ok(()));
            /// assert_eq!(take(&stock, "bolts"), Err("no bolts left".into()));
            /// assert!(stock.is_empty());
            /// ```
            $($vis)* fn compute<'g, E>(
                &'g self,
                mut key: K,
                mut decide: impl FnMut(Option<&'g V>) -> Result<Option<V>, E>,
                guard: &'g $Guard,
            ) -> Result<Change<'g, V>, E> {
                let hash = self.hash(&key);
                loop {
                    let found = self.find_hashed(hash, &key, guard);
                    let old = found.map(|entry| &entry.value);
                    let decision = match decide(old) {
                        Ok(decision) => decision,
                        Err(error) => {
                            // The key is dropped first: if its destructor panicked later, the error
                            // would be leaked.
                            drop(key);
                            return Err(error);
                        }
                    };
                    match (found, decision) {
                        (None, None) => return Ok(Change { old, new: None }),
                        (Some(entry), None) => {
                            if self.remove_exactly(hash, entry, guard) {
                                return Ok(Change { old, new: None });
                            }
                        }
                        (_, Some(value)) => {
                            let done = match found {
                                None => self.put_new(hash, (key, value), guard).map_err(|(_, entry)| entry),
                                Some(old) => self.replace(hash, old, (key, value), guard),
                            };
                            match done {
                                Ok(new) => return Ok(Change { old, new: Some(&new.value) }),
                                Err(entry) => (key, _) = entry,
                            }
                        }
                    }
                }
            }

            /// Replaces the value of a key if it equals `current`, and returns the replaced value.
            ///
            /// Values are compared outside of locks. To insert if there is no value, use
            #[doc = concat!("[`", stringify!($Map), "::try_insert`]; to remove conditionally,")]
            #[doc = concat!("[`", stringify!($Map), "::remove_if`].")]
            ///
            /// # Errors
            ///
            /// Returns an error if the value is a different one, or the key is absent. The error
            /// contains the value in the map, if any, and `new`.
            ///
            /// ```
            #[doc = concat!("let map = relativist::", stringify!($Map), "::from([(\"a\", 1)]);")]
            /// let pinned = map.pin();
            /// assert_eq!(pinned.compare_exchange("a", &1, 2), Ok(&1));
            /// let error = pinned.compare_exchange("a", &1, 3).unwrap_err();
            /// assert_eq!((error.current, error.new), (Some(&2), 3));
            /// ```
            $($vis)* fn compare_exchange<'g>(
                &'g self,
                mut key: K,
                current: &V,
                mut new: V,
                guard: &'g $Guard,
            ) -> Result<&'g V, CompareExchangeError<'g, V>>
            where
                V: PartialEq,
            {
                let hash = self.hash(&key);
                loop {
                    let found = self.find_hashed(hash, &key, guard);
                    let Some(old) = found.filter(|entry| entry.value == *current) else {
                        drop(key); // first, as in `compute`
                        return Err(CompareExchangeError { current: found.map(|entry| &entry.value), new });
                    };
                    match self.replace(hash, old, (key, new), guard) {
                        Ok(_) => return Ok(&old.value),
                        Err(entry) => (key, new) = entry,
                    }
                }
            }

            /// Removes a key if `condition` returns true for its entry, and returns the entry.
            ///
            #[doc = concat!("`condition` runs outside of locks, and runs again if another thread has ", $changed)]
            /// the entry: the removed entry is one for which it returned true.
            ///
            /// ```
            #[doc = concat!("let map = relativist::", stringify!($Map), "::from([(\"a\", 1)]);")]
            /// let pinned = map.pin();
            /// assert_eq!(pinned.remove_if("a", |_, &n| n > 1), None);
            /// assert_eq!(pinned.remove_if("a", |_, &n| n == 1), Some((&"a", &1)));
            /// ```
            $($vis)* fn remove_if<'g, Q: Hash + Equivalent<K> + ?Sized>(
                &'g self,
                key: &Q,
                mut condition: impl FnMut(&K, &V) -> bool,
                guard: &'g $Guard,
            ) -> Option<(&'g K, &'g V)> {
                let hash = self.hash(key);
                loop {
                    let entry = self.find_hashed(hash, key, guard).filter(|entry| condition(&entry.key, &entry.value))?;
                    if self.remove_exactly(hash, entry, guard) {
                        return Some(entry.pair());
                    }
                }
            }
        }
    };
}

pub(crate) use atomic;
