//! Sorted chains (USENIX ATC 2011, section 4.3): an adapter for this project's own table,
//! [`relativist::HashMap`].
//!
//! The bucket is taken from the high bits of the hash and chains are sorted by it, so that a resize
//! only joins or cuts neighbouring chains, with one wait for readers, whatever the factor;
//! [`relativist::design`] explains why.
//!
//! *Progress*: lookups are wait-free; updates wait for updates of their bucket and the resizer's
//! work on it; resizers wait for readers.
//!
//! *A lookup costs* a read section, the loads for array and head, and one per entry with a hash
//! that is not larger. Most misses end at the head.

use crossbeam_utils::CachePadded;
use relativist::{HashMap, Resizing};

use crate::resizer::Resizer;
use crate::{Costs, Resize, Table, TableHasher};

/// The library's table, resized by hand.
#[derive(Debug)]
pub struct Sorted<H> {
    map: HashMap<u64, u64, H>,
    resizer: CachePadded<Resizer>,
}

impl<H: TableHasher> Table for Sorted<H> {
    const NAME: &'static str = "relativist";

    fn with_buckets(buckets: usize) -> Self {
        let builder = HashMap::<u64, u64>::builder().resizing(Resizing::Manual).hasher(H::default());
        let map = builder.build().expect("no memory");
        let bytes = bytes(map.buckets());
        let table = Self { map, resizer: Resizer::with_bytes(bytes).into() };
        table.resize_to(buckets);
        table
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<u64> {
        self.map.pin().get(&key).copied()
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        self.map.pin().try_insert(key, value).is_ok()
    }

    fn remove(&self, key: u64) -> Option<u64> {
        self.map.pin().remove(&key).copied()
    }
}

impl<H: TableHasher> Resize for Sorted<H> {
    fn resize_to(&self, buckets: usize) {
        let _resizing = self.resizer.lock();
        let before = self.buckets();
        if buckets != before {
            self.resizer.add_bytes(bytes(buckets));
            self.map.resize_to(buckets).expect("no memory");
            // Guarantee T5 of the library: growing waits once, whatever the factor, and shrinking
            // does not. (`stats` would report this, but it walks all chains.)
            if buckets > before {
                self.resizer.count_wait();
            }
            self.resizer.subtract_bytes(bytes(before));
        }
    }

    fn buckets(&self) -> usize {
        self.map.buckets()
    }

    fn costs(&self) -> Costs {
        self.resizer.costs()
    }
}

/// Returns the size of this number of heads, a word each.
fn bytes(buckets: usize) -> usize {
    buckets * size_of::<u64>()
}
