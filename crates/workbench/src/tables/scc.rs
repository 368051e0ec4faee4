//! scc's `HashIndex`: buckets of 32 entries, lock-free reads, reclaimed by sdd.

use std::sync::Arc;

use scc::{Guard, HashIndex};

use super::hashers::TableHasher;
use super::{Contents, Table, Update};

/// Looks up with a guard per lookup, inside `peek_with`.
#[derive(Debug)]
pub struct Scc<H: TableHasher>(Arc<HashIndex<u64, u64, H>>);

/// Looks up with a guard that is kept over a batch, by `peek`.
#[derive(Debug)]
pub struct GuardKept<H: TableHasher>(Arc<HashIndex<u64, u64, H>>);

impl<H: TableHasher> Scc<H> {
    /// A table with `contents`.
    #[must_use]
    pub fn filled(contents: &Contents) -> Self {
        let table = Self(Arc::new(HashIndex::with_capacity_and_hasher(contents.capacity(), H::default())));
        contents.fill(&table);
        table
    }

    /// The same table for readers that keep their guard.
    #[must_use]
    pub fn with_guard_kept(&self) -> GuardKept<H> {
        GuardKept(Arc::clone(&self.0))
    }
}

impl<H: TableHasher> Table for Scc<H> {
    const NAME: &'static str = "scc::HashIndex";
    type Session<'t> = &'t HashIndex<u64, u64, H>;

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }

    #[inline(always)]
    fn get<'t>(index: &Self::Session<'t>, key: u64) -> Option<u64>
    where
        Self: 't,
    {
        index.peek_with(&key, |_, value| *value)
    }
}

impl<H: TableHasher> Update for Scc<H> {
    #[inline]
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.insert_sync(key, value).is_ok()
    }

    #[inline]
    fn remove(&self, key: u64) -> bool {
        self.0.remove_sync(&key)
    }
}

impl<H: TableHasher> Table for GuardKept<H> {
    const NAME: &'static str = "scc::HashIndex, guard kept";
    type Session<'t> = (&'t HashIndex<u64, u64, H>, Guard);

    fn session(&self) -> Self::Session<'_> {
        (&self.0, Guard::new())
    }

    #[inline(always)]
    fn get<'t>((index, guard): &Self::Session<'t>, key: u64) -> Option<u64>
    where
        Self: 't,
    {
        index.peek(&key, guard).copied()
    }
}
