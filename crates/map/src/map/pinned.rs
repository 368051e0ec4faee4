//! The handle: a map together with a guard, which it passes to the operations of the map.

/// Defines the handle of a map in the domain of the process.
macro_rules! define_pinned {
    ($Map:ident) => {
        /// A map together with a read section. It has all operations on entries, which then take no
        #[doc = concat!("guard. Returned by [`", stringify!($Map), "::pin`].")]
        ///
        /// The references that it returns live as long as the handle. The handle cannot leave its
        /// thread, like the guard in it, so it cannot be held across an `.await` of a task that may
        /// move to another thread:
        ///
        /// ```compile_fail
        /// async fn wait() {}
        #[doc = concat!("async fn task(map: &relativist::", stringify!($Map), "<u32, u32>) {")]
        ///     let pinned = map.pin();
        ///     wait().await; // error further down: the future is not `Send`
        ///     pinned.get(&1);
        /// }
        /// fn spawn(future: impl Future + Send) {}
        #[doc = concat!("# let map = relativist::", stringify!($Map), "::new();")]
        /// spawn(task(&map));
        /// ```
        ///
        /// ```
        /// async fn wait() {}
        #[doc = concat!("async fn task(map: &relativist::", stringify!($Map), "<u32, u32>) {")]
        ///     wait().await;
        ///     map.pin().get(&1);
        /// }
        /// fn spawn(future: impl Future + Send) {}
        #[doc = concat!("# let map = relativist::", stringify!($Map), "::new();")]
        /// spawn(task(&map));
        /// ```
        pub struct Pinned<'m, K, V, S> {
            map: &'m $Map<K, V, S>,
            guard: Guard,
        }

        impl<'m, K, V, S> Pinned<'m, K, V, S> {
            #[inline(always)]
            pub(crate) fn new(map: &'m $Map<K, V, S>, guard: Guard) -> Self {
                Self { map, guard }
            }

            /// Returns the map.
            pub fn map(&self) -> &'m $Map<K, V, S> {
                self.map
            }

            /// Returns the guard, for use with other maps.
            pub fn guard(&self) -> &Guard {
                &self.guard
            }
        }
    };
}

