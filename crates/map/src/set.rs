//! Sets: maps without values.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::{BitAnd, BitOr, BitXor, Sub};

use equivalent::Equivalent;
use relativist_bucket::{Boxed, Form, Inline, Process};
use relativist_rcu::Guard;

use crate::entry::Stores;
use crate::iter::Keys;
use crate::map::Map;
use crate::pinned::Pinned;

/// A concurrent hash set: a [`HashMap`](crate::HashMap) without values. [`Set`] has the methods of
/// the set, and [`PinnedSet`] those of its handle.
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
pub type HashSet<T, S = RandomState> = Set<T, S, Boxed>;

/// A concurrent hash set: a [`FlatMap`](crate::FlatMap) without values.
///
/// ```
/// let set = relativist::FlatSet::from([1, 2, 3]);
/// assert!(set.pin().contains(&2));
/// ```
pub type FlatSet<T, S = RandomState> = Set<T, S, Inline>;

/// A concurrent hash set: [`HashSet`] or [`FlatSet`]. It has the costs, guarantees and bounds of
/// its map.
pub struct Set<T, S = RandomState, F: Form = Boxed> {
    map: Map<T, (), S, F>,
}

/// A set together with a read section. It has all operations on elements. Returned by [`Set::pin`];
/// [`Pinned`] explains handles.
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
pub struct PinnedSet<'s, T, S = RandomState, F: Form = Boxed> {
    set: &'s Set<T, S, F>,
    pub(crate) pinned: Pinned<'s, T, (), S, F>,
}

impl<T, F: Form> Set<T, RandomState, F> {
    /// Creates an empty set, which grows as needed.
    pub fn new() -> Self {
        Self::with_hasher(RandomState::new())
    }

    /// Creates an empty set with room for `capacity` elements. It never shrinks below that by
    /// itself.
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, RandomState::new())
    }
}

impl<T, S, F: Form> Set<T, S, F> {
    /// Creates an empty set that hashes with `hasher`. Weak hashers are sufficient, as for maps.
    pub fn with_hasher(hasher: S) -> Self {
        Self { map: Map::with_hasher(hasher) }
    }

    /// Combines [`Set::with_capacity`] and [`Set::with_hasher`].
    ///
    /// # Panics
    ///
    /// Panics if the buckets cannot be allocated.
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        Self { map: Map::with_capacity_and_hasher(capacity, hasher) }
    }

    /// Enters a read section and returns a handle with all operations on elements.
    #[inline]
    pub fn pin(&self) -> PinnedSet<'_, T, S, F> {
        PinnedSet { set: self, pinned: self.map.pin() }
    }

    /// Returns the number of elements. It is exact if no thread updates the set meanwhile.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns whether the set has no elements; see [`Set::len`].
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Returns the map underneath, whose keys are the elements. It has further methods:
    ///
    /// ```
    /// let set = relativist::HashSet::from([1, 2, 3]);
    /// set.as_map().try_reserve(1000)?;
    /// assert!(set.as_map().capacity() >= 1003);
    /// # Ok::<(), relativist::AllocError>(())
    /// ```
    pub fn as_map(&self) -> &Map<T, (), S, F> {
        &self.map
    }
}

impl<T, S, F: Form<Domain = Process>> Set<T, S, F> {
    /// Like [`Set::pin`], in the read section of a guard; see [`Map::pin_with`].
    #[inline]
    pub fn pin_with<'s>(&'s self, guard: &'s Guard) -> PinnedSet<'s, T, S, F> {
        PinnedSet { set: self, pinned: self.map.pin_with(guard) }
    }
}

impl<'s, T, S, F: Form> PinnedSet<'s, T, S, F> {
    /// Returns the set.
    pub fn set(&self) -> &'s Set<T, S, F> {
        self.set
    }

    /// See [`Set::len`].
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// See [`Set::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }
}

impl<T, S, F: Form<Domain = Process>> PinnedSet<'_, T, S, F> {
    /// Returns the guard, for use with other maps and sets.
    pub fn guard(&self) -> &Guard {
        self.pinned.guard()
    }
}

impl<T: Hash + Eq, S: BuildHasher, F: Form> PinnedSet<'_, T, S, F> {
    /// Returns whether the value is in the set. Wait-free.
    #[inline]
    pub fn contains<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> bool {
        self.pinned.contains_key(value)
    }

    /// Returns the element that is equal to the value. Wait-free.
    #[inline]
    pub fn get<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> Option<&T> {
        self.pinned.find(value).map(|entry| &entry.key)
    }

    /// Iterates over the elements; see [`Pinned::iter`].
    pub fn iter(&self) -> Keys<'_, T, (), S, F> {
        self.pinned.keys()
    }
}

