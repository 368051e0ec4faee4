//! Filling maps from iterators and from each other, and comparing them.

macro_rules! collect {
    ($Map:ident, update: [$($update:tt)*]) => {
        impl<K, V, S> $Map<K, V, S> where $($update)* {
            /// Makes room for the entries that are about to be inserted. This only saves resizes:
            /// if there is no memory for the buckets, or if this thread must not wait, the map
            /// grows step by step.
            pub(crate) fn expect(&self, additional: usize) {
                if !is_reading() {
                    let _ = self.try_reserve(additional);
                }
            }
        }

        impl<K, V, S: Default> FromIterator<(K, V)> for $Map<K, V, S> where $($update)* {
            fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
                let mut map = Self::default();
                map.fill(entries);
                map
            }
        }

        /// ```
        #[doc = concat!("let map = relativist::", stringify!($Map), "::from([(\"one\", 1), (\"two\", 2)]);")]
        /// assert_eq!(map.len(), 2);
        /// ```
        impl<K, V, const N: usize> From<[(K, V); N]> for $Map<K, V> where Self: FromIterator<(K, V)> {
            fn from(entries: [(K, V); N]) -> Self {
                Self::from_iter(entries)
            }
        }

        /// Extends a map that no other thread can see at the time.
        impl<K, V, S> Extend<(K, V)> for $Map<K, V, S> where $($update)* {
            fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
                self.fill(entries);
            }
        }

        /// Extends a map through a shared reference. Inserts each entry before it takes the next
        #[doc = concat!("one from the iterator; [`", stringify!($Map), "::insert_many`] is faster.")]
        impl<K, V, S> Extend<(K, V)> for &$Map<K, V, S> where $($update)* {
            fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
                let entries = entries.into_iter();
                self.expect(entries.size_hint().0);
                // Takes a guard for each entry, so that replaced entries can be dropped before the
                // last one is inserted.
                for (key, value) in entries {
                    self.pin().insert(key, value);
                }
            }
        }

        impl<'a, K: Copy, V: Copy, S> Extend<(&'a K, &'a V)> for $Map<K, V, S> where $($update)* {
            fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
                self.fill(entries.into_iter().map(|(&key, &value)| (key, value)));
            }
        }

        /// Copies the entries as an iteration sees them. If other threads update the map at the
        /// same time, the copy is not a snapshot of one instant. The copy has the same policy and
        /// number of buckets.
        ///
        /// # Panics
        ///
        /// Panics if the buckets cannot be allocated.
        impl<K: Clone, V: Clone, S: Clone> Clone for $Map<K, V, S> where $($update)* {
            fn clone(&self) -> Self {
                let mut clone = self.empty_clone();
                clone.fill(self.pin().iter().map(|(key, value)| (key.clone(), value.clone())));
                clone
            }
        }

        /// Returns whether both maps have the same keys with equal values. Compares one entry after
        /// the other: if other threads update one of the maps at the same time, the result may not
        /// be true at any single instant.
        impl<K: Hash + Eq, V: PartialEq, S: BuildHasher> PartialEq for $Map<K, V, S> {
            fn eq(&self, other: &Self) -> bool {
                let (pinned, others) = (self.pin(), other.pin());
                let has_equal = |(key, value)| others.get(key).is_some_and(|its: &V| its == value);
                self.len() == other.len() && pinned.iter().all(has_equal)
            }
        }

        impl<K: Hash + Eq, V: Eq, S: BuildHasher> Eq for $Map<K, V, S> {}
    };
}

pub(crate) use collect;
