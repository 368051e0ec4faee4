//! The flat set: a flat map without values.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use equivalent::Equivalent;
use relativist_rcu::{Guard, read};

use super::builder::Builder;
use super::bulk::Keys;
use super::iter::IntoIter;
use super::map::FlatMap;
use super::relocate::Relocatable;
use crate::set::implement_set;

/// A concurrent hash set: a [`FlatMap`] without values, with the same costs, progress guarantees
/// and bounds. Lookups are wait-free, even while the set grows or shrinks.
///
/// The [`pinned`](FlatSet::pin) handle has all operations on elements. For operations that take a
/// guard, statistics and resizing see [`FlatSet::as_map`].
///
/// ```
/// use relativist::FlatSet;
///
/// let set = FlatSet::from([1, 2]);
/// let pinned = set.pin();
/// assert!(pinned.insert(3));
/// assert!(!pinned.insert(3));
/// assert!(pinned.contains(&3));
/// assert!(pinned.remove(&1));
/// assert_eq!(set.len(), 2);
/// ```
pub struct FlatSet<T, S = RandomState> {
    map: FlatMap<T, (), S>,
}

/// A flat set together with a read section. It has all operations on elements. Returned by
/// [`FlatSet::pin`]; [`Pinned`](super::Pinned) explains handles.
pub struct PinnedSet<'s, T, S> {
    set: &'s FlatSet<T, S>,
    guard: Guard,
}

implement_set! {
    FlatSet, PinnedSet, FlatMap,
    iterate: [T: Hash + Eq, S: BuildHasher],
    remove_all: [T: Hash + Eq + Relocatable, S: BuildHasher + Send + Sync + 'static],
    update: [T: Hash + Eq + Relocatable, S: BuildHasher + Send + Sync + 'static],
    create: [T: Relocatable],
}

impl<T, S> FlatSet<T, S> {
    /// Returns the map underneath, whose keys are the elements.
    ///
    /// ```
    /// let set = relativist::FlatSet::from([1, 2, 3]);
    /// set.as_map().try_reserve(1000)?;
    /// let guard = relativist::read();
    /// assert_eq!(set.as_map().keys(&guard).sum::<i32>(), 6);
    /// # Ok::<(), relativist::AllocError>(())
    /// ```
    pub fn as_map(&self) -> &FlatMap<T, (), S> {
        &self.map
    }
}

impl<T: Hash + Eq, S: BuildHasher> PinnedSet<'_, T, S> {
    /// Iterates over the elements; see [`FlatMap::iter`].
    pub fn iter(&self) -> Keys<'_, T, (), S> {
        self.set.map.keys(&self.guard)
    }
}

impl<'p, T: Hash + Eq, S: BuildHasher> IntoIterator for &'p PinnedSet<'_, T, S> {
    type Item = &'p T;
    type IntoIter = Keys<'p, T, (), S>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T, S> FlatSet<T, S>
where
    T: Hash + Eq + Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    fn fill_unseen(&mut self, elements: impl IntoIterator<Item = T>) {
        (&*self).extend(elements);
    }
}
