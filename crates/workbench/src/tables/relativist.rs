//! The relativistic hash table of this project.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use relativist::{HashMap, Pinned, Resizing};

use super::hashers::TableHasher;
use super::{Contents, Observation, Resize, Table, Update};

/// Looks up with a guard per lookup.
#[derive(Debug)]
pub struct Relativist<H>(Arc<HashMap<u64, u64, H>>);

/// Looks up with a guard that is kept over a batch.
#[derive(Debug)]
pub struct GuardKept<H>(Arc<HashMap<u64, u64, H>>);

impl<H: TableHasher> Relativist<H> {
    /// A table that resizes itself, with `contents`, at rest.
    #[must_use]
    pub fn filled(contents: &Contents) -> Self {
        let table = Self(Arc::new(HashMap::with_capacity_and_hasher(contents.capacity(), H::default())));
        contents.fill(&table);
        table.settle();
        table
    }

    /// An empty table that is resized by hand only.
    ///
    /// # Errors
    /// When its first bucket array can't be allocated.
    pub fn manual() -> anyhow::Result<Self> {
        let map = HashMap::<u64, u64>::builder().resizing(Resizing::Manual).hasher(H::default()).build()?;
        Ok(Self(Arc::new(map)))
    }

    /// The same table for readers that keep their guard.
    #[must_use]
    pub fn with_guard_kept(&self) -> GuardKept<H> {
        GuardKept(Arc::clone(&self.0))
    }

    /// Waits until the background worker has given the table the size it wants it to have: no resize is under way, and none
    /// has come about since the last look. Gives up after a minute.
    fn settle(&self) {
        let mut before = 0;
        for _ in 0..1200 {
            let now = self.0.buckets();
            if now == before && !self.0.is_resizing() {
                break;
            }
            before = now;
            sleep(Duration::from_millis(50));
        }
        relativist_rcu::barrier();
    }
}

impl<H: TableHasher> Table for Relativist<H> {
    const NAME: &'static str = "relativist";
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

impl<H: TableHasher> Update for Relativist<H> {
    #[inline]
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.pin().insert(key, value).is_none()
    }

    #[inline]
    fn remove(&self, key: u64) -> bool {
        self.0.pin().remove(&key).is_some()
    }
}

impl<H: TableHasher> Resize for Relativist<H> {
    fn resize_to(&self, buckets: usize) -> anyhow::Result<()> {
        Ok(self.0.resize_to(buckets)?)
    }

    fn observe(&self) -> Observation {
        let stats = self.0.stats();
        Observation { buckets: stats.buckets, grace_periods: stats.grace_periods }
    }
}

impl<H: TableHasher> Table for GuardKept<H> {
    const NAME: &'static str = "relativist, guard kept";
    type Session<'t> = Pinned<'t, u64, u64, H>;

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
