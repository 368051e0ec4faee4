//! Filling sets from iterators and from each other, emptying and comparing them, all through the
//! map.

use std::hash::{BuildHasher, Hash};
use std::iter::Map;

use super::HashSet;
use crate::fill::Duplicates;
use crate::iter::IntoIter;

impl<T, S> HashSet<T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Inserts the elements. Unlike `extend` of [`HashMap`](crate::HashMap), keeps elements that
    /// are already in the set.
    fn fill_unseen(&mut self, elements: impl IntoIterator<Item = T>) {
        self.map.fill_unseen(elements.into_iter().map(|element| (element, ())), Duplicates::Keep);
    }
}

impl<T, S> FromIterator<T> for HashSet<T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut set = Self::default();
        set.fill_unseen(elements);
        set
    }
}

impl<T: Hash + Eq + Send + Sync + 'static, const N: usize> From<[T; N]> for HashSet<T> {
    fn from(elements: [T; N]) -> Self {
        Self::from_iter(elements)
    }
}

impl<T: Hash + Eq + Send + Sync + 'static, S: BuildHasher> Extend<T> for HashSet<T, S> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        self.fill_unseen(elements);
    }
}

/// Extends a set through a shared reference.
impl<T: Hash + Eq + Send + Sync + 'static, S: BuildHasher> Extend<T> for &HashSet<T, S> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        let elements = elements.into_iter();
        self.map.expect(elements.size_hint().0);
        for element in elements {
            self.pin().insert(element);
        }
    }
}

impl<'a, T: Hash + Eq + Send + Sync + Copy + 'static, S: BuildHasher> Extend<&'a T> for HashSet<T, S> {
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, elements: I) {
        self.fill_unseen(elements.into_iter().copied());
    }
}

/// See the implementation for [`HashMap`](crate::HashMap).
impl<T, S> Clone for HashSet<T, S>
where
    T: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    fn clone(&self) -> Self {
        Self::of(self.map.clone())
    }
}

/// See the implementation for [`HashMap`](crate::HashMap).
impl<T: Hash + Eq, S: BuildHasher> PartialEq for HashSet<T, S> {
    fn eq(&self, other: &Self) -> bool {
        self.map == other.map
    }
}

impl<T: Hash + Eq, S: BuildHasher> Eq for HashSet<T, S> {}

/// Moves the elements out. Their memory is freed after a grace period.
impl<T, S> IntoIterator for HashSet<T, S> {
    type Item = T;
    type IntoIter = Map<IntoIter<T, (), S>, fn((T, ())) -> T>;

    fn into_iter(self) -> Self::IntoIter {
        self.map.into_iter().map(|(element, ())| element)
    }
}
