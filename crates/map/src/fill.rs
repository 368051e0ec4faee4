//! Inserts many entries: in batches whose cache misses overlap, and without locks into maps that no
//! other thread can see.

use std::hash::{BuildHasher, Hash};

use relativist_rcu::read;

use crate::map::HashMap;
use relativist_table::node::Node;
use relativist_table::{self as raw, Table};

/// What to do with an entry whose key is in the map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duplicates {
    Replace,
    Keep,
}

/// Nodes that are about to be inserted, and their hashes.
pub(crate) struct Batch<K, V> {
    nodes: [Option<Box<Node<K, V>>>; Table::BATCH],
    hashes: [raw::Hash; Table::BATCH],
    len: usize,
}

impl<K, V> Batch<K, V> {
    pub(crate) fn new() -> Self {
        Self { nodes: [const { None }; Table::BATCH], hashes: [raw::Hash::new(0); Table::BATCH], len: 0 }
    }

    /// Makes nodes of the next entries. Returns false if there are none.
    pub(crate) fn fill(&mut self, entries: &mut impl Iterator<Item = (K, V)>, hash: impl Fn(&K) -> raw::Hash) -> bool {
        self.len = 0;
        // The places come first: `zip` takes no entry when there is no place left.
        for ((node, its), (key, value)) in self.nodes.iter_mut().zip(&mut self.hashes).zip(entries) {
            *its = hash(&key);
            *node = Some(Node::new(*its, key, value));
            self.len += 1;
        }
        self.len > 0
    }

    pub(crate) fn hashes(&self) -> &[raw::Hash] {
        &self.hashes[..self.len]
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = Box<Node<K, V>>> {
        self.nodes[..self.len].iter_mut().filter_map(Option::take)
    }
}

impl<K, V, S> HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Inserts many entries, and returns the number of keys that are new.
    ///
    /// Each insertion is one step, like that of [`insert`](HashMap::insert), and there is none for
    /// all of them. This is faster if the map is larger than the processor's cache, because it
    /// requests the memory for up to [`Table::BATCH`] insertions at once. It takes a batch of
    /// entries from the iterator before it inserts the first of them. If the iterator or the hasher
    /// panics, those that it has taken and not inserted are dropped.
    ///
    /// Makes room first, as [`reserve`](HashMap::reserve) does, if the iterator announces more
    /// entries than the map has, and this thread holds no guard or pinned handle. Enters a read
    /// section for each batch. (A map that is borrowed mutably is filled faster by `extend`, which
    /// takes no locks.)
    ///
    /// ```
    /// let map = relativist::HashMap::from([(1, "one")]);
    /// assert_eq!(map.insert_many([(1, "uno"), (2, "due"), (3, "tre")]), 2);
    /// assert_eq!(map.pin().get(&1), Some(&"uno"));
    /// ```
    pub fn insert_many(&self, entries: impl IntoIterator<Item = (K, V)>) -> usize {
        let mut entries = entries.into_iter().fuse();
        let expected = self.worth_reserving(&entries);
        if expected > 0 {
            self.expect(expected);
        }
        let mut batch = Batch::new();
        let mut new = 0;
        while batch.fill(&mut entries, |key| self.hash(key)) {
            let guard = read();
            self.table.prefetch_for_updates(batch.hashes(), &guard);
            new += batch.take().filter_map(|node| self.put_node(node, &guard).is_none().then_some(())).count();
        }
        new
    }

    /// Inserts entries into a map that no other thread can see.
    pub(crate) fn fill(&mut self, entries: impl IntoIterator<Item = (K, V)>) {
        self.fill_unseen(entries, Duplicates::Replace);
    }

    /// Inserts entries into a map that no other thread can see: without guards and locks, and
    /// without waiting for readers.
    pub(crate) fn fill_unseen(&mut self, entries: impl IntoIterator<Item = (K, V)>, duplicates: Duplicates) {
        let mut entries = entries.into_iter().fuse();
        let expected = self.worth_reserving(&entries);
        if expected > 0 {
            self.table.exclusive().reserve(expected);
        }
        let mut batch = Batch::new();
        // The iterator runs without the resizer's mutex, because it may take long.
        while batch.fill(&mut entries, |key| self.hash(key)) {
            self.put_unseen(&mut batch, duplicates);
        }
    }

    fn put_unseen(&mut self, batch: &mut Batch<K, V>, duplicates: Duplicates) {
        let mut table = self.table.exclusive();
        table.expect(batch.len);
        table.prefetch(batch.hashes());
        for node in batch.take() {
            // SAFETY: the table calls this with links of its own, which are in nodes of this type.
            let place = table.find(node.link().hash(), |link| unsafe { Node::<K, V>::of(link) }.key == node.key);
            if place.is_occupied() && duplicates == Duplicates::Keep {
                continue;
            }
            // SAFETY: a node of this map's type that no box owns any more: freed a grace period
            // after it is unlinked, or with the table. The place has just been found.
            if let Some(old) = unsafe { table.put(&place, node.into_link()) } {
                // SAFETY: it came from `into_link` when it was inserted, and it was just unlinked.
                unsafe { Node::<K, V>::retire(old, &read()) };
            }
        }
    }
}

impl<K, V, S> HashMap<K, V, S> {
    /// Returns for how many entries to make room before these are inserted. None if they are fewer
    /// than the map has: many of them may be in the map already, and otherwise the map grows once.
    pub(crate) fn worth_reserving(&self, entries: &impl Iterator<Item = (K, V)>) -> usize {
        let expected = entries.size_hint().0;
        if expected > self.len() { expected } else { 0 }
    }
}
