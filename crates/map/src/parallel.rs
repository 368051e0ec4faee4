//! Maps and sets for `rayon` (feature `rayon`): the buckets are split into ranges, which are
//! iterated in parallel.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use rayon::iter::plumbing::{Folder, UnindexedConsumer, UnindexedProducer, bridge_unindexed};
use rayon::iter::{FromParallelIterator, IntoParallelIterator, ParallelExtend, ParallelIterator};
use relativist_bucket::Form;
use relativist_rcu::{is_reading, without_waiting};

use crate::entry::Stores;
use crate::iter::Iter;
use crate::lock_map::{self, RefMut};
use crate::map::Map;
use crate::pinned::Pinned;
use crate::set::{PinnedSet, Set};

/// A parallel iterator over the entries of a map; returned by `pinned.par_iter()`.
///
/// ```
/// use rayon::prelude::*;
/// use relativist::HashMap;
///
/// let squares: HashMap<u64, u64> = (0..1000u64).into_par_iter().map(|n| (n, n * n)).collect();
/// let sum: u64 = squares.pin().par_iter().map(|(_, square)| square).sum();
/// assert_eq!(sum, 999 * 1000 * 1999 / 6);
/// ```
pub struct ParIter<'p, K, V, S, F: Form>(Iter<'p, K, V, S, F>);

impl<'p, K: Hash + Eq + Sync, V: Sync, S: BuildHasher + Sync, F: Form> UnindexedProducer for ParIter<'p, K, V, S, F> {
    type Item = (&'p K, &'p V);

    fn split(mut self) -> (Self, Option<Self>) {
        let other = self.0.0.split().map(|half| Self(Iter(half)));
        (self, other)
    }

    fn fold_with<C: Folder<Self::Item>>(self, folder: C) -> C {
        // The thread that waits for this one has a handle. If this thread waited for readers in
        // `folder`, both would wait for ever.
        without_waiting(|| folder.consume_iter(self.0))
    }
}

impl<'p, K: Hash + Eq + Sync, V: Sync, S: BuildHasher + Sync, F: Form> ParallelIterator for ParIter<'p, K, V, S, F> {
    type Item = (&'p K, &'p V);

    fn drive_unindexed<C: UnindexedConsumer<Self::Item>>(self, consumer: C) -> C::Result {
        bridge_unindexed(self, consumer)
    }
}

impl<K, V, S, F: Form> fmt::Debug for ParIter<'_, K, V, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ParIter")
    }
}

/// Each entry that is in the map throughout is seen once, as by [`Pinned::iter`]. The closures run
/// while the handle lives, on threads that rayon gives them: they may update maps, but not shrink
/// them by hand. Code that a closure in turn runs on other threads (`flat_map`, `rayon::join`,
/// `rayon::scope`) must not update maps: an update could wait for the handle, whose thread waits
/// for the closure. (`flat_map_iter` stays on its thread.)
impl<'p, K: Hash + Eq + Sync, V: Sync, S: BuildHasher + Sync, F: Form> IntoParallelIterator
    for &'p Pinned<'_, K, V, S, F>
{
    type Item = (&'p K, &'p V);
    type Iter = ParIter<'p, K, V, S, F>;

    fn into_par_iter(self) -> Self::Iter {
        ParIter(self.iter())
    }
}

impl<'p, T: Hash + Eq + Sync, S: BuildHasher + Sync, F: Form> IntoParallelIterator for &'p PinnedSet<'_, T, S, F> {
    type Item = &'p T;
    type Iter = rayon::iter::Map<ParIter<'p, T, (), S, F>, fn((&'p T, &'p ())) -> &'p T>;

    fn into_par_iter(self) -> Self::Iter {
        ParIter(self.pinned.iter()).map(|(element, ())| element)
    }
}

/// A parallel iterator over the entries of a [`LockMap`](crate::LockMap), which `map.par_iter()`
/// returns.
///
/// ```
/// use rayon::prelude::*;
/// use relativist::LockMap;
///
/// let map: LockMap<u64, u64> = (0..1000u64).into_par_iter().map(|n| (n, n)).collect();
/// map.par_iter().for_each(|mut value| *value *= *value);
/// assert_eq!(map.get_copied(&7), Some(49));
/// ```
pub struct ParIterLocked<'m, K, V, S, F: Form>(lock_map::Iter<'m, K, V, S, F>);

impl<'m, K, V, S, F: Form> UnindexedProducer for ParIterLocked<'m, K, V, S, F>
where
    K: Hash + Eq + Send + Sync,
    V: Send,
    S: BuildHasher + Sync,
{
    type Item = RefMut<'m, K, V>;

    fn split(mut self) -> (Self, Option<Self>) {
        let other = self.0.split().map(Self);
        (self, other)
    }

    fn fold_with<C: Folder<Self::Item>>(self, folder: C) -> C {
        folder.consume_iter(self.0)
    }
}

