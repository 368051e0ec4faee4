//! hashbrown without any synchronisation: the floor. Nobody may write while it is read, so it takes part in lookups only.

use hashbrown::HashMap;

use super::hashers::TableHasher;
use super::{Contents, Table};

/// Looks up in a table that no one changes.
#[derive(Debug)]
pub struct Hashbrown<H>(HashMap<u64, u64, H>);

impl<H: TableHasher> Hashbrown<H> {
    /// A table with `contents`.
    #[must_use]
    pub fn filled(contents: &Contents) -> Self {
        let mut map = HashMap::with_capacity_and_hasher(contents.capacity(), H::default());
        // Not `extend`, which would reserve: every table is filled entry by entry.
        for (key, value) in contents.pairs() {
            map.insert(key, value);
        }
        Self(map)
    }
}

impl<H: TableHasher> Table for Hashbrown<H> {
    const NAME: &'static str = "hashbrown, unsynchronised";
    type Session<'t> = &'t HashMap<u64, u64, H>;

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }

    #[inline(always)]
    fn get<'t>(map: &Self::Session<'t>, key: u64) -> Option<u64>
    where
        Self: 't,
    {
        map.get(&key).copied()
    }
}
