//! Iteration: bucket by bucket, in the order of hashes. Remembers hashes and addresses of the
//! entries of one bucket, and looks each up again in a read section of its own. So nothing is held
//! between two steps.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::iter::FusedIterator;

use relativist_bucket::Hash as Mixed;

use super::{LockMap, RefMut};
use crate::entry::Entry as Node;
use crate::iter as entries;

/// An iterator over the entries of a [`LockMap`]; see [`LockMap::iter`].
pub struct Iter<'m, K, V, S = RandomState> {
    map: &'m LockMap<K, V, S>,
    /// The first hash of the buckets that are left, and the last one.
    rest: Option<(Mixed, Mixed)>,
    /// The hash and the address of each entry that is left of a bucket.
    bucket: Vec<(Mixed, usize)>,
}

impl<'m, K: Hash + Eq, V, S: BuildHasher> Iter<'m, K, V, S> {
    pub(super) fn new(map: &'m LockMap<K, V, S>) -> Self {
        Self { map, rest: Some((Mixed::MIN, Mixed::MAX)), bucket: Vec::new() }
    }

    /// Locks the next entry. Also returns its hash.
    pub(super) fn next_locked(&mut self) -> Option<(Mixed, RefMut<'m, K, V>)> {
        loop {
            while let Some((hash, address)) = self.bucket.pop() {
                let is_it = |node: &Node<_, _>| std::ptr::from_ref(node).addr() == address;
                if let Some(guard) = self.map.acquire(hash, is_it) {
                    return Some((hash, guard));
                }
            }
            let (first, last) = self.rest?;
            let section = self.map.map.table.enter();
            let bucket = &mut self.bucket;
            let next = section.visit_bucket(first, &self.map.map.hashing, |hash, node| {
                if hash <= last {
                    bucket.push((hash, node.addr().get()));
                }
            });
            self.rest = next.filter(|next| *next <= last).map(|next| (next, last));
        }
    }

    /// Splits off half of the hashes that are left. `None` if there are few.
    #[cfg(feature = "rayon")]
    pub(crate) fn split(&mut self) -> Option<Self> {
        let (first, last) = self.rest?;
        let middle = Mixed::middle(first, last);
        let other = middle.next().filter(|other| *other <= last)?;
        self.rest = Some((first, middle));
        Some(Self { map: self.map, rest: Some((other, last)), bucket: Vec::new() })
    }
}

impl<'m, K: Hash + Eq, V, S: BuildHasher> Iterator for Iter<'m, K, V, S> {
    type Item = RefMut<'m, K, V>;

    fn next(&mut self) -> Option<RefMut<'m, K, V>> {
        self.next_locked().map(|(_, guard)| guard)
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> FusedIterator for Iter<'_, K, V, S> {}

impl<'m, K: Hash + Eq, V, S: BuildHasher> IntoIterator for &'m LockMap<K, V, S> {
    type Item = RefMut<'m, K, V>;
    type IntoIter = Iter<'m, K, V, S>;

    fn into_iter(self) -> Iter<'m, K, V, S> {
        self.iter()
    }
}

/// An iterator that removes entries; see [`LockMap::extract_if`].
#[must_use = "entries are removed as the iterator gets to them"]
pub struct ExtractIf<'m, K, V, S, P> {
    entries: Iter<'m, K, V, S>,
    extract: P,
}

impl<'m, K, V, S, P> ExtractIf<'m, K, V, S, P> {
    pub(super) fn new(entries: Iter<'m, K, V, S>, extract: P) -> Self {
        Self { entries, extract }
    }
}

impl<K, V, S, P> Iterator for ExtractIf<'_, K, V, S, P>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
    S: BuildHasher,
    P: FnMut(&K, &mut V) -> bool,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            let (hash, mut guard) = self.entries.next_locked()?;
            let (key, value) = guard.pair_mut();
            if (self.extract)(key, value) {
                let key = key.clone();
                return Some((key, self.entries.map.remove_locked(hash, guard)));
            }
        }
    }
}

impl<K, V, S, P> FusedIterator for ExtractIf<'_, K, V, S, P> where Self: Iterator {}

/// The entries of a map that no longer exists. If it is dropped, it drops those that are left.
pub struct IntoIter<K, V>(entries::IntoIter<K, super::Lockable<V>, relativist_bucket::Boxed>);

impl<K, V> Iterator for IntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        // A guard that was leaked may have left a key without a value.
        self.0.find_map(|(key, value)| value.into_value().map(|value| (key, value)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.0.size_hint().1)
    }
}

impl<K, V> FusedIterator for IntoIter<K, V> {}

/// Moves the entries out. To iterate by reference, use `&map`.
impl<K, V, S> IntoIterator for LockMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(self) -> IntoIter<K, V> {
        IntoIter(self.map.into_iter())
    }
}

impl<K, V, S> fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Iter")
    }
}

impl<K, V, S, P> fmt::Debug for ExtractIf<'_, K, V, S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExtractIf")
    }
}

impl<K, V> fmt::Debug for IntoIter<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IntoIter")
    }
}
