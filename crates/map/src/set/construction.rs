//! Creating sets, their size, and what they share with their map.

macro_rules! construction {
    (
        $Set:ident, $PinnedSet:ident, $Map:ident,
        iterate: [$($iterate:tt)*], remove_all: [$($remove_all:tt)*], update: [$($update:tt)*], create: [$($create:tt)*],
    ) => {
        impl<T> $Set<T> {
            /// Creates an empty set of two buckets, which grows as needed.
            pub fn new() -> Self where $($create)* {
                Self::of($Map::new())
            }

            /// Creates an empty set with buckets for `capacity` elements. It never shrinks below
            /// them automatically.
            ///
            /// # Panics
            ///
            /// Panics if the buckets cannot be allocated.
            pub fn with_capacity(capacity: usize) -> Self where $($create)* {
                Self::of($Map::with_capacity(capacity))
            }

            /// Returns a [`Builder`], which has more options. Call [`Builder::build_set`] at the
            /// end.
            pub fn builder() -> Builder {
                Builder::new()
            }
        }

        impl<T, S> $Set<T, S> {
            /// Creates an empty set of two buckets that hashes with `hasher`. Weak hashers are
            /// sufficient, as for maps.
            pub fn with_hasher(hasher: S) -> Self where $($create)* {
                Self::of($Map::with_hasher(hasher))
            }

            /// Creates an empty set with buckets for `capacity` elements that hashes with `hasher`.
            ///
            /// # Panics
            ///
            /// Panics if the buckets cannot be allocated.
            pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self where $($create)* {
                Self::of($Map::with_capacity_and_hasher(capacity, hasher))
            }

            pub(crate) fn of(map: $Map<T, (), S>) -> Self {
                Self { map }
            }

            /// Enters a read section and returns a handle with all operations on elements.
            #[inline]
            pub fn pin(&self) -> $PinnedSet<'_, T, S> {
                $PinnedSet { set: self, guard: read() }
            }

            /// Returns the number of elements. It is exact if no thread updates the set meanwhile.
            pub fn len(&self) -> usize {
                self.map.len()
            }

            /// Returns whether the set has no elements, exactly if no thread updates it meanwhile.
            pub fn is_empty(&self) -> bool {
                self.map.is_empty()
            }

            /// Returns the hasher.
            pub fn hasher(&self) -> &S {
                self.map.hasher()
            }
        }

        impl<T, S: Default> Default for $Set<T, S> where $($create)* {
            fn default() -> Self {
                Self::with_hasher(S::default())
            }
        }
    };
}

pub(crate) use construction;
