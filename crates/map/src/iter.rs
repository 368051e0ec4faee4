//! Iterators over a map.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;

use relativist_rcu::read;

use crate::map::HashMap;
use relativist_table::node::Node;
use relativist_table::{self as raw, Entry, Prefetched};

/// An iterator over the entries of a map; see [`HashMap::iter`].
pub struct Iter<'g, K, V> {
    links: raw::Iter<'g>,
    _entries: PhantomData<(&'g K, &'g V)>,
}

impl<'g, K, V> Iter<'g, K, V> {
    pub(crate) fn new(links: raw::Iter<'g>) -> Self {
        Self { links, _entries: PhantomData }
    }

    #[inline]
    pub(crate) fn next_node(&mut self) -> Option<&'g Node<K, V>> {
        let link = self.links.next()?;
        // SAFETY: reached in the map's table under a guard that lives for `'g`, so it is a live
        // node of this type.
        Some(unsafe { Node::of(link) })
    }
}

impl<'g, K, V> Iterator for Iter<'g, K, V> {
    type Item = (&'g K, &'g V);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.next_node().map(Node::pair)
    }
}

impl<K, V> FusedIterator for Iter<'_, K, V> {}

impl<K, V> fmt::Debug for Iter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Iter")
    }
}

/// Defines the iterators over the keys and over the values of a map. The lists are the parameters
/// of its iterator, and the bounds for iterating.
macro_rules! keys_and_values {
    ($Map:ident, of: [$($of:tt)*], iterate: [$($iterate:tt)*]) => {
        #[doc = concat!("An iterator over the keys of a map; see [`", stringify!($Map), "::keys`].")]
        pub struct Keys<'g, $($of)*>(pub(crate) Iter<'g, $($of)*>);

        impl<'g, $($of)*> Iterator for Keys<'g, $($of)*> where $($iterate)* {
            type Item = &'g K;

            #[inline]
            fn next(&mut self) -> Option<&'g K> {
                self.0.next().map(|(key, _)| key)
            }
        }

        impl<$($of)*> FusedIterator for Keys<'_, $($of)*> where $($iterate)* {}

        impl<$($of)*> fmt::Debug for Keys<'_, $($of)*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("Keys")
            }
        }

        #[doc = concat!("An iterator over the values of a map; see [`", stringify!($Map), "::values`].")]
        pub struct Values<'g, $($of)*>(pub(crate) Iter<'g, $($of)*>);

        impl<'g, $($of)*> Iterator for Values<'g, $($of)*> where $($iterate)* {
            type Item = &'g V;

            #[inline]
            fn next(&mut self) -> Option<&'g V> {
                self.0.next().map(|(_, value)| value)
            }
        }

        impl<$($of)*> FusedIterator for Values<'_, $($of)*> where $($iterate)* {}

        impl<$($of)*> fmt::Debug for Values<'_, $($of)*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("Values")
            }
        }
    };
}

pub(crate) use keys_and_values;

keys_and_values!(HashMap, of: [K, V], iterate: []);

/// An iterator that moves the entries out of a map that it owns.
pub struct IntoIter<K, V, S> {
    map: HashMap<K, V, S>,
    from: Position,
}

/// How far the entries of a map have been moved out.
#[derive(Default)]
pub(crate) struct Position {
    /// Entries with smaller mixed hashes have been moved out.
    hash: u64,
    prefetched: Prefetched,
}

impl<K, V, S> HashMap<K, V, S> {
    /// Moves the next entry out of a map that the caller owns.
    pub(crate) fn take_next(&mut self, from: &mut Position) -> Option<(K, V)> {
        let guard = read();
        let mut links = self.table.iter_part(from.hash, from.prefetched, &guard);
        let link = links.next()?;
        from.prefetched = links.prefetched;
        // SAFETY: reached under the guard.
        let hash = unsafe { link.as_ref() }.hash();
        from.hash = hash.get();
        match self.table.entry(hash, |found| found == link, &guard) {
            // SAFETY: this thread has unlinked it, and owns the map. References to keys and values
            // borrow the map, so none are left.
            Entry::Occupied(entry) => Some(unsafe { Node::take(entry.remove()) }),
            Entry::Vacant(_) => unreachable!("no other thread removes entries from a map that is owned"),
        }
    }
}

/// Moves the entries out. Their memory is freed after a grace period.
///
/// ```
/// let map = relativist::HashMap::from([("a", String::from("alpha"))]);
/// let entries: Vec<(&str, String)> = map.into_iter().collect();
/// assert_eq!(entries, [("a", "alpha".to_string())]);
/// ```
impl<K, V, S> IntoIterator for HashMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V, S>;

    fn into_iter(self) -> IntoIter<K, V, S> {
        IntoIter { map: self, from: Position::default() }
    }
}

impl<K, V, S> Iterator for IntoIter<K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.map.take_next(&mut self.from)
    }
}

impl<K, V, S> FusedIterator for IntoIter<K, V, S> {}

impl<K, V, S> fmt::Debug for IntoIter<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoIter").field("left", &self.map.len()).finish()
    }
}
