//! The operations on single elements, and on all.

macro_rules! pinned {
    (
        $Set:ident, $PinnedSet:ident, $Map:ident,
        iterate: [$($iterate:tt)*], remove_all: [$($remove_all:tt)*], update: [$($update:tt)*], create: [$($create:tt)*],
    ) => {
        impl<'s, T, S> $PinnedSet<'s, T, S> {
            /// Returns the set.
            pub fn set(&self) -> &'s $Set<T, S> {
                self.set
            }

            /// Returns the guard, for use with other maps and sets.
            pub fn guard(&self) -> &Guard {
                &self.guard
            }

            #[doc = concat!("See [`", stringify!($Set), "::len`].")]
            pub fn len(&self) -> usize {
                self.set.len()
            }

            #[doc = concat!("See [`", stringify!($Set), "::is_empty`].")]
            pub fn is_empty(&self) -> bool {
                self.set.is_empty()
            }
        }

        impl<T: Hash + Eq, S: BuildHasher> $PinnedSet<'_, T, S> {
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

        impl<T, S> $PinnedSet<'_, T, S> where $($update)* {
            /// Adds a value and returns whether it is new. If an equal element is in the set, that
            /// one stays.
            pub fn insert(&self, value: T) -> bool {
                self.set.map.try_insert(value, (), &self.guard).is_ok()
            }

            /// Adds a value. If there is an equal element, replaces that and returns it.
            pub fn replace(&self, value: T) -> Option<&T> {
                let map = &self.set.map;
                map.put(map.hash(&value), (value, ()), &self.guard).map(|old| &old.key)
            }

            /// Returns the element that is equal to the value. Adds the value if there is none, for
            /// example to intern strings.
            pub fn get_or_insert(&self, value: T) -> &T {
                let map = &self.set.map;
                let hash = map.hash(&value);
                if let Some(entry) = map.find_hashed(hash, &value, &self.guard) {
                    return &entry.key;
                }
                match map.put_new(hash, (value, ()), &self.guard) {
                    Ok(entry) | Err((entry, _)) => &entry.key,
                }
            }

            /// Removes a value and returns whether it was in the set.
            pub fn remove<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> bool {
                self.take(value).is_some()
            }

            /// Removes a value and returns the element that was equal to it, which is dropped after
            /// a grace period.
            pub fn take<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> Option<&T> {
                self.set.map.remove_entry(value, &self.guard).map(|(element, ())| element)
            }
        }

        impl<T, S> $PinnedSet<'_, T, S> where $($remove_all)* {
            #[doc = concat!("See [`", stringify!($Map), "::clear`].")]
            pub fn clear(&self) {
                self.set.map.clear(&self.guard);
            }

            #[doc = concat!("Removes the elements for which `keep` returns false; see [`", stringify!($Map), "::retain`].")]
            pub fn retain(&self, mut keep: impl FnMut(&T) -> bool) {
                self.set.map.retain(|element, ()| keep(element), &self.guard);
            }

            /// Returns an iterator that removes the elements for which `extract` returns true; see
            #[doc = concat!("[`", stringify!($Map), "::extract_if`].")]
            pub fn extract_if(&self, mut extract: impl FnMut(&T) -> bool) -> impl Iterator<Item = &T> {
                let entries = self.set.map.extract_if(move |element, ()| extract(element), &self.guard);
                entries.map(|(element, ())| element)
            }

            #[doc = concat!("Removes all elements and returns them; see [`", stringify!($Map), "::drain`].")]
            pub fn drain(&self) -> impl Iterator<Item = &T> {
                self.set.map.drain(&self.guard).map(|(element, ())| element)
            }
        }

        impl<T: fmt::Debug, S> fmt::Debug for $Set<T, S> where $($iterate)* {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_set().entries(&self.pin()).finish()
            }
        }

        impl<T: fmt::Debug, S> fmt::Debug for $PinnedSet<'_, T, S> where $($iterate)* {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.set.fmt(f)
            }
        }
    };
}

pub(crate) use pinned;
