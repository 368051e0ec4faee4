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

/// A concurrent hash set whose lookups are wait-free while it grows and shrinks under them: a
/// [`HashMap`] without values, with the same costs, progress guarantees and bounds.
///
/// All operations on elements are those of the [`pinned`](HashSet::pin) handle. For those under a
/// guard of your own, for statistics and for resizing see [`HashSet::as_map`].
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
    /// An empty set of two buckets, which grows as needed.
    pub fn new() -> Self {
        Self::of(HashMap::new())
    }

    /// An empty set with buckets for so many elements; see [`HashMap::with_capacity`].
    ///
    /// # Panics
    ///
    /// When they can't be allocated.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::of(HashMap::with_capacity(capacity))
    }

    /// For more choices; to be finished by [`Builder::build_set`].
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl<T, S> HashSet<T, S> {
    /// An empty set of two buckets that hashes with `hasher`; see [`HashMap::with_hasher`].
    pub fn with_hasher(hasher: S) -> Self {
        Self::of(HashMap::with_hasher(hasher))
    }

    /// [`HashSet::with_capacity`] and [`HashSet::with_hasher`] in one.
    ///
    /// # Panics
    ///
    /// When the buckets can't be allocated.
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        Self::of(HashMap::with_capacity_and_hasher(capacity, hasher))
    }

    pub(crate) fn of(map: HashMap<T, (), S>) -> Self {
        Self { map }
    }

    /// The map underneath, whose keys are the elements.
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

    /// The number of elements: exact when nobody updates meanwhile.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are none; see [`HashSet::len`].
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// What hashes the elements.
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
