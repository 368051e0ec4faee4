//! Iterators.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::iter::FusedIterator;

use relativist_bucket::{self as bucket, Form};

use crate::entry::{Entry, Hashing, Stores};
use crate::map::Map;
use crate::pinned::Pinned;

/// An iterator over the entries of a map; see [`Pinned::iter`].
pub struct Iter<'p, K, V, S, F: Form>(pub(crate) bucket::Iter<'p, Entry<K, V>, F, Hashing<S>>);

/// An iterator over the keys of a map; see [`Pinned::keys`].
pub struct Keys<'p, K, V, S, F: Form>(pub(crate) Iter<'p, K, V, S, F>);

/// An iterator over the values of a map; see [`Pinned::values`].
pub struct Values<'p, K, V, S, F: Form>(pub(crate) Iter<'p, K, V, S, F>);

impl<'p, K: Hash + Eq, V, S: BuildHasher, F: Form> Iterator for Iter<'p, K, V, S, F> {
    type Item = (&'p K, &'p V);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(Entry::pair)
    }
}

impl<'p, K: Hash + Eq, V, S: BuildHasher, F: Form> Iterator for Keys<'p, K, V, S, F> {
    type Item = &'p K;

    #[inline]
    fn next(&mut self) -> Option<&'p K> {
        self.0.next().map(|(key, _)| key)
    }
}

impl<'p, K: Hash + Eq, V, S: BuildHasher, F: Form> Iterator for Values<'p, K, V, S, F> {
    type Item = &'p V;

    #[inline]
    fn next(&mut self) -> Option<&'p V> {
        self.0.next().map(|(_, value)| value)
    }
}

impl<K: Hash + Eq, V, S: BuildHasher, F: Form> FusedIterator for Iter<'_, K, V, S, F> {}
impl<K: Hash + Eq, V, S: BuildHasher, F: Form> FusedIterator for Keys<'_, K, V, S, F> {}
impl<K: Hash + Eq, V, S: BuildHasher, F: Form> FusedIterator for Values<'_, K, V, S, F> {}

impl<K, V, S, F: Form> fmt::Debug for Iter<'_, K, V, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Iter")
    }
}

impl<K, V, S, F: Form> fmt::Debug for Keys<'_, K, V, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

impl<K, V, S, F: Form> fmt::Debug for Values<'_, K, V, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Values")
    }
}

/// An iterator that removes entries; see [`Pinned::extract_if`].
#[must_use = "entries are removed as the iterator gets to them"]
pub struct ExtractIf<'p, K, V, S, F: Form, P> {
    /// Borrows the section of the handle.
    pub(crate) pinned: Pinned<'p, K, V, S, F>,
    pub(crate) entries: Iter<'p, K, V, S, F>,
    pub(crate) extract: P,
}

impl<'p, K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>, P> Iterator for ExtractIf<'p, K, V, S, F, P>
where
    P: FnMut(&K, &V) -> bool,
{
    type Item = (&'p K, &'p V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut entry = self.entries.0.next()?;
            while (self.extract)(&entry.key, &entry.value) {
                if self.pinned.unlink(entry) {
                    return Some(entry.pair());
                }
                // A boxed entry was removed or replaced. An inline one may have moved.
                let moved = if F::BOXED { None } else { self.entries.0.moved(entry) };
                let Some(moved) = moved else { break };
                entry = moved;
            }
        }
    }
}

impl<K, V, S, F: Form, P> FusedIterator for ExtractIf<'_, K, V, S, F, P> where Self: Iterator {}

impl<K, V, S, F: Form, P> fmt::Debug for ExtractIf<'_, K, V, S, F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExtractIf")
    }
}

type All<K, V> = fn(&K, &V) -> bool;

/// An iterator that removes all entries; see [`Pinned::drain`].
pub struct Drain<'p, K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>>(pub(crate) ExtractIf<'p, K, V, S, F, All<K, V>>);

impl<'p, K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> Iterator for Drain<'p, K, V, S, F> {
    type Item = (&'p K, &'p V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl<K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> FusedIterator for Drain<'_, K, V, S, F> {}

impl<K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> Drop for Drain<'_, K, V, S, F> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<K: Hash + Eq, V, S: BuildHasher, F: Stores<K, V>> fmt::Debug for Drain<'_, K, V, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drain")
    }
}

/// An iterator over the entries of a map that no other thread uses; see [`Map::iter_mut`].
///
/// It is invariant in the type of values, like `&mut V`:
///
/// ```compile_fail
/// use relativist::{Boxed, IterMut};
///
/// fn narrow<'a>(values: IterMut<'a, u32, &'static str, Boxed>) -> IterMut<'a, u32, &'a str, Boxed> {
///     values // error: lifetime may not live long enough
/// }
/// ```
pub struct IterMut<'m, K, V, F: Form>(pub(crate) bucket::EntriesMut<'m, Entry<K, V>, F>);

impl<'m, K: 'm, V: 'm, F: Form> Iterator for IterMut<'m, K, V, F> {
    type Item = (&'m K, &'m mut V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|entry| (&entry.key, &mut entry.value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<'m, K: 'm, V: 'm, F: Form> FusedIterator for IterMut<'m, K, V, F> {}

impl<K, V, F: Form> fmt::Debug for IterMut<'_, K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IterMut")
    }
}

/// An iterator over the values of a map that no other thread uses; see [`Map::values_mut`].
pub struct ValuesMut<'m, K, V, F: Form>(pub(crate) IterMut<'m, K, V, F>);

impl<'m, K: 'm, V: 'm, F: Form> Iterator for ValuesMut<'m, K, V, F> {
    type Item = &'m mut V;

    fn next(&mut self) -> Option<&'m mut V> {
        self.0.next().map(|(_, value)| value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<'m, K: 'm, V: 'm, F: Form> FusedIterator for ValuesMut<'m, K, V, F> {}

impl<K, V, F: Form> fmt::Debug for ValuesMut<'_, K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValuesMut")
    }
}

/// The entries of a map that no longer exists. If it is dropped, it drops those that are left.
pub struct IntoIter<K, V, F: Form>(bucket::IntoEntries<Entry<K, V>, F>);

impl<K, V, F: Form> Iterator for IntoIter<K, V, F> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.0.next().map(|Entry { key, value }| (key, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<K, V, F: Form> FusedIterator for IntoIter<K, V, F> {}

impl<K, V, F: Form> fmt::Debug for IntoIter<K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IntoIter")
    }
}

/// Moves the entries out. To iterate by reference, use `&map.pin()`.
impl<K, V, S, F: Form> IntoIterator for Map<K, V, S, F> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V, F>;

    fn into_iter(self) -> IntoIter<K, V, F> {
        // The hasher is dropped first: if its destructor panicked later, the result would be
        // leaked.
        drop(self.hashing);
        IntoIter(self.table.into_entries())
    }
}

impl<K, V, S, F: Form> Map<K, V, S, F> {
    /// Moves the keys out.
    pub fn into_keys(self) -> impl Iterator<Item = K> {
        // Dropped first: if its destructor panicked later, the key would be leaked.
        self.into_iter().map(|(key, value)| (drop(value), key).1)
    }

    /// Moves the values out.
    ///
    /// ```
    /// let map = relativist::HashMap::from([("one", 1), ("two", 2)]);
    /// assert_eq!(map.into_values().sum::<i32>(), 3);
    /// ```
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.into_iter().map(|(key, value)| (drop(key), value).1)
    }
}