impl<T: Hash + Eq, S: BuildHasher, F: Stores<T, ()>> PinnedSet<'_, T, S, F> {
    /// Adds a value and returns whether it is new. If an equal element is in the set, that one
    /// stays.
    pub fn insert(&self, value: T) -> bool {
        self.pinned.try_insert(value, ()).is_ok()
    }

    /// Adds a value. If there is an equal element, replaces that and returns it.
    pub fn replace(&self, value: T) -> Option<&T> {
        self.pinned.put(value, ()).map(|old| &old.key)
    }

    /// Returns the element that is equal to the value. Adds the value if there is none, for example
    /// to intern strings.
    pub fn get_or_insert(&self, value: T) -> &T {
        &self.pinned.get_or_put(value, ()).key
    }

    /// Removes a value and returns whether it was in the set.
    pub fn remove<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> bool {
        self.take(value).is_some()
    }

    /// Removes a value and returns the element that was equal to it, which is dropped after a grace
    /// period.
    pub fn take<Q: Hash + Equivalent<T> + ?Sized>(&self, value: &Q) -> Option<&T> {
        self.pinned.remove_entry(value).map(|(element, ())| element)
    }

    /// See [`Pinned::clear`].
    ///
    /// # Panics
    ///
    /// Panics if there is no memory for the buckets of an empty set.
    pub fn clear(&self) {
        self.pinned.clear();
    }

    /// Removes the elements for which `keep` returns false; see [`Pinned::retain`].
    pub fn retain(&self, mut keep: impl FnMut(&T) -> bool) {
        self.pinned.retain(|element, ()| keep(element));
    }

    /// Returns an iterator that removes the elements for which `extract` returns true; see
    /// [`Pinned::extract_if`].
    pub fn extract_if(&self, mut extract: impl FnMut(&T) -> bool) -> impl Iterator<Item = &T> {
        self.pinned.extract_if(move |element, ()| extract(element)).map(|(element, ())| element)
    }

    /// Removes all elements and returns them; see [`Pinned::drain`].
    pub fn drain(&self) -> impl Iterator<Item = &T> {
        self.pinned.drain().map(|(element, ())| element)
    }
}

/// # Operations on two sets
///
/// Each element is looked up in the other set when the iterator reaches it. If other threads update
/// the sets at the same time, the result may not be true at any single instant. A union may return
/// an element twice if it is removed from one set before it is looked up there.
///
/// ```
/// use relativist::HashSet;
///
/// let (even, small) = (HashSet::from([2, 4, 6]), HashSet::from([1, 2, 3]));
/// let (even, small) = (even.pin(), small.pin());
/// assert_eq!(even.union(&small).count(), 5);
/// assert_eq!(even.intersection(&small).collect::<Vec<_>>(), [&2]);
/// assert!(even.difference(&small).all(|n| *n > 3));
/// assert_eq!(even.symmetric_difference(&small).sum::<i32>(), 4 + 6 + 1 + 3);
/// ```
impl<T: Hash + Eq, S: BuildHasher, F: Form> PinnedSet<'_, T, S, F> {
    /// Returns the elements that are in this set or the other.
    pub fn union<'p>(&'p self, other: &'p Self) -> impl Iterator<Item = &'p T> {
        self.iter().chain(other.iter().filter(|element| !self.contains(*element)))
    }

    /// Returns the elements of this set that are also in the other.
    pub fn intersection<'p>(&'p self, other: &'p Self) -> impl Iterator<Item = &'p T> {
        self.iter().filter(|element| other.contains(*element))
    }

    /// Returns the elements of this set that are not in the other.
    pub fn difference<'p>(&'p self, other: &'p Self) -> impl Iterator<Item = &'p T> {
        self.iter().filter(|element| !other.contains(*element))
    }

    /// Returns the elements that are in exactly one of the sets.
    pub fn symmetric_difference<'p>(&'p self, other: &'p Self) -> impl Iterator<Item = &'p T> {
        self.difference(other).chain(other.difference(self))
    }

    /// Returns whether all elements of this set are in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.len() <= other.len() && self.iter().all(|element| other.contains(element))
    }

    /// Returns whether all elements of the other set are in this one.
    pub fn is_superset(&self, other: &Self) -> bool {
        other.is_subset(self)
    }

    /// Returns whether no element is in both sets.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.intersection(other).next().is_none()
    }
}

