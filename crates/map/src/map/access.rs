//! The basic operations on single entries: look up, insert, remove. The caller passes a guard.
//!
//! Each map finds and changes its entries in its own way, by `find_hashed`, `put`, `put_new`,
//! `replace`, `remove_hashed` and `remove_exactly`. Everything else is the same.

/// `$Guard` is the type of guards, and `$vis` the visibility of operations that take one. The lists
/// are attributes of lookups and of updates. `$BATCH` is the number of lookups whose memory is
/// requested at once.
macro_rules! access {
    (
        $Map:ident, $Guard:ty, visible: [$($vis:tt)*], $BATCH:expr,
        lookups: [$($lookup:tt)*], updates: [$($change:tt)*], update: [$($update:tt)*]
    ) => {
        impl<K: Hash + Eq, V, S: BuildHasher> $Map<K, V, S> {
            /// Returns the value of a key. Wait-free.
            ///
            /// Finds every key that is in the map throughout the call, also during resizes.
            $($lookup)*
            $($vis)* fn get<'g, Q: Hash + Equivalent<K> + ?Sized>(&'g self, key: &Q, guard: &'g $Guard) -> Option<&'g V> {
                self.find(key, guard).map(|entry| &entry.value)
            }

            /// Returns the key that is in the map, and its value. Wait-free.
            #[inline]
            $($vis)* fn get_key_value<'g, Q>(&'g self, key: &Q, guard: &'g $Guard) -> Option<(&'g K, &'g V)>
            where
                Q: Hash + Equivalent<K> + ?Sized,
            {
                self.find(key, guard).map(|entry| entry.pair())
            }

            /// Returns whether the key is in the map. Wait-free.
            #[inline]
            $($vis)* fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q, guard: &$Guard) -> bool {
                self.find(key, guard).is_some()
            }

            /// Returns a copy of the value of a key. Takes no guard, and enters a read section of
            /// its own. Wait-free.
            ///
            /// ```
            #[doc = concat!("let map = relativist::", stringify!($Map), "::from([(\"one\", 1)]);")]
            /// assert_eq!(map.get_copied("one"), Some(1));
            /// assert!(map.contains("one"));
            /// ```
            $($lookup)*
            pub fn get_copied<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
            where
                V: Copy,
            {
                self.pin().get(key).copied()
            }

            /// Returns a clone of the value of a key. Takes no guard. Wait-free, apart from
            /// `clone`, which runs inside the read section.
            ///
            /// ```
            /// use std::sync::Arc;
            ///
            #[doc = concat!("let map = relativist::", stringify!($Map), "::from([(\"one\", Arc::new(1))]);")]
            /// assert_eq!(map.get_cloned("one").as_deref(), Some(&1));
            /// ```
            $($lookup)*
            pub fn get_cloned<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V>
            where
                V: Clone,
            {
                self.pin().get(key).cloned()
            }

            /// Returns whether the key is in the map. Takes no guard. Wait-free.
            $($lookup)*
            pub fn contains<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
                self.pin().contains_key(key)
            }

            /// Returns the values of several keys.
            ///
            /// Each lookup is wait-free and linearizable on its own, like
            #[doc = concat!("[`get`](", stringify!($Map), "::get). This is faster if the map is larger than the")]
            /// processor's cache, because it requests the memory for a batch of lookups at once,
            /// while a loop of single lookups waits for one after the other. In maps that fit the
            /// cache it gains nothing. It allocates nothing.
            ///
            /// ```
            #[doc = concat!("use relativist::", stringify!($Map), " as Map;")]
            /// let map = Map::from([("one", 1), ("two", 2), ("three", 3)]);
            /// let pinned = map.pin();
            /// let values = pinned.get_many(["three", "four", "one"]);
            /// assert_eq!(values, [Some(&3), None, Some(&1)]);
            /// ```
            $($vis)* fn get_many<'g, Q, const N: usize>(&'g self, keys: [&Q; N], guard: &'g $Guard) -> [Option<&'g V>; N]
            where
                Q: Hash + Equivalent<K> + ?Sized,
            {
                let mut values = [None; N];
                for (keys, values) in keys.chunks($BATCH).zip(values.chunks_mut($BATCH)) {
                    self.find_batch(keys, guard, |index, entry| values[index] = entry.map(|entry| &entry.value));
                }
                values
            }

            #[doc = concat!("Looks up any number of keys as [`get_many`](", stringify!($Map), "::get_many) does, and")]
            /// calls `found` with each key and its value, in the order of the keys. (All lookups of
            /// a batch may take place before the first call of `found`.)
            ///
            /// ```
            #[doc = concat!("use relativist::", stringify!($Map), " as Map;")]
            /// let map = Map::from([("one", 1), ("two", 2), ("three", 3)]);
            /// let mut sum = 0;
            /// let words = "one two buckle my shoe".split(' ');
            /// map.pin().get_each(words, |_, value| sum += value.unwrap_or(&0));
            /// assert_eq!(sum, 3);
            /// ```
            $($vis)* fn get_each<'g, 'k, Q>(
                &'g self,
                keys: impl IntoIterator<Item = &'k Q>,
                guard: &'g $Guard,
                mut found: impl FnMut(&'k Q, Option<&'g V>),
            ) where
                Q: Hash + Equivalent<K> + ?Sized + 'k,
            {
                let mut keys = keys.into_iter();
                while let Some(first) = keys.next() {
                    let mut batch = [first; $BATCH];
                    let more = batch[1..].iter_mut().zip(&mut keys).map(|(place, key)| *place = key).count();
                    let batch = &batch[..=more];
                    self.find_batch(batch, guard, |index, entry| found(batch[index], entry.map(|entry| &entry.value)));
                }
            }
        }

        impl<K, V, S> $Map<K, V, S> where $($update)* {
            /// Sets the value of a key, and returns the previous one. A lookup sees either of them,
            /// and at no instant neither.
            ///
            /// The key is replaced as well, which matters if equal keys can be distinguished.
            /// (std's map keeps the old key.)
            ///
            #[doc = concat!("Aborts the process if there is no memory; [`", stringify!($Map), "::checked_insert`]")]
            /// returns an error instead.
            $($change)*
            $($vis)* fn insert<'g>(&'g self, key: K, value: V, guard: &'g $Guard) -> Option<&'g V> {
                let hash = self.hash(&key);
                self.put(hash, (key, value), guard).map(|old| &old.value)
            }

            /// Inserts an entry if the key is not in the map, and returns a reference to the value.
            /// Wait-free if the key is present.
            ///
            /// # Errors
            ///
            /// Returns an error if the key is in the map. The error contains the value in the map,
            /// and `value`.
            $($vis)* fn try_insert<'g>(&'g self, key: K, value: V, guard: &'g $Guard) -> Result<&'g V, OccupiedError<'g, V>> {
                let hash = self.hash(&key);
                if let Some(entry) = self.find_hashed(hash, &key, guard) {
                    // The key is dropped first: if its destructor panicked later, the result would
                    // be leaked.
                    drop(key);
                    return Err(OccupiedError { current: &entry.value, value });
                }
                match self.put_new(hash, (key, value), guard) {
                    Ok(new) => Ok(&new.value),
                    Err((current, (_, value))) => Err(OccupiedError { current: &current.value, value }),
                }
            }

            /// Removes a key and returns its value, which stays valid as long as the guard and is
            /// dropped after a grace period. Wait-free if the key is absent.
            $($change)*
            $($vis)* fn remove<'g, Q: Hash + Equivalent<K> + ?Sized>(&'g self, key: &Q, guard: &'g $Guard) -> Option<&'g V> {
                self.remove_entry(key, guard).map(|(_, value)| value)
            }

            #[doc = concat!("Like [`", stringify!($Map), "::remove`], but also returns the key that was in the map.")]
            $($change)*
            $($vis)* fn remove_entry<'g, Q>(&'g self, key: &Q, guard: &'g $Guard) -> Option<(&'g K, &'g V)>
            where
                Q: Hash + Equivalent<K> + ?Sized,
            {
                self.remove_hashed(self.hash(key), key, guard).map(|entry| entry.pair())
            }
        }
    };
}

pub(crate) use access;