impl<'m, K, V, S, F: Form> ParallelIterator for ParIterLocked<'m, K, V, S, F>
where
    K: Hash + Eq + Send + Sync,
    V: Send,
    S: BuildHasher + Sync,
{
    type Item = RefMut<'m, K, V>;

    fn drive_unindexed<C: UnindexedConsumer<Self::Item>>(self, consumer: C) -> C::Result {
        bridge_unindexed(self, consumer)
    }
}

impl<K, V, S, F: Form> fmt::Debug for ParIterLocked<'_, K, V, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ParIterLocked")
    }
}

/// Each entry that is in the map throughout is seen once, as by [`lock_map::Map::iter`].
impl<'m, K, V, S, F: Form> IntoParallelIterator for &'m lock_map::Map<K, V, S, F>
where
    K: Hash + Eq + Send + Sync,
    V: Send,
    S: BuildHasher + Sync,
{
    type Item = RefMut<'m, K, V>;
    type Iter = ParIterLocked<'m, K, V, S, F>;

    fn into_par_iter(self) -> Self::Iter {
        ParIterLocked(self.iter())
    }
}

/// Calls `insert` with each entry, in parallel.
fn fill<E: Send>(entries: impl ParallelIterator<Item = E>, insert: impl Fn(E) + Send + Sync) {
    if is_reading() {
        // See `ParIter::fold_with`.
        entries.for_each(|entry| without_waiting(|| insert(entry)));
    } else {
        entries.for_each(insert);
    }
}

impl<K: Hash + Eq + Send, V: Send, S: BuildHasher, F: Stores<K, V>> Map<K, V, S, F>
where
    Self: Sync,
{
    fn fill_in_parallel(&self, entries: impl IntoParallelIterator<Item = (K, V)>) {
        let entries = entries.into_par_iter();
        // Without memory for the buckets the map grows as far as it can.
        _ = self.try_reserve(entries.opt_len().unwrap_or(0));
        fill(entries, |(key, value)| _ = self.pin().insert(key, value));
    }
}

/// If several entries have equal keys, any one of them may be kept.
impl<K: Hash + Eq + Send, V: Send, S: BuildHasher + Default, F: Stores<K, V>> FromParallelIterator<(K, V)>
    for Map<K, V, S, F>
where
    Self: Sync,
{
    fn from_par_iter<I: IntoParallelIterator<Item = (K, V)>>(entries: I) -> Self {
        let map = Self::default();
        map.fill_in_parallel(entries);
        map
    }
}

/// If several entries have equal keys, any one of them may be kept.
impl<K: Hash + Eq + Send, V: Send, S: BuildHasher, F: Stores<K, V>> ParallelExtend<(K, V)> for Map<K, V, S, F>
where
    Self: Sync,
{
    fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.fill_in_parallel(entries);
    }
}

/// If several entries have equal keys, any one of the values may be kept.
impl<K, V, S, F> FromParallelIterator<(K, V)> for lock_map::Map<K, V, S, F>
where
    K: Hash + Eq + Send + Sync,
    V: Send,
    S: BuildHasher + Default + Sync,
    F: lock_map::Stores<K, V>,
{
    fn from_par_iter<I: IntoParallelIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        map.par_extend(entries);
        map
    }
}

/// If several entries have equal keys, any one of the values may be kept.
impl<K, V, S, F> ParallelExtend<(K, V)> for lock_map::Map<K, V, S, F>
where
    K: Hash + Eq + Send + Sync,
    V: Send,
    S: BuildHasher + Sync,
    F: lock_map::Stores<K, V>,
{
    fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, entries: I) {
        let entries = entries.into_par_iter();
        // As above.
        _ = self.try_reserve(entries.opt_len().unwrap_or(0));
        fill(entries, |(key, value)| _ = self.insert(key, value));
    }
}

/// Any one of several equal elements may be kept.
impl<T: Hash + Eq + Send, S: BuildHasher + Default, F: Stores<T, ()>> FromParallelIterator<T> for Set<T, S, F>
where
    Map<T, (), S, F>: Sync,
{
    fn from_par_iter<I: IntoParallelIterator<Item = T>>(elements: I) -> Self {
        let mut set = Self::default();
        set.par_extend(elements);
        set
    }
}

/// Any one of several equal elements may be kept.
impl<T: Hash + Eq + Send, S: BuildHasher, F: Stores<T, ()>> ParallelExtend<T> for Set<T, S, F>
where
    Map<T, (), S, F>: Sync,
{
    fn par_extend<I: IntoParallelIterator<Item = T>>(&mut self, elements: I) {
        self.as_map().fill_in_parallel(elements.into_par_iter().map(|element| (element, ())));
    }
}
