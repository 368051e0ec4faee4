//! Maps and sets for `rayon` (feature `rayon`): the order of the hashes is split into ranges, which
//! are iterated in parallel.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use rayon::iter::plumbing::{Folder, UnindexedConsumer, UnindexedProducer, bridge_unindexed};
use rayon::iter::{FromParallelIterator, IntoParallelIterator, ParallelExtend, ParallelIterator};
use relativist_rcu::{Guard, is_reading, read, without_waiting};

use crate::flat::{FlatMap, FlatSet, Relocatable};
use crate::map::HashMap;
use crate::map::Pinned;
use crate::set::{HashSet, PinnedSet};
use relativist_table::node::Node;
use relativist_table::{self as raw, Table};

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
pub struct ParIter<'g, K, V>(Hashes<'g, K, V>);

/// A range of mixed hashes, which is iterated by one thread.
pub(crate) struct Range {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Ranges of fewer hashes are not split.
    min_hashes: u64,
}

impl Range {
    /// Ranges are split down to this number of buckets.
    const MIN_BUCKETS: u64 = 128;

    pub(crate) fn all(buckets: usize) -> Self {
        let min_hashes = u64::MAX / buckets as u64;
        Self { first: 0, last: u64::MAX, min_hashes: min_hashes.saturating_mul(Self::MIN_BUCKETS) }
    }

    /// Takes the upper half away and returns it, unless the range is small.
    pub(crate) fn split(&mut self) -> Option<Self> {
        let half = (self.last - self.first) / 2;
        if half < self.min_hashes {
            return None;
        }
        let middle = self.first + half;
        let upper = Self { first: middle + 1, ..*self };
        self.last = middle;
        Some(upper)
    }
}

/// The entries whose mixed hashes are in a range.
struct Hashes<'g, K, V> {
    table: &'g Table,
    range: Range,
    _entries: PhantomData<(&'g K, &'g V)>,
}

impl<'g, K, V> Hashes<'g, K, V> {
    /// Takes the guard only for its lifetime: see `entries`.
    fn all(table: &'g Table, _guard: &'g Guard) -> Self {
        Self { table, range: Range::all(table.buckets()), _entries: PhantomData }
    }

    /// Returns the entries of the range. `guard` belongs to the thread that iterates over it. The
    /// entries may be passed to other threads, and outlive `guard`.
    fn entries<'t>(&self, guard: &'t Guard) -> impl Iterator<Item = (&'g K, &'g V)> + use<'g, 't, K, V>
    where
        'g: 't,
    {
        let last = self.range.last;
        let links: raw::Iter<'t> = self.table.iter_part(self.range.first, raw::Prefetched::default(), guard);
        // SAFETY: reached in the map's table, so it is a node of this type, and alive under
        // `guard`. It is also alive for all of `'g`, because another guard lives that long: the one
        // passed to `all`, which was taken before `guard`. If the first guard's section had begun
        // too late for a grace period to wait for it, then so had `guard`'s section, and it could
        // not have reached the node. But it has. So the grace period after which the node is freed
        // waits for both guards.
        let nodes = links.map(|link| unsafe { (Node::<K, V>::of(link), link.as_ref().hash().get()) });
        nodes.take_while(move |&(_, hash)| hash <= last).map(|(node, _)| node.pair())
    }
}

impl<'g, K: Sync, V: Sync> UnindexedProducer for Hashes<'g, K, V> {
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

impl<'g, K: Sync, V: Sync> ParallelIterator for ParIter<'g, K, V> {
    type Item = (&'g K, &'g V);

    fn drive_unindexed<C: UnindexedConsumer<Self::Item>>(self, consumer: C) -> C::Result {
        bridge_unindexed(self.0, consumer)
    }
}

impl<K, V> fmt::Debug for ParIter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ParIter")
    }
}

