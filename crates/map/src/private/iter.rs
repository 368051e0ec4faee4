//! Operations on all entries. They visit entries in pieces: they collect a piece in a section of
//! the process, and leave the section before the caller gets the first entry of the piece.

use std::collections::VecDeque;
use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ptr::NonNull;

use relativist_rcu::{DomainGuard, read};

#[cfg(doc)]
use super::map::Pinned;
use super::map::PrivateMap;
use crate::iter::{Position, keys_and_values};
use relativist_table::node::Node;
use relativist_table::{Link, Table};

/// The number of links in a piece, if hashes are different.
const PIECE: usize = 128;

/// The links of a table, in the order of their hashes, converted to `T` in the section in which
/// they were found. Sees the links that [`Table::scan`] sees.
pub(super) struct Pieces<'t, T> {
    table: &'t Table,
    /// Where the next piece begins; `None` after the last one.
    cursor: Option<u64>,
    piece: VecDeque<T>,
    convert: fn(NonNull<Link>) -> T,
}

impl<'t, T> Pieces<'t, T> {
    fn new(table: &'t Table, convert: fn(NonNull<Link>) -> T) -> Self {
        Self { table, cursor: Some(0), piece: VecDeque::new(), convert }
    }
}

impl<T> Iterator for Pieces<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.piece.is_empty() {
            let cursor = self.cursor?;
            let found = |link| self.piece.push_back((self.convert)(link));
            self.cursor = self.table.scan(cursor, PIECE, &read(), found);
        }
        self.piece.pop_front()
    }
}

impl<K, V, S> PrivateMap<K, V, S> {
    /// See [`HashMap::iter`](crate::HashMap::iter).
    pub(super) fn iter<'g>(&'g self, _guard: &'g DomainGuard<'_>) -> Iter<'g, K, V> {
        // SAFETY: the iterator's pieces are found in this map under the guard, which protects the
        // nodes for `'g`: see `PrivateMap::node`.
        Iter(Pieces::new(&self.map.table, |link| unsafe { Node::of(link) }))
    }

    /// See [`HashMap::keys`](crate::HashMap::keys).
    pub(super) fn keys<'g>(&'g self, guard: &'g DomainGuard<'_>) -> Keys<'g, K, V> {
        Keys(self.iter(guard))
    }

    /// See [`HashMap::values`](crate::HashMap::values).
    pub(super) fn values<'g>(&'g self, guard: &'g DomainGuard<'_>) -> Values<'g, K, V> {
        Values(self.iter(guard))
    }

    /// See [`HashMap::scan`](crate::HashMap::scan).
    pub(super) fn scan<'g>(
        &'g self,
        mut cursor: u64,
        n: usize,
        guard: &'g DomainGuard<'_>,
        mut visit: impl FnMut(&'g K, &'g V),
    ) -> Option<u64> {
        let mut left = n;
        let mut piece = Vec::new();
        loop {
            let next = self.map.table.scan(cursor, left.min(PIECE), &read(), |link| piece.push(link));
            left = left.saturating_sub(piece.len());
            for link in piece.drain(..) {
                // SAFETY: found in this map under the guard.
                let node = unsafe { self.node(link, guard) };
                visit(&node.key, &node.value);
            }
            cursor = next?;
            if left == 0 {
                return Some(cursor);
            }
        }
    }

    /// Drops the key and the value of each entry that is in the map. The links stay in the table.
    ///
    /// If a destructor panics, the other entries are dropped before the panic continues. A second
    /// panic meanwhile aborts, as in the destructors of std's collections.
    ///
    /// # Safety
    ///
    /// No thread uses the map after this, except to drop it.
    pub(super) unsafe fn drop_entries(&mut self) {
        let left = Pieces::new(&self.map.table, |link| link);
        LeftEntries::<K, V> { left, _entries: PhantomData }.drop_all();
    }
}

/// The entries of a map that have not been dropped yet.
struct LeftEntries<'t, K, V> {
    left: Pieces<'t, NonNull<Link>>,
    _entries: PhantomData<(K, V)>,
}

impl<K, V> LeftEntries<'_, K, V> {
    fn drop_all(&mut self) {
        for link in &mut self.left {
            // SAFETY: the caller of `drop_entries` owns the map, so no handle is left, nor a
            // reference to a key or value. The resizer may use the link, but not key and value. As
            // no link is inserted or removed meanwhile, each is seen once (T7).
            unsafe { Node::<K, V>::drop_entry(link) };
        }
    }
}

impl<K, V> Drop for LeftEntries<'_, K, V> {
    fn drop(&mut self) {
        // If a destructor has panicked, some entries are left.
        self.drop_all();
    }
}

