//! The tables that are measured, behind two small traits.
//!
//! The loops over these traits ([`crate::lookup`], [`crate::update`], [`crate::resize`]) are generic and compiled once for
//! each table. The adapters' `get` is always inlined into them: what remains of calls is the table's own.

pub mod dashmap;
pub mod hashbrown;
pub mod hashers;
pub mod papaya;
pub mod relativist;
pub mod scc;

use std::ops::Range;

use crate::keys::scramble;

/// A table from 64-bit keys to 64-bit values that many threads read.
pub trait Table: Send + Sync {
    /// How reports call it.
    const NAME: &'static str;

    /// What a reader holds from one lookup to the next: a reference to the table where each lookup has a guard of its own,
    /// a guard where it is kept.
    type Session<'t>
    where
        Self: 't;

    /// Begins a session: a batch of lookups by one thread.
    fn session(&self) -> Self::Session<'_>;

    /// Looks `key` up, with all that a caller outside of any loop would have to do for it.
    fn get<'t>(session: &Self::Session<'t>, key: u64) -> Option<u64>
    where
        Self: 't;
}

/// A table that many threads update.
pub trait Update: Table {
    /// Inserts a key that is absent; false when it was present.
    fn insert(&self, key: u64, value: u64) -> bool;

    /// Removes a key; false when it was absent.
    fn remove(&self, key: u64) -> bool;
}

/// A table whose number of buckets can be set while others read it.
pub trait Resize: Table {
    /// Resizes to `buckets` buckets, and returns when that is done.
    ///
    /// # Errors
    /// When the new bucket array can't be allocated.
    fn resize_to(&self, buckets: usize) -> anyhow::Result<()>;

    /// Buckets now, and grace periods waited for so far.
    fn observe(&self) -> Observation;
}

/// What [`Resize::observe`] sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Buckets now.
    pub buckets: usize,
    /// Grace periods that resizes have waited for since the table was made.
    pub grace_periods: u64,
}

/// What a table is to hold before it is measured, and how it gets there.
#[derive(Clone, Debug)]
pub struct Contents {
    /// Indices of the keys; the value of a key is its index.
    pub indices: Vec<Range<u64>>,
    /// Whether the table is told the number of entries beforehand, or has to grow.
    pub reserve: bool,
}

impl Contents {
    /// The capacity to construct the table with.
    #[must_use]
    pub fn capacity(&self) -> usize {
        if self.reserve { self.indices.iter().map(|range| (range.end - range.start) as usize).sum() } else { 0 }
    }

    /// Keys and values, in the order in which every table receives them.
    pub fn pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.indices.iter().cloned().flatten().map(|index| (scramble(index), index))
    }

    /// Inserts them all.
    ///
    /// # Panics
    /// When the table says that a key was there before.
    pub fn fill(&self, table: &impl Update) {
        for (key, value) in self.pairs() {
            assert!(table.insert(key, value), "a table refused a key that it did not hold");
        }
    }
}