/// Each entry that is in the map throughout is seen once, as by [`HashMap::iter`]. The closures run
/// in read sections of the threads that rayon gives them: they may update maps, but not resize them
/// by hand. Nothing that they remove is reclaimed before the handle is dropped. Code that a closure
/// in turn runs on other threads (`flat_map`, `rayon::join`, `rayon::scope`) must not update maps:
/// an update could wait for the handle, whose thread waits for the closure. (`flat_map_iter` stays
/// on its thread.)
impl<'p, K: Sync, V: Sync, S> IntoParallelIterator for &'p Pinned<'_, K, V, S> {
    type Item = (&'p K, &'p V);
    type Iter = ParIter<'p, K, V>;

    fn into_par_iter(self) -> ParIter<'p, K, V> {
        ParIter(Hashes::all(&self.map().table, self.guard()))
    }
}

impl<'p, T: Sync, S> IntoParallelIterator for &'p PinnedSet<'_, T, S> {
    type Item = &'p T;
    type Iter = rayon::iter::Map<ParIter<'p, T, ()>, fn((&'p T, &'p ())) -> &'p T>;

    fn into_par_iter(self) -> Self::Iter {
        ParIter(Hashes::all(&self.set().as_map().table, self.guard())).map(|(element, ())| element)
    }
}

/// Filling maps and sets in parallel. The lists are the bounds of keys, values and hashers.
macro_rules! fill {
    ($Map:ident, $Set:ident, keys: [$($key:tt)*], values: [$($value:tt)*], hashers: [$($hasher:tt)*]) => {
        impl<K: $($key)*, V: $($value)*, S: $($hasher)*> $Map<K, V, S> {
            fn fill_in_parallel(&self, entries: impl IntoParallelIterator<Item = (K, V)>) {
                let entries = entries.into_par_iter();
                self.expect(entries.opt_len().unwrap_or(0));
                let insert = |(key, value)| _ = self.pin().insert(key, value);
                if is_reading() {
                    // See `fold_with`.
                    entries.for_each(|entry| without_waiting(|| insert(entry)));
                } else {
                    entries.for_each(insert);
                }
            }
        }

        /// If several entries have equal keys, any one of them may be kept.
        impl<K: $($key)*, V: $($value)*, S: Default + $($hasher)*> FromParallelIterator<(K, V)> for $Map<K, V, S> {
            fn from_par_iter<I: IntoParallelIterator<Item = (K, V)>>(entries: I) -> Self {
                let map = Self::default();
                map.fill_in_parallel(entries);
                map
            }
        }

        /// If several entries have equal keys, any one of them may be kept.
        impl<K: $($key)*, V: $($value)*, S: $($hasher)*> ParallelExtend<(K, V)> for $Map<K, V, S> {
            fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, entries: I) {
                self.fill_in_parallel(entries);
            }
        }

        /// Extends a map through a shared reference.
        impl<K: $($key)*, V: $($value)*, S: $($hasher)*> ParallelExtend<(K, V)> for &$Map<K, V, S> {
            fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, entries: I) {
                self.fill_in_parallel(entries);
            }
        }

        /// Any one of several equal elements may be kept.
        impl<T: $($key)*, S: Default + $($hasher)*> FromParallelIterator<T> for $Set<T, S> {
            fn from_par_iter<I: IntoParallelIterator<Item = T>>(elements: I) -> Self {
                let set = Self::default();
                (&set).par_extend(elements);
                set
            }
        }

        /// Any one of several equal elements may be kept.
        impl<T: $($key)*, S: $($hasher)*> ParallelExtend<T> for $Set<T, S> {
            fn par_extend<I: IntoParallelIterator<Item = T>>(&mut self, elements: I) {
                (&*self).par_extend(elements);
            }
        }

        /// Extends a set through a shared reference.
        impl<T: $($key)*, S: $($hasher)*> ParallelExtend<T> for &$Set<T, S> {
            fn par_extend<I: IntoParallelIterator<Item = T>>(&mut self, elements: I) {
                self.as_map().fill_in_parallel(elements.into_par_iter().map(|element| (element, ())));
            }
        }
    };
}

fill! {
    HashMap, HashSet,
    keys: [Hash + Eq + Send + Sync + 'static], values: [Send + Sync + 'static], hashers: [BuildHasher + Sync]
}

fill! {
    FlatMap, FlatSet,
    keys: [Hash + Eq + Relocatable], values: [Relocatable], hashers: [BuildHasher + Send + Sync + 'static]
}
