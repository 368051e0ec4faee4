//! The set: a map without values.

mod algebra;
mod collect;
mod construction;
mod pinned;

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use equivalent::Equivalent;
use relativist_rcu::{Guard, read};

use crate::builder::Builder;
use crate::fill::Duplicates;
use crate::iter::{IntoIter, Keys};
use crate::map::HashMap;

/// A concurrent hash set: a [`HashMap`] without values, with the same costs, progress guarantees
/// and bounds. Lookups are wait-free, even while the set grows or shrinks.
///
/// The [`pinned`](HashSet::pin) handle has all operations on elements. For operations that take a
/// guard, statistics and resizing see [`HashSet::as_map`].
///
/// ```
/// use relativist::HashSet;
///
/// let set = HashSet::from(["one", "two"]);
/// let pinned = set.pin();
/// assert!(pinned.insert("three"));
/// assert!(!pinned.insert("three"));
/// assert!(pinned.contains("three"));
/// assert!(pinned.remove("one"));
/// assert_eq!(set.len(), 2);
/// ```
pub struct HashSet<T, S = RandomState> {
    map: HashMap<T, (), S>,
}

/// A set together with a read section. Has all operations on elements. Returned by
/// [`HashSet::pin`]; [`Pinned`](crate::Pinned) explains handles.
///
/// ```
/// use std::sync::Arc;
/// use relativist::HashSet;
///
/// /// One allocation for all equal strings.
/// fn intern(names: &HashSet<Arc<str>>, name: &str) -> Arc<str> {
///     let pinned = names.pin();
///     let known = pinned.get(name).cloned();
///     known.unwrap_or_else(|| pinned.get_or_insert(name.into()).clone())
/// }
///
/// let names = HashSet::new();
/// assert!(Arc::ptr_eq(&intern(&names, "a"), &intern(&names, "a")));
/// ```
pub struct PinnedSet<'s, T, S> {
    set: &'s HashSet<T, S>,
    guard: Guard,
}

/// Implements what sets have in common, whatever their map. The lists are the bounds for iterating,
/// for removing elements during an iteration, for updates, and for creating sets.
macro_rules! implement_set {
    ($($types_and_bounds:tt)*) => {
        $crate::set::construction!($($types_and_bounds)*);
        $crate::set::pinned!($($types_and_bounds)*);
        $crate::set::algebra!($($types_and_bounds)*);
        $crate::set::collect!($($types_and_bounds)*);
    };
}

pub(crate) use {algebra::algebra, collect::collect, construction::construction, implement_set, pinned::pinned};

implement_set! {
    HashSet, PinnedSet, HashMap,
    iterate: [],
    remove_all: [T: Send + Sync + 'static],
    update: [T: Hash + Eq + Send + Sync + 'static, S: BuildHasher],
    create: [],
}

impl<T, S> HashSet<T, S> {
    /// Returns the map underneath, whose keys are the elements.
    ///
    /// ```
    /// let set = relativist::HashSet::from([1, 2, 3]);
    /// set.as_map().try_reserve(1000)?;
    /// let guard = relativist::read();
    /// assert_eq!(set.as_map().keys(&guard).sum::<i32>(), 6);
    /// # Ok::<(), relativist::AllocError>(())
    /// ```
    pub fn as_map(&self) -> &HashMap<T, (), S> {
        &self.map
    }
}

impl<T, S> PinnedSet<'_, T, S> {
    /// Iterates over the elements; see [`HashMap::iter`].
    pub fn iter(&self) -> Keys<'_, T, ()> {
        self.set.map.keys(&self.guard)
    }
}

impl<'p, T, S> IntoIterator for &'p PinnedSet<'_, T, S> {
    type Item = &'p T;
    type IntoIter = Keys<'p, T, ()>;

    fn into_iter(self) -> Keys<'p, T, ()> {
        self.iter()
    }
}

impl<T: Hash + Eq + Send + Sync + 'static, S: BuildHasher> HashSet<T, S> {
    /// Inserts the elements into a set that no other thread can see. Unlike `extend` of the map,
    /// keeps elements that are already in the set.
    fn fill_unseen(&mut self, elements: impl IntoIterator<Item = T>) {
        self.map.fill_unseen(elements.into_iter().map(|element| (element, ())), Duplicates::Keep);
    }
}
