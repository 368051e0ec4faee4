//! The set: a map without values.

mod algebra;
mod collect;
mod pinned;

use std::fmt;
use std::hash::RandomState;

use relativist_rcu::read;

pub use pinned::PinnedSet;

use crate::builder::Builder;
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

impl<T> HashSet<T> {
    /// Creates an empty set of two buckets, which grows as needed.
    pub fn new() -> Self {
        Self::of(HashMap::new())
    }

    /// Creates an empty set with buckets for `capacity` elements; see [`HashMap::with_capacity`].
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::of(HashMap::with_capacity(capacity))
    }

    /// Returns a [`Builder`], which has more options. Call [`Builder::build_set`] at the end.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl<T, S> HashSet<T, S> {
    /// Creates an empty set of two buckets that hashes with `hasher`; see [`HashMap::with_hasher`].
    pub fn with_hasher(hasher: S) -> Self {
        Self::of(HashMap::with_hasher(hasher))
    }

    /// Combines [`HashSet::with_capacity`] and [`HashSet::with_hasher`].
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated.
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        Self::of(HashMap::with_capacity_and_hasher(capacity, hasher))
    }

    pub(crate) fn of(map: HashMap<T, (), S>) -> Self {
        Self { map }
    }

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

    /// Enters a read section and returns a handle with all operations on elements.
    #[inline]
    pub fn pin(&self) -> PinnedSet<'_, T, S> {
        PinnedSet::new(self, read())
    }

    /// Returns the number of elements. It is exact if no thread updates the set meanwhile.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns whether the set has no elements; see [`HashSet::len`].
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Returns the hasher.
    pub fn hasher(&self) -> &S {
        self.map.hasher()
    }
}

impl<T, S: Default> Default for HashSet<T, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<T: fmt::Debug, S> fmt::Debug for HashSet<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = read();
        f.debug_set().entries(self.map.keys(&guard)).finish()
    }
}
