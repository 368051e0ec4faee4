//! Union, intersection and the like.

macro_rules! algebra {
    (
        $Set:ident, $PinnedSet:ident, $Map:ident,
        iterate: [$($iterate:tt)*], remove_all: [$($remove_all:tt)*], update: [$($update:tt)*], create: [$($create:tt)*],
    ) => {
        /// Operations on two sets. The other one is read under this handle's guard.
        ///
        /// Each element is looked up in the other set when the iterator reaches it. If other
        /// threads update the sets at the same time, the result may not be true at any single
        /// instant. A union may return an element twice if it is removed from one set before it is
        /// looked up there.
        ///
        /// ```
        #[doc = concat!("use relativist::", stringify!($Set), " as Set;")]
        ///
        /// let (even, small) = (Set::from([2, 4, 6]), Set::from([1, 2, 3]));
        /// let even = even.pin();
        /// assert_eq!(even.union(&small).count(), 5);
        /// assert_eq!(even.intersection(&small).collect::<Vec<_>>(), [&2]);
        /// assert!(even.difference(&small).all(|n| *n > 3));
        /// assert_eq!(even.symmetric_difference(&small).sum::<i32>(), 4 + 6 + 1 + 3);
        /// ```
        impl<T: Hash + Eq, S: BuildHasher> $PinnedSet<'_, T, S> {
            fn is_in(&self, other: &$Set<T, S>) -> impl Fn(&&T) -> bool {
                |element| other.map.contains_key(*element, &self.guard)
            }

            /// Returns the elements that are in this set or the other.
            pub fn union<'p>(&'p self, other: &'p $Set<T, S>) -> impl Iterator<Item = &'p T> {
                let its = other.map.keys(&self.guard);
                self.iter().chain(its.filter(|element| !self.contains(*element)))
            }

            /// Returns the elements of this set that are also in the other.
            pub fn intersection<'p>(&'p self, other: &'p $Set<T, S>) -> impl Iterator<Item = &'p T> {
                self.iter().filter(self.is_in(other))
            }

            /// Returns the elements of this set that are not in the other.
            pub fn difference<'p>(&'p self, other: &'p $Set<T, S>) -> impl Iterator<Item = &'p T> {
                let is_in = self.is_in(other);
                self.iter().filter(move |element| !is_in(element))
            }

            /// Returns the elements that are in exactly one of the sets.
            pub fn symmetric_difference<'p>(&'p self, other: &'p $Set<T, S>) -> impl Iterator<Item = &'p T> {
                let its = other.map.keys(&self.guard);
                self.difference(other).chain(its.filter(|element| !self.contains(*element)))
            }

            /// Returns whether all elements of this set are in the other.
            pub fn is_subset(&self, other: &$Set<T, S>) -> bool {
                self.len() <= other.len() && self.iter().all(|element| self.is_in(other)(&element))
            }

            /// Returns whether all elements of the other set are in this one.
            pub fn is_superset(&self, other: &$Set<T, S>) -> bool {
                self.len() >= other.len() && other.map.keys(&self.guard).all(|element| self.contains(element))
            }

            /// Returns whether no element is in both sets.
            pub fn is_disjoint(&self, other: &$Set<T, S>) -> bool {
                self.intersection(other).next().is_none()
            }
        }

        $crate::set::algebra!(@operator $Set $PinnedSet [$($update)*] BitOr bitor union);
        $crate::set::algebra!(@operator $Set $PinnedSet [$($update)*] BitAnd bitand intersection);
        $crate::set::algebra!(@operator $Set $PinnedSet [$($update)*] Sub sub difference);
        $crate::set::algebra!(@operator $Set $PinnedSet [$($update)*] BitXor bitxor symmetric_difference);
    };

    // An operator between references to sets makes a new set of clones.
    (@operator $Set:ident $PinnedSet:ident [$($update:tt)*] $Operator:ident $operator:ident $method:ident) => {
        #[doc = concat!("See [`", stringify!($PinnedSet), "::", stringify!($method), "`].")]
        impl<T: Clone, S: Default> std::ops::$Operator for &$Set<T, S> where $($update)* {
            type Output = $Set<T, S>;

            fn $operator(self, other: Self) -> $Set<T, S> {
                self.pin().$method(other).cloned().collect()
            }
        }
    };
}

pub(crate) use algebra;
