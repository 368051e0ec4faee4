//! dashmap: hashbrown tables behind reader-writer locks, as many as four times the CPUs.

use dashmap::DashMap;

use super::hashers::TableHasher;
use super::{Contents, Table, Update};

/// Looks up under the lock of the key's shard.
#[derive(Debug)]
pub struct Dashmap<H: TableHasher>(DashMap<u64, u64, H>);

impl<H: TableHasher> Dashmap<H> {
    /// A table with `contents`.
    #[must_use]
    pub fn filled(contents: &Contents) -> Self {
        let table = Self(DashMap::with_capacity_and_hasher(contents.capacity(), H::default()));
        contents.fill(&table);
        table
    }
}

impl<H: TableHasher> Table for Dashmap<H> {
    const NAME: &'static str = "dashmap";
    type Session<'t> = &'t DashMap<u64, u64, H>;

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }

    #[inline(always)]
    fn get<'t>(map: &Self::Session<'t>, key: u64) -> Option<u64>
    where
        Self: 't,
    {
        map.get(&key).map(|entry| *entry)
    }
}

impl<H: TableHasher> Update for Dashmap<H> {
    #[inline]
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.insert(key, value).is_none()
    }

    #[inline]
    fn remove(&self, key: u64) -> bool {
        self.0.remove(&key).is_some()
    }
}
