//! The measured loops, compiled once for each table, behind two object-safe traits. There is one
//! virtual call per batch, so its cost is negligible.
//!
//! Every result is checked: loops return the number of wrong ones.

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

use crate::harness::keys::{ABSENT, Indices, scramble};
use crate::harness::latency::Latencies;
use crate::harness::sampling::{Draws, Operation};
use crate::tables::entries::Key;
use crate::tables::{Lookup, Table};

/// The number of operations between two checks of the phase.
pub const BATCH: u64 = 1024;

/// A candidate in workloads of lookups only.
///
/// All adapters implement this. An adapter that looks up many keys in one call implements the trait
/// itself, and is returned from [`Table::lookups`] of its table.
pub trait Lookups: Send + Sync {
    fn name(&self) -> &'static str;

    /// Looks up a batch of keys that are present.
    fn hits(&self, indices: &mut Indices) -> u64;

    /// Looks up a batch of keys that are absent.
    fn misses(&self, indices: &mut Indices) -> u64;
}

impl<T: Lookup> Lookups for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    #[inline(never)]
    fn hits(&self, indices: &mut Indices) -> u64 {
        let mut session = self.session();
        count_batch(indices, |index| T::Key::with(index, |key| T::get(&mut session, key)) != Some(index))
    }

    #[inline(never)]
    fn misses(&self, indices: &mut Indices) -> u64 {
        let mut session = self.session();
        count_batch(indices, |index| T::Key::with(index, |key| T::get(&mut session, key)).is_some())
    }
}

/// A candidate that draws keys and looks nothing up, to measure the loop itself.
#[derive(Debug)]
pub struct HarnessAlone;

impl Lookups for HarnessAlone {
    fn name(&self) -> &'static str {
        "harness alone"
    }

    #[inline(never)]
    fn hits(&self, indices: &mut Indices) -> u64 {
        count_batch(indices, |index| black_box(scramble(index)) == ABSENT)
    }

    #[inline(never)]
    fn misses(&self, indices: &mut Indices) -> u64 {
        self.hits(indices)
    }
}

/// Draws a batch of indices. Returns the number of those for which `is_wrong` is true.
#[inline(always)]
fn count_batch(indices: &mut Indices, mut is_wrong: impl FnMut(u64) -> bool) -> u64 {
    let mut stream = *indices;
    let mut wrong = 0;
    for _ in 0..BATCH {
        wrong += u64::from(is_wrong(stream.draw()));
    }
    *indices = stream;
    wrong
}

pub trait Candidate: Lookups {
    fn lookups(self: Arc<Self>) -> Vec<Arc<dyn Lookups>>;

    /// Inserts entries that are absent.
    fn fill(&self, indices: &mut dyn Iterator<Item = u64>) -> u64;

    /// Looks up a batch of keys that are present, each of which depends on the value found before.
    fn dependent(&self, indices: &mut Indices) -> u64;

    /// Inserts entries that are absent, and records the latency of each insertion.
    fn fill_timed(&self, indices: Range<u64>, latencies: &mut Latencies) -> u64;

    /// Removes entries that are present, one by one.
    fn remove(&self, indices: Range<u64>) -> u64;

    fn clear(&self);

    /// Iterates over all entries. Returns their number, and the sum of their indices.
    fn iterate(&self) -> (u64, u64);

    /// Does a batch of operations on keys that all threads share. Insertions change nothing if the
    /// key is present.
    fn batch(&self, draws: &mut Draws<'_>) -> u64;

    /// Like `batch`, but insertions replace the value if the key is present.
    fn batch_replacing(&self, draws: &mut Draws<'_>) -> u64;

    /// See [`Table::settle`].
    fn settle(&self);

    /// See [`Table::resize`].
    fn resize(&self) -> bool;
}

impl<T: Table> Candidate for T {
    fn lookups(self: Arc<Self>) -> Vec<Arc<dyn Lookups>> {
        Table::lookups(self)
    }

    #[inline(never)]
    fn fill(&self, indices: &mut dyn Iterator<Item = u64>) -> u64 {
        let mut session = self.session();
        indices.map(|index| u64::from(!try_insert::<T>(&mut session, index))).sum()
    }

    #[inline(never)]
    fn dependent(&self, indices: &mut Indices) -> u64 {
        let mut session = self.session();
        // What the last value differs by from the right one: zero, which only the lookup can tell.
        let mut error = 0;
        count_batch(indices, |index| {
            let found = T::Key::with(index ^ error, |key| T::get(&mut session, key));
            error = found.map_or(1, |value| value ^ index);
            error != 0
        })
    }

    #[inline(never)]
    fn fill_timed(&self, indices: Range<u64>, latencies: &mut Latencies) -> u64 {
        let mut session = self.session();
        let mut wrong = 0;
        for index in indices {
            latencies.time(|| wrong += u64::from(!try_insert::<T>(&mut session, index)));
        }
        wrong
    }

    #[inline(never)]
    fn remove(&self, indices: Range<u64>) -> u64 {
        let mut session = self.session();
        indices.map(|index| u64::from(!T::Key::with(index, |key| T::remove(&mut session, key)))).sum()
    }

    fn clear(&self) {
        T::clear(&mut self.session());
    }

    #[inline(never)]
    fn iterate(&self) -> (u64, u64) {
        let (mut count, mut sum) = (0, 0u64);
        T::for_each(&mut self.session(), |value| {
            count += 1;
            sum = sum.wrapping_add(value);
        });
        (count, sum)
    }

    #[inline(never)]
    fn batch(&self, draws: &mut Draws<'_>) -> u64 {
        batch(self, draws, T::try_insert)
    }

    #[inline(never)]
    fn batch_replacing(&self, draws: &mut Draws<'_>) -> u64 {
        batch(self, draws, T::insert)
    }

    fn settle(&self) {
        Table::settle(self);
    }

    fn resize(&self) -> bool {
        Table::resize(self)
    }
}

#[inline(always)]
fn try_insert<'t, T: Table + 't>(session: &mut T::Session<'t>, index: u64) -> bool {
    T::try_insert(session, T::Key::of(index), index)
}

#[inline(always)]
fn batch<'t, T: Table>(
    table: &'t T,
    draws: &mut Draws<'_>,
    insert: impl Fn(&mut T::Session<'t>, T::Key, u64) -> bool,
) -> u64 {
    let mut session = table.session();
    let mut stream = *draws;
    let mut wrong = 0;
    for _ in 0..BATCH {
        match stream.draw() {
            (Operation::Get, index) => {
                let found = T::Key::with(index, |key| T::get(&mut session, key));
                wrong += u64::from(found.is_some_and(|value| value != index));
            }
            (Operation::Insert, index) => {
                black_box(insert(&mut session, T::Key::of(index), index));
            }
            (Operation::Remove, index) => {
                black_box(T::Key::with(index, |key| T::remove(&mut session, key)));
            }
        }
    }
    *draws = stream;
    wrong
}