/// See [`PinnedSet::union`]. Makes a new set of clones.
impl<T: Hash + Eq + Clone, S: BuildHasher + Default, F: Stores<T, ()>> BitOr for &Set<T, S, F> {
    type Output = Set<T, S, F>;

    fn bitor(self, other: Self) -> Set<T, S, F> {
        self.pin().union(&other.pin()).cloned().collect()
    }
}

/// See [`PinnedSet::intersection`]. Makes a new set of clones.
impl<T: Hash + Eq + Clone, S: BuildHasher + Default, F: Stores<T, ()>> BitAnd for &Set<T, S, F> {
    type Output = Set<T, S, F>;

    fn bitand(self, other: Self) -> Set<T, S, F> {
        self.pin().intersection(&other.pin()).cloned().collect()
    }
}

/// See [`PinnedSet::difference`]. Makes a new set of clones.
impl<T: Hash + Eq + Clone, S: BuildHasher + Default, F: Stores<T, ()>> Sub for &Set<T, S, F> {
    type Output = Set<T, S, F>;

    fn sub(self, other: Self) -> Set<T, S, F> {
        self.pin().difference(&other.pin()).cloned().collect()
    }
}

/// See [`PinnedSet::symmetric_difference`]. Makes a new set of clones.
impl<T: Hash + Eq + Clone, S: BuildHasher + Default, F: Stores<T, ()>> BitXor for &Set<T, S, F> {
    type Output = Set<T, S, F>;

    fn bitxor(self, other: Self) -> Set<T, S, F> {
        self.pin().symmetric_difference(&other.pin()).cloned().collect()
    }
}

impl<T, S: Default, F: Form> Default for Set<T, S, F> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<T: Hash + Eq, S: BuildHasher + Default, F: Stores<T, ()>> FromIterator<T> for Set<T, S, F> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut set = Self::default();
        set.extend(elements);
        set
    }
}

impl<T, F: Form, const N: usize> From<[T; N]> for Set<T, RandomState, F>
where
    Self: FromIterator<T>,
{
    fn from(elements: [T; N]) -> Self {
        Self::from_iter(elements)
    }
}

/// Keeps elements that are in the set already.
impl<T: Hash + Eq, S: BuildHasher, F: Stores<T, ()>> Extend<T> for Set<T, S, F> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        (&*self).extend(elements);
    }
}

/// Extends a set through a shared reference. Keeps elements that are in the set already.
impl<T: Hash + Eq, S: BuildHasher, F: Stores<T, ()>> Extend<T> for &Set<T, S, F> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        let elements = elements.into_iter();
        // Without memory for the buckets the set grows as far as it can.
        _ = self.map.try_reserve(elements.size_hint().0);
        elements.for_each(|element| _ = self.pin().insert(element));
    }
}

impl<'a, T: Hash + Eq + Copy, S: BuildHasher, F: Stores<T, ()>> Extend<&'a T> for Set<T, S, F> {
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, elements: I) {
        self.extend(elements.into_iter().copied());
    }
}

/// See the implementation for [`Map`].
impl<T: Hash + Eq + Clone, S: BuildHasher + Clone, F: Stores<T, ()>> Clone for Set<T, S, F> {
    fn clone(&self) -> Self {
        Self { map: self.map.clone() }
    }
}

/// See the implementation for [`Map`].
impl<T: Hash + Eq, S: BuildHasher, F: Form> PartialEq for Set<T, S, F> {
    fn eq(&self, other: &Self) -> bool {
        self.map == other.map
    }
}

impl<T: Hash + Eq, S: BuildHasher, F: Form> Eq for Set<T, S, F> {}

/// Moves the elements out. To iterate by reference, use `&set.pin()`.
impl<T, S, F: Form> IntoIterator for Set<T, S, F> {
    type Item = T;
    type IntoIter = std::iter::Map<crate::iter::IntoIter<T, (), F>, fn((T, ())) -> T>;

    fn into_iter(self) -> Self::IntoIter {
        self.map.into_iter().map(|(element, ())| element)
    }
}

impl<'p, T: Hash + Eq, S: BuildHasher, F: Form> IntoIterator for &'p PinnedSet<'_, T, S, F> {
    type Item = &'p T;
    type IntoIter = Keys<'p, T, (), S, F>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: fmt::Debug + Hash + Eq, S: BuildHasher, F: Form> fmt::Debug for Set<T, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pin().fmt(f)
    }
}

impl<T: fmt::Debug + Hash + Eq, S: BuildHasher, F: Form> fmt::Debug for PinnedSet<'_, T, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self).finish()
    }
}
