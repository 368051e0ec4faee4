//! papaya: open addressing, lock-free, reclaimed by seize.

use std::sync::Arc;

use papaya::{HashMap, HashMapRef, LocalGuard};

use super::hashers::TableHasher;
use super::{Contents, Table, Update};

/// Looks up with a guard per lookup.
#[derive(Debug)]
pub struct Papaya<H: TableHasher>(Arc<HashMap<u64, u64, H>>);

/// Looks up with a guard that is kept over a batch, which its documentation recommends for several operations in a row.
#[derive(Debug)]
pub struct GuardKept<H: TableHasher>(Arc<HashMap<u64, u64, H>>);

impl<H: TableHasher> Papaya<H> {
    /// A table with `contents`.
    #[must_use]
    pub fn filled(contents: &Contents) -> Self {
        let table = Self(Arc::new(HashMap::with_capacity_and_hasher(contents.capacity(), H::default())));
        contents.fill(&table);
        table
    }

    /// The same table for readers that keep their guard.
    #[must_use]
    pub fn with_guard_kept(&self) -> GuardKept<H> {
        GuardKept(Arc::clone(&self.0))
    }
}

impl<H: TableHasher> Table for Papaya<H> {
    const NAME: &'static str = "papaya";
    type Session<'t> = &'t HashMap<u64, u64, H>;

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }

    #[inline(always)]
    fn get<'t>(map: &Self::Session<'t>, key: u64) -> Option<u64>
    where
        Self: 't,
    {
        map.pin().get(&key).copied()
    }
}

impl<H: TableHasher> Update for Papaya<H> {
    #[inline]
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.pin().insert(key, value).is_none()
    }

    #[inline]
    fn remove(&self, key: u64) -> bool {
        self.0.pin().remove(&key).is_some()
    }
}

impl<H: TableHasher> Table for GuardKept<H> {
    const NAME: &'static str = "papaya, guard kept";
    type Session<'t> = HashMapRef<'t, u64, u64, H, LocalGuard<'t>>;

    fn session(&self) -> Self::Session<'_> {
        self.0.pin()
    }

    #[inline(always)]
    fn get<'t>(pinned: &Self::Session<'t>, key: u64) -> Option<u64>
    where
        Self: 't,
    {
        pinned.get(&key).copied()
    }
}
