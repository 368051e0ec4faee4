//! Iteration: bucket by bucket, in the order of hashes. Remembers the addresses of the entries of
//! one bucket, and looks each up again in a read section of its own. So nothing is held between two
//! steps. (An address may be that of another entry meanwhile, which was inserted during the
//! iteration.)

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::iter::FusedIterator;

use relativist_bucket::{Hash as Mixed, HashRange};
use relativist_core::prefetch::prefetch;

use super::{LockMap, RefMut};
use crate::iter as entries;

/// An iterator over the entries of a [`LockMap`]; see [`LockMap::iter`].
pub struct Iter<'m, K, V, S = RandomState> {
    map: &'m LockMap<K, V, S>,
    /// The hashes of the buckets that are left.
    rest: Option<HashRange>,
    /// The hashes of a bucket, and the addresses of its entries that are left.
    hashes: HashRange,
    addresses: Vec<usize>,
}

impl<'m, K: Hash + Eq, V, S: BuildHasher> Iter<'m, K, V, S> {
    pub(super) fn new(map: &'m LockMap<K, V, S>) -> Self {
        Self::over(map, (Mixed::MIN, Mixed::MAX))
    }

    fn over(map: &'m LockMap<K, V, S>, hashes: HashRange) -> Self {
        Self { map, rest: Some(hashes), hashes, addresses: Vec::new() }
    }

    /// Collects the addresses of the next bucket. Returns false if there is none.
    fn advance(&mut self) -> bool {
        let Some(rest) = self.rest else { return false };
        let addresses = &mut self.addresses;
        // What a panic of `Hash` has left.
        addresses.clear();
        let section = self.map.map.table.enter();
        let last = section.visit_bucket(rest, &self.map.map.hashing, |node| {
            prefetch(std::ptr::from_ref(node));
            addresses.push(std::ptr::from_ref(node).addr());
        });
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

impl<'m, K: Hash + Eq, V, S: BuildHasher> Iterator for Iter<'m, K, V, S> {
    type Item = RefMut<'m, K, V>;

    fn next(&mut self) -> Option<RefMut<'m, K, V>> {
        loop {
            while let Some(address) = self.addresses.pop() {
                let hashing = &self.map.map.hashing;
                let guard = self.map.acquire(|section| section.find_at(self.hashes, address, hashing));
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
            let mut guard = self.entries.next()?;
            let (key, value) = guard.pair_mut();
            if (self.extract)(key, value) {
                let (key, hash) = (key.clone(), self.entries.map.hash(key));
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
