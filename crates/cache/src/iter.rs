//! Iteration over the entries of a cache.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::iter::FusedIterator;
use std::vec;

use relativist_rcu::read;

use super::core::Core;
use super::expiry::Purpose;
use super::node::Lifespan;
use super::{Cache, with_core};

/// An iterator over clones of the entries of a cache; see [`Cache::iter`].
pub struct Iter<'c, K, V, S> {
    cache: &'c Cache<K, V, S>,
    piece: vec::IntoIter<(K, V)>,
    /// The shard, and the hash at which the next piece begins.
    next: Option<Position>,
}

/// A shard, and a hash.
type Position = (usize, u64);

impl<'c, K, V, S> Iter<'c, K, V, S> {
    pub(super) fn new(cache: &'c Cache<K, V, S>) -> Self {
        Self { cache, piece: Vec::new().into_iter(), next: Some((0, 0)) }
    }
}

impl<K: Clone, V: Clone, S, L: Lifespan> Core<K, V, S, L> {
    /// Returns clones of some entries, and where to go on.
    fn piece(&self, (shard, from): Position) -> (Vec<(K, V)>, Option<Position>) {
        let guard = read();
        let mut entries = Vec::new();
        let next = self.visit_piece(shard, from, &guard, |node| {
            // SAFETY: nodes in the table are alive.
            let node = unsafe { node.as_ref() };
            if self.is_alive(node, Purpose::Peek) {
                entries.push((node.key.clone(), node.value.clone()));
            }
        });
        let next_shard = (shard + 1 < self.shards()).then_some((shard + 1, 0));
        (entries, next.map(|next| (shard, next)).or(next_shard))
    }
}

impl<K, V, S> Iterator for Iter<'_, K, V, S>
where
    K: Clone,
    V: Clone,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            if let Some(entry) = self.piece.next() {
                return Some(entry);
            }
            // If a clone panics, the iteration has ended.
            let next = self.next.take()?;
            let (piece, next) = with_core!(self.cache, core => core.piece(next));
            (self.piece, self.next) = (piece.into_iter(), next);
        }
    }
}

impl<K: Clone, V: Clone, S> FusedIterator for Iter<'_, K, V, S> {}

impl<'c, K, V, S> IntoIterator for &'c Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    type Item = (K, V);
    type IntoIter = Iter<'c, K, V, S>;

    fn into_iter(self) -> Iter<'c, K, V, S> {
        self.iter()
    }
}

impl<K, V, S> fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Iter")
    }
}
