//! Flat maps and sets for `rayon`: threads iterate over ranges of hashes, as in `crate::parallel`.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ptr;

use rayon::iter::plumbing::{Folder, UnindexedConsumer, UnindexedProducer, bridge_unindexed};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use relativist_rcu::{Guard, read, without_waiting};

use super::iter::Iter;
use super::map::Pinned;
use super::set::PinnedSet;
use super::table::Table;
use crate::parallel::Range;

/// A parallel iterator over the entries of a flat map; returned by `pinned.par_iter()`.
///
/// ```
/// use rayon::prelude::*;
/// use relativist::FlatMap;
///
/// let squares: FlatMap<u64, u64> = (0..1000u64).into_par_iter().map(|n| (n, n * n)).collect();
/// let sum: u64 = squares.pin().par_iter().map(|(_, square)| square).sum();
/// assert_eq!(sum, 999 * 1000 * 1999 / 6);
/// ```
pub struct ParIter<'g, K, V, S>(Hashes<'g, K, V, S>);

/// The entries whose mixed hashes are in a range.
struct Hashes<'g, K, V, S> {
    table: &'g Table<K, V, S>,
    range: Range,
}

impl<'g, K, V, S> ParIter<'g, K, V, S> {
    /// Takes the guard for its lifetime, too: see `entries`.
    fn all(table: &'g Table<K, V, S>, guard: &'g Guard) -> Self {
        Self(Hashes { table, range: Range::all(table.buckets(guard)) })
    }
}

impl<'g, K: Hash + Eq, V, S: BuildHasher> Hashes<'g, K, V, S> {
    /// Returns the entries of the range. `guard` belongs to the thread that iterates over it. The
    /// entries may be passed to other threads, and outlive `guard`.
    fn entries<'t>(&self, guard: &'t Guard) -> impl Iterator<Item = (&'g K, &'g V)> + use<'g, 't, K, V, S>
    where
        'g: 't,
    {
        let entries: Iter<'t, K, V, S> = Iter::part(self.table, self.range.first..=self.range.last, guard);
        entries.map(|(key, value)| {
            let (key, value) = (ptr::from_ref(key), ptr::from_ref(value));
            // SAFETY: the entry is alive under `guard`. It is also alive for all of `'g`, because
            // another guard lives that long: the one passed to `all`, which was taken before
            // `guard`. The grace periods after which the slot is used again, or its array or
            // segment is freed, wait for `guard`, because its section has reached the entry. So
            // they also wait for the other guard, whose section began earlier.
            unsafe { (&*key, &*value) }
        })
    }
}

impl<'g, K, V, S> UnindexedProducer for Hashes<'g, K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher + Sync,
{
    type Item = (&'g K, &'g V);

    fn split(mut self) -> (Self, Option<Self>) {
        let upper = self.range.split().map(|range| Self { range, ..self });
        (self, upper)
    }

    fn fold_with<F: Folder<Self::Item>>(self, folder: F) -> F {
        // The thread that waits for this one has a guard. If this thread waited for readers in
        // `folder`, both would wait for ever.
        without_waiting(|| {
            let guard = read();
            folder.consume_iter(self.entries(&guard))
        })
    }
}

impl<'g, K, V, S> ParallelIterator for ParIter<'g, K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher + Sync,
{
    type Item = (&'g K, &'g V);

    fn drive_unindexed<C: UnindexedConsumer<Self::Item>>(self, consumer: C) -> C::Result {
        bridge_unindexed(self.0, consumer)
    }
}

impl<K, V, S> fmt::Debug for ParIter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ParIter")
    }
}

/// As for [`HashMap`](crate::HashMap): each entry that is in the map throughout is seen once. The
/// closures run in read sections of the threads that rayon gives them. They may update maps, but
/// not resize them by hand, and code that they in turn run on other threads must not update maps.
impl<'p, K, V, S> IntoParallelIterator for &'p Pinned<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher + Sync,
{
    type Item = (&'p K, &'p V);
    type Iter = ParIter<'p, K, V, S>;

    fn into_par_iter(self) -> Self::Iter {
        ParIter::all(&self.map().table, self.guard())
    }
}

impl<'p, T, S> IntoParallelIterator for &'p PinnedSet<'_, T, S>
where
    T: Hash + Eq + Send + Sync,
    S: BuildHasher + Sync,
{
    type Item = &'p T;
    type Iter = rayon::iter::Map<ParIter<'p, T, (), S>, fn((&'p T, &'p ())) -> &'p T>;

    fn into_par_iter(self) -> Self::Iter {
        ParIter::all(&self.set().as_map().table, self.guard()).map(|(element, ())| element)
    }
}