/// The entries that these methods remove are reclaimed after the handle is dropped.
impl<K: Send + Sync, V: Send + Sync, S> PrivateMap<K, V, S> {
    /// See [`HashMap::clear`](crate::HashMap::clear).
    pub(super) fn clear(&self, guard: &DomainGuard<'_>) {
        drop(self.drain(guard));
    }

    /// See [`HashMap::retain`](crate::HashMap::retain).
    pub(super) fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool, guard: &DomainGuard<'_>) {
        self.extract_if(|key, value| !keep(key, value), guard).for_each(drop);
    }

    /// See [`HashMap::extract_if`](crate::HashMap::extract_if).
    pub(super) fn extract_if<'g, F>(&'g self, extract: F, guard: &'g DomainGuard<'_>) -> ExtractIf<'g, K, V, S, F>
    where
        F: FnMut(&K, &V) -> bool,
    {
        ExtractIf { map: self, entries: self.iter(guard), extract, guard }
    }

    /// See [`HashMap::drain`](crate::HashMap::drain).
    pub(super) fn drain<'g>(&'g self, guard: &'g DomainGuard<'_>) -> Drain<'g, K, V, S> {
        Drain(self.extract_if(|_, _| true, guard))
    }
}

/// An iterator over the entries of a map; see [`Pinned::iter`]. It is `Send` if keys and values are
/// `Sync`, like the handle.
pub struct Iter<'g, K, V>(Pieces<'g, &'g Node<K, V>>);

impl<'g, K, V> Iterator for Iter<'g, K, V> {
    type Item = (&'g K, &'g V);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(Node::pair)
    }
}

impl<K, V> FusedIterator for Iter<'_, K, V> {}

impl<K, V> fmt::Debug for Iter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Iter")
    }
}

keys_and_values!(Pinned, of: [K, V], iterate: []);

/// An iterator that removes entries; see [`Pinned::extract_if`].
#[must_use = "entries are removed as the iterator gets to them"]
pub struct ExtractIf<'g, K, V, S, F> {
    map: &'g PrivateMap<K, V, S>,
    entries: Iter<'g, K, V>,
    extract: F,
    guard: &'g DomainGuard<'g>,
}

impl<'g, K, V, S, F> Iterator for ExtractIf<'g, K, V, S, F>
where
    K: Send + Sync,
    V: Send + Sync,
    F: FnMut(&K, &V) -> bool,
{
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let node = self.entries.0.next()?;
            if (self.extract)(&node.key, &node.value) && self.map.unlink(node, self.guard) {
                return Some(node.pair());
            }
        }
    }
}

impl<K, V, S, F> FusedIterator for ExtractIf<'_, K, V, S, F> where Self: Iterator {}

impl<K, V, S, F> fmt::Debug for ExtractIf<'_, K, V, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExtractIf")
    }
}

/// An iterator that removes all entries; see [`Pinned::drain`].
pub struct Drain<'g, K: Send + Sync, V: Send + Sync, S>(ExtractIf<'g, K, V, S, All<K, V>>);

type All<K, V> = fn(&K, &V) -> bool;

impl<'g, K: Send + Sync, V: Send + Sync, S> Iterator for Drain<'g, K, V, S> {
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl<K: Send + Sync, V: Send + Sync, S> FusedIterator for Drain<'_, K, V, S> {}

impl<K: Send + Sync, V: Send + Sync, S> Drop for Drain<'_, K, V, S> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<K: Send + Sync, V: Send + Sync, S> fmt::Debug for Drain<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drain")
    }
}

/// An iterator that moves the entries out of a map that it owns.
pub struct IntoIter<K, V, S> {
    map: PrivateMap<K, V, S>,
    from: Position,
}

/// Moves the entries out. Their memory is freed after a grace period of the process.
///
/// ```
/// let map = relativist::PrivateMap::from([("a", String::from("alpha"))]);
/// let entries: Vec<(&str, String)> = map.into_iter().collect();
/// assert_eq!(entries, [("a", "alpha".to_string())]);
/// ```
impl<K, V, S> IntoIterator for PrivateMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V, S>;

    fn into_iter(self) -> IntoIter<K, V, S> {
        IntoIter { map: self, from: Position::default() }
    }
}

impl<K, V, S> Iterator for IntoIter<K, V, S> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        relativist_rcu::without_waiting(|| self.map.map.take_next(&mut self.from))
    }
}

impl<K, V, S> FusedIterator for IntoIter<K, V, S> {}

impl<K, V, S> fmt::Debug for IntoIter<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoIter").field("left", &self.map.len()).finish()
    }
}