/// Implements the handle. The first two lists are attributes of lookups and of updates, the third
/// one the parameters of iterators. The others are the bounds for iterating, for removing entries
/// during an iteration, and for updates. The methods of `$Documented` are documented in full.
macro_rules! pinned {
    (
        $Pinned:ident, documented: $Documented:ident, lookups: [$($lookup:tt)*], updates: [$($change:tt)*], iterators: [$($of:tt)*],
        iterate: [$($iterate:tt)*], remove_all: [$($remove_all:tt)*], update: [$($update:tt)*]
    ) => {
        impl<K, V, S> $Pinned<'_, K, V, S> {
            #[doc = concat!("See [`", stringify!($Documented), "::len`].")]
            pub fn len(&self) -> usize {
                self.map.len()
            }

            #[doc = concat!("See [`", stringify!($Documented), "::is_empty`].")]
            pub fn is_empty(&self) -> bool {
                self.map.is_empty()
            }
        }

        impl<K, V, S> $Pinned<'_, K, V, S> where $($iterate)* {
            #[doc = concat!("See [`", stringify!($Documented), "::iter`].")]
            pub fn iter(&self) -> Iter<'_, $($of)*> {
                self.map.iter(&self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::keys`].")]
            pub fn keys(&self) -> Keys<'_, $($of)*> {
                self.map.keys(&self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::values`].")]
            pub fn values(&self) -> Values<'_, $($of)*> {
                self.map.values(&self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::scan`].")]
            pub fn scan<'p>(&'p self, cursor: u64, n: usize, visit: impl FnMut(&'p K, &'p V)) -> Option<u64> {
                self.map.scan(cursor, n, &self.guard, visit)
            }
        }

        impl<K: Hash + Eq, V, S: BuildHasher> $Pinned<'_, K, V, S> {
            #[doc = concat!("See [`", stringify!($Documented), "::get`].")]
            $($lookup)*
            pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
                self.map.get(key, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::get_key_value`].")]
            #[inline]
            pub fn get_key_value<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<(&K, &V)> {
                self.map.get_key_value(key, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::contains_key`].")]
            #[inline]
            pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
                self.map.contains_key(key, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::get_many`].")]
            pub fn get_many<Q, const N: usize>(&self, keys: [&Q; N]) -> [Option<&V>; N]
            where
                Q: Hash + Equivalent<K> + ?Sized,
            {
                self.map.get_many(keys, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::get_each`].")]
            pub fn get_each<'p, 'k, Q>(
                &'p self,
                keys: impl IntoIterator<Item = &'k Q>,
                found: impl FnMut(&'k Q, Option<&'p V>),
            ) where
                Q: Hash + Equivalent<K> + ?Sized + 'k,
            {
                self.map.get_each(keys, &self.guard, found);
            }
        }

        impl<K, V, S> $Pinned<'_, K, V, S> where $($update)* {
            #[doc = concat!("See [`", stringify!($Documented), "::insert`].")]
            $($change)*
            pub fn insert(&self, key: K, value: V) -> Option<&V> {
                self.map.insert(key, value, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::checked_insert`].")]
            ///
            /// # Errors
            ///
            /// Returns an error if there is no memory for the entry.
            pub fn checked_insert(&self, key: K, value: V) -> Result<Option<&V>, ExhaustedError<K, V>> {
                self.map.checked_insert(key, value, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::insert_many`].")]
            pub fn insert_many(&self, entries: impl IntoIterator<Item = (K, V)>) -> usize {
                self.map.insert_many(entries)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::try_insert`].")]
            ///
            /// # Errors
            ///
            /// Returns an error if the key is in the map.
            pub fn try_insert(&self, key: K, value: V) -> Result<&V, OccupiedError<'_, V>> {
                self.map.try_insert(key, value, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::get_or_insert`].")]
            pub fn get_or_insert(&self, key: K, value: V) -> &V {
                self.map.get_or_insert(key, value, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::get_or_insert_with`].")]
            pub fn get_or_insert_with(&self, key: K, value: impl FnOnce() -> V) -> &V {
                self.map.get_or_insert_with(key, value, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::update`].")]
            pub fn update(&self, key: K, update: impl FnMut(&V) -> V) -> Option<&V> {
                self.map.update(key, update, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::update_or_insert`].")]
            pub fn update_or_insert(&self, key: K, update: impl FnMut(&V) -> V, value: V) -> &V {
                self.map.update_or_insert(key, update, value, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::update_or_insert_with`].")]
            pub fn update_or_insert_with(&self, key: K, update: impl FnMut(&V) -> V, value: impl FnOnce() -> V) -> &V {
                self.map.update_or_insert_with(key, update, value, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::compute`].")]
            ///
            /// # Errors
            ///
            /// Returns the error of `decide`.
            pub fn compute<'p, E>(
                &'p self,
                key: K,
                decide: impl FnMut(Option<&'p V>) -> Result<Option<V>, E>,
            ) -> Result<Change<'p, V>, E> {
                self.map.compute(key, decide, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::compare_exchange`].")]
            ///
            /// # Errors
            ///
            /// Returns an error if the value is a different one, or the key is absent.
            pub fn compare_exchange(&self, key: K, current: &V, new: V) -> Result<&V, CompareExchangeError<'_, V>>
            where
                V: PartialEq,
            {
                self.map.compare_exchange(key, current, new, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::remove`].")]
            $($change)*
            pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
                self.map.remove(key, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::remove_entry`].")]
            pub fn remove_entry<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<(&K, &V)> {
                self.map.remove_entry(key, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::remove_if`].")]
            pub fn remove_if<Q>(&self, key: &Q, condition: impl FnMut(&K, &V) -> bool) -> Option<(&K, &V)>
            where
                Q: Hash + Equivalent<K> + ?Sized,
            {
                self.map.remove_if(key, condition, &self.guard)
            }
        }

        impl<K, V, S> $Pinned<'_, K, V, S> where $($remove_all)* {
            #[doc = concat!("See [`", stringify!($Documented), "::clear`].")]
            pub fn clear(&self) {
                self.map.clear(&self.guard);
            }

            #[doc = concat!("See [`", stringify!($Documented), "::retain`].")]
            pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) {
                self.map.retain(keep, &self.guard);
            }

            #[doc = concat!("See [`", stringify!($Documented), "::extract_if`].")]
            pub fn extract_if<F: FnMut(&K, &V) -> bool>(&self, extract: F) -> ExtractIf<'_, K, V, S, F> {
                self.map.extract_if(extract, &self.guard)
            }

            #[doc = concat!("See [`", stringify!($Documented), "::drain`].")]
            pub fn drain(&self) -> Drain<'_, K, V, S> {
                self.map.drain(&self.guard)
            }
        }

        impl<'p, K, V, S> IntoIterator for &'p $Pinned<'_, K, V, S> where $($iterate)* {
            type Item = (&'p K, &'p V);
            type IntoIter = Iter<'p, $($of)*>;

            fn into_iter(self) -> Self::IntoIter {
                self.iter()
            }
        }

        impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for $Pinned<'_, K, V, S> where $($iterate)* {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.map.fmt(f)
            }
        }
    };
}

pub(crate) use {define_pinned, pinned};
