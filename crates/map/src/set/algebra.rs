//! Union, intersection and the like.

use std::hash::{BuildHasher, Hash};
use std::ops::{BitAnd, BitOr, BitXor, Sub};

use super::{HashSet, PinnedSet};

/// Operations on two sets. The other one is read under this handle's guard.
///
/// Each element is looked up in the other set when the iterator reaches it. If other threads update
/// the sets at the same time, the result may not be true at any single instant. A union may return
/// an element twice if it is removed from one set before it is looked up there.
///
/// ```
/// use relativist::HashSet;
///
/// let (even, small) = (HashSet::from([2, 4, 6]), HashSet::from([1, 2, 3]));
/// let even = even.pin();
/// assert_eq!(even.union(&small).count(), 5);
/// assert_eq!(even.intersection(&small).collect::<Vec<_>>(), [&2]);
/// assert!(even.difference(&small).all(|n| *n > 3));
/// assert_eq!(even.symmetric_difference(&small).sum::<i32>(), 4 + 6 + 1 + 3);
/// ```
impl<T: Hash + Eq, S: BuildHasher> PinnedSet<'_, T, S> {
    fn is_in(&self, other: &HashSet<T, S>) -> impl Fn(&&T) -> bool {
        |element| other.map.contains_key(*element, &self.guard)
    }

    /// Returns the elements that are in this set or the other.
    pub fn union<'p>(&'p self, other: &'p HashSet<T, S>) -> impl Iterator<Item = &'p T> {
        let its = other.map.keys(&self.guard);
        self.iter().chain(its.filter(|element| !self.contains(*element)))
    }

    /// Returns the elements of this set that are also in the other.
    pub fn intersection<'p>(&'p self, other: &'p HashSet<T, S>) -> impl Iterator<Item = &'p T> {
        self.iter().filter(self.is_in(other))
    }

    /// Returns the elements of this set that are not in the other.
    pub fn difference<'p>(&'p self, other: &'p HashSet<T, S>) -> impl Iterator<Item = &'p T> {
        let is_in = self.is_in(other);
        self.iter().filter(move |element| !is_in(element))
    }

    /// Returns the elements that are in exactly one of the sets.
    pub fn symmetric_difference<'p>(&'p self, other: &'p HashSet<T, S>) -> impl Iterator<Item = &'p T> {
        let its = other.map.keys(&self.guard);
        self.difference(other).chain(its.filter(|element| !self.contains(*element)))
    }

    /// Returns whether all elements of this set are in the other.
    pub fn is_subset(&self, other: &HashSet<T, S>) -> bool {
        self.len() <= other.len() && self.iter().all(|element| self.is_in(other)(&element))
    }

    /// Returns whether all elements of the other set are in this one.
    pub fn is_superset(&self, other: &HashSet<T, S>) -> bool {
        self.len() >= other.len() && other.map.keys(&self.guard).all(|element| self.contains(element))
    }

    /// Returns whether no element is in both sets.
    pub fn is_disjoint(&self, other: &HashSet<T, S>) -> bool {
        self.intersection(other).next().is_none()
    }
}

/// `$operator` between references to sets makes a new set of clones.
macro_rules! operator {
    ($operator:ident, $function:ident, $method:ident, $doc:literal) => {
        #[doc = $doc]
        impl<T, S> $operator for &HashSet<T, S>
        where
            T: Hash + Eq + Clone + Send + Sync + 'static,
            S: BuildHasher + Default,
        {
            type Output = HashSet<T, S>;

            fn $function(self, other: Self) -> HashSet<T, S> {
                self.pin().$method(other).cloned().collect()
            }
        }
    };
}

operator!(BitOr, bitor, union, "The union; see [`PinnedSet::union`].");
operator!(BitAnd, bitand, intersection, "The intersection; see [`PinnedSet::intersection`].");
operator!(Sub, sub, difference, "The difference; see [`PinnedSet::difference`].");
operator!(BitXor, bitxor, symmetric_difference, "The symmetric difference; see [`PinnedSet::symmetric_difference`].");
