//! Iteration: bucket by bucket, in the order of hashes. Remembers the numbers of the entries of one
//! bucket, and looks each up again in a read section of its own. So nothing is held between two
//! steps.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::iter::FusedIterator;
use std::ptr::NonNull;

use relativist_bucket::{Boxed, Form, Hash as Mixed, HashRange, IntoEntries};

use super::lockable::Id;
use super::{Locked, Map, RefMut, Stores};

/// An iterator over the entries of a [`Map`]; see [`Map::iter`].
pub struct Iter<'m, K, V, S = RandomState, F: Form = Boxed> {
    map: &'m Map<K, V, S, F>,
    /// The hashes of the buckets that are left.
    rest: Option<HashRange>,
    /// The hashes of a bucket, and the numbers of its entries that are left.
    hashes: HashRange,
    ids: Vec<Id>,
}

impl<'m, K: Hash + Eq, V, S: BuildHasher, F: Form> Iter<'m, K, V, S, F> {
    pub(super) fn new(map: &'m Map<K, V, S, F>) -> Self {
        Self::over(map, (Mixed::MIN, Mixed::MAX))
    }

    fn over(map: &'m Map<K, V, S, F>, hashes: HashRange) -> Self {
        Self { map, rest: Some(hashes), hashes, ids: Vec::new() }
    }

    /// Collects the numbers of the next bucket. Returns false if there is none.
    fn advance(&mut self) -> bool {
        let Some(rest) = self.rest else { return false };
        let ids = &mut self.ids;
        // What a panic of `Hash` has left.
        ids.clear();
        let section = self.map.table.enter();
        let last = section.visit_bucket(rest, &self.map.hashing, |node| ids.push(node.value.id()));
        self.hashes = (rest.0, last);
        self.rest = last.next().filter(|next| *next <= rest.1).map(|next| (next, rest.1));
        true
    }

    /// Splits off half of the hashes that are left. `None` if there are few.
    #[cfg(feature = "rayon")]
    pub(crate) fn split(&mut self) -> Option<Self> {
        let (first, last) = self.rest?;
        let middle = Mixed::middle(first, last);
        let other = middle.next().filter(|other| *other <= last)?;
        self.rest = Some((first, middle));
        Some(Self::over(self.map, (other, last)))
    }
}

impl<'m, K: Hash + Eq, V, S: BuildHasher, F: Form> Iterator for Iter<'m, K, V, S, F> {
    type Item = RefMut<'m, K, V>;

    fn next(&mut self) -> Option<RefMut<'m, K, V>> {
        loop {
            while let Some(id) = self.ids.pop() {
                let guard = self.map.acquire(|section| {
                    section.find_in_range(self.hashes, |node| node.value.id() == id).map(NonNull::from)
                });
                if guard.is_some() {
                    return guard;
                }
            }
            if !self.advance() {
                return None;
            }
        }
    }
}

impl<K: Hash + Eq, V, S: BuildHasher, F: Form> FusedIterator for Iter<'_, K, V, S, F> {}

impl<'m, K: Hash + Eq, V, S: BuildHasher, F: Form> IntoIterator for &'m Map<K, V, S, F> {
    type Item = RefMut<'m, K, V>;
    type IntoIter = Iter<'m, K, V, S, F>;

    fn into_iter(self) -> Iter<'m, K, V, S, F> {
        self.iter()
    }
}

/// An iterator that removes entries; see [`Map::extract_if`].
#[must_use = "entries are removed as the iterator gets to them"]
pub struct ExtractIf<'m, K, V, S, F: Form, P> {
    entries: Iter<'m, K, V, S, F>,
    extract: P,
}

impl<'m, K, V, S, F: Form, P> ExtractIf<'m, K, V, S, F, P> {
    pub(super) fn new(entries: Iter<'m, K, V, S, F>, extract: P) -> Self {
        Self { entries, extract }
    }
}

impl<K, V, S, F, P> Iterator for ExtractIf<'_, K, V, S, F, P>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
    F: Stores<K, V>,
    P: FnMut(&K, &mut V) -> bool,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            let mut guard = self.entries.next()?;
            let (key, value) = guard.pair_mut();
            if (self.extract)(key, value) {
                let (key, hash) = (key.clone(), self.entries.map.hash(key));
                return Some((key, self.entries.map.remove_locked(hash, guard)));
            }
        }
    }
}

impl<K, V, S, F: Form, P> FusedIterator for ExtractIf<'_, K, V, S, F, P> where Self: Iterator {}

/// The entries of a map that no longer exists. If it is dropped, it drops those that are left.
pub struct IntoIter<K, V, F: Form>(IntoEntries<Locked<K, V>, F>);

impl<K, V, F: Form> Iterator for IntoIter<K, V, F> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        // A guard that was leaked may have left a key without a value.
        self.0.find_map(|Locked { key, value }| value.into_value().map(|value| (key, value)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.0.size_hint().1)
    }
}

impl<K, V, F: Form> FusedIterator for IntoIter<K, V, F> {}

/// Moves the entries out. To iterate by reference, use `&map`.
impl<K, V, S, F: Form> IntoIterator for Map<K, V, S, F> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V, F>;

    fn into_iter(self) -> IntoIter<K, V, F> {
        // First, as in `crate::Map`: if its destructor panicked later, the result would be leaked.
        drop(self.hashing);
        IntoIter(self.table.into_entries())
    }
}

impl<K, V, S, F: Form> fmt::Debug for Iter<'_, K, V, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Iter")
    }
}

impl<K, V, S, F: Form, P> fmt::Debug for ExtractIf<'_, K, V, S, F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExtractIf")
    }
}

impl<K, V, F: Form> fmt::Debug for IntoIter<K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IntoIter")
    }
}
