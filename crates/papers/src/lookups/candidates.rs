//! The tables that can be measured while they are resized.

use crate::tables::ddds::Ddds;
use crate::tables::dual_chain::DualChain;
use crate::tables::fixed::Fixed;
#[cfg(target_os = "linux")]
use crate::tables::in_place::InPlace;
use crate::tables::mutex::Mutexed;
use crate::tables::rwlock::RwLocked;
use crate::tables::sorted::Sorted;
use crate::tables::split_ordered::SplitOrdered;
use crate::tables::tree::Tree;
use crate::tables::unzip::Unzip;
use crate::tables::{Costs, Resize, Table, TableHasher};
use clap::ValueEnum;
use serde::Serialize;

use relativist_bench::harness::hashers::{Foldhash, Fx, Identity};
use relativist_bench::harness::keys::Indices;
use relativist_bench::harness::options::{HashFunction, spell};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// relativist-table: sorted chains (ATC 2011, section 4.3)
    Relativist,
    /// RP: the algorithm of the paper, as printed (section 4)
    Unzip,
    /// RP, resized in place (section 4.2)
    #[cfg(target_os = "linux")]
    InPlace,
    /// Shalev and Shavit's split-ordered list, under RCU
    SplitOrdered,
    /// Xu's two sets of links (section 2)
    DualChain,
    /// Piggin's dynamic dynamic data structures (section 5)
    Ddds,
    /// Chains behind one reader-writer lock of parking_lot (section 5)
    Rwlock,
    /// Chains behind one mutex
    Mutex,
    /// RCU chains that can't be resized
    Fixed,
    /// std's B-tree behind a reader-writer lock
    Tree,
}

/// When the number of buckets of a table can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizing {
    AtAnyTime,
    /// Only when the table is made.
    WhenMade,
    Own,
}

impl Name {
    pub fn sizing(self) -> Sizing {
        match self {
            Self::Fixed => Sizing::WhenMade,
            Self::Tree => Sizing::Own,
            _ => Sizing::AtAnyTime,
        }
    }

    pub fn label(self) -> String {
        match self {
            Self::Unzip => "RP".into(),
            Self::InPlace => "RP, in place".into(),
            Self::Ddds => "DDDS".into(),
            name => spell(&name),
        }
    }

    pub fn make(self, buckets: usize, hasher: HashFunction) -> Box<dyn Subject> {
        match hasher {
            HashFunction::Foldhash => self.make_with::<Foldhash>(buckets),
            HashFunction::Fx => self.make_with::<Fx>(buckets),
            HashFunction::Identity => self.make_with::<Identity>(buckets),
        }
    }

    fn make_with<H: TableHasher>(self, buckets: usize) -> Box<dyn Subject> {
        match self {
            Self::Relativist => resizable::<Sorted<H>>(buckets),
            Self::Unzip => resizable::<Unzip<H>>(buckets),
            #[cfg(target_os = "linux")]
            Self::InPlace => resizable::<InPlace<H>>(buckets),
            Self::SplitOrdered => resizable::<SplitOrdered<H>>(buckets),
            Self::DualChain => resizable::<DualChain<H>>(buckets),
            Self::Ddds => resizable::<Ddds<H>>(buckets),
            Self::Rwlock => resizable::<RwLocked<H>>(buckets),
            Self::Mutex => resizable::<Mutexed<H>>(buckets),
            Self::Fixed => as_made::<Fixed<H>>(buckets),
            Self::Tree => as_made::<Tree>(buckets),
        }
    }
}

/// The number of lookups in a batch.
pub const BATCH: u64 = 256;

/// A table in which the value of each key is the key. The trait is object-safe. Its methods do
/// whole batches, so that the cost of the virtual call is negligible.
pub trait Subject: Send + Sync {
    /// Inserts a key. Returns false if it was present.
    fn insert(&self, key: u64) -> bool;

    /// Looks up a batch of keys. Returns the number of misses and wrong values.
    fn look_up(&self, keys: &mut Indices) -> u64;

    fn resize_to(&self, buckets: usize);

    /// Returns the costs of all resizes so far.
    fn costs(&self) -> Costs;
}

/// Looks up a batch of keys.
#[inline(always)]
pub fn count_missed(keys: &mut Indices, mut get: impl FnMut(u64) -> Option<u64>) -> u64 {
    let mut stream = *keys;
    let mut missed = 0;
    for _ in 0..BATCH {
        let key = stream.draw();
        missed += u64::from(get(key) != Some(key));
    }
    *keys = stream;
    missed
}

/// A table, and how it is resized.
struct Measured<T> {
    table: T,
    resize_to: fn(&T, usize),
    costs: fn(&T) -> Costs,
}

fn resizable<T: Resize>(buckets: usize) -> Box<dyn Subject> {
    Box::new(Measured { table: T::with_buckets(buckets), resize_to: T::resize_to, costs: T::costs })
}

/// Makes a table that keeps its size.
fn as_made<T: Table>(buckets: usize) -> Box<dyn Subject> {
    let resize_to = |_: &T, _| panic!("{} can't be resized", T::NAME);
    Box::new(Measured { table: T::with_buckets(buckets), resize_to, costs: |_| Costs::default() })
}

impl<T: Table> Subject for Measured<T> {
    fn insert(&self, key: u64) -> bool {
        self.table.insert(key, key)
    }

    #[inline(never)]
    fn look_up(&self, keys: &mut Indices) -> u64 {
        count_missed(keys, |key| self.table.get(key))
    }

    fn resize_to(&self, buckets: usize) {
        (self.resize_to)(&self.table, buckets);
    }

    fn costs(&self) -> Costs {
        (self.costs)(&self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every table finds the keys that were inserted, and no others, with every hash function.
    #[test]
    fn tables_find_their_keys() {
        for &name in Name::value_variants() {
            for hasher in [HashFunction::Foldhash, HashFunction::Fx, HashFunction::Identity] {
                let table = name.make(16, hasher);
                assert!((0..100).all(|key| table.insert(key)), "{name:?}");
                let missed = |range| table.look_up(&mut Indices::new(range, 1));
                assert_eq!(missed(0..100), 0, "{name:?}");
                assert!(missed(50..150) > 0, "{name:?}");
                if name.sizing() == Sizing::AtAnyTime {
                    table.resize_to(64);
                    assert_eq!(missed(0..100), 0, "{name:?}");
                }
            }
        }
    }
}
