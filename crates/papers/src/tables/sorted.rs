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

use relativist::HashMap;

/// Defines a type that implements [`Table`](super::Table) and [`Resize`](super::Resize) with one of
/// this project's maps, which is resized by hand. `$waits(before, after)` is the number of times
/// that a resize waits for readers.
macro_rules! resized_by_hand {
    ($(#[doc = $doc:literal])* $table:ident, $map:ident, $name:literal, $bucket_bytes:expr, $waits:expr) => {
        $(#[doc = $doc])*
        #[derive(Debug)]
        pub struct $table<H: crate::tables::TableHasher> {
            map: $map<u64, u64, H>,
            resizer: crossbeam_utils::CachePadded<crate::tables::resizer::Resizer>,
        }

        impl<H: crate::tables::TableHasher> crate::tables::Table for $table<H> {
            const NAME: &'static str = $name;

            fn with_buckets(buckets: usize) -> Self {
                let builder = $map::<u64, u64>::builder().resizing(relativist::Resizing::Manual);
                let map = builder.hasher(H::default()).build().expect("no memory");
                let bytes = map.buckets() * $bucket_bytes;
                let table = Self { map, resizer: crate::tables::resizer::Resizer::with_bytes(bytes).into() };
                crate::tables::Resize::resize_to(&table, buckets);
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

        impl<H: crate::tables::TableHasher> crate::tables::Resize for $table<H> {
            fn resize_to(&self, buckets: usize) {
                let _resizing = self.resizer.lock();
                let before = self.map.buckets();
                if buckets != before {
                    self.resizer.add_bytes(buckets * $bucket_bytes);
                    self.map.resize_to(buckets).expect("no memory");
                    // The libraries' `stats` would report this, but it walks all buckets.
                    for _ in 0..$waits(before, buckets) {
                        self.resizer.count_wait();
                    }
                    self.resizer.subtract_bytes(before * $bucket_bytes);
                }
            }

            fn buckets(&self) -> usize {
                self.map.buckets()
            }

            fn costs(&self) -> crate::tables::Costs {
                self.resizer.costs()
            }
        }
    };
}
pub(crate) use resized_by_hand;

resized_by_hand! {
    /// The library's table, resized by hand.
    // Guarantee T5 of the library: growing waits once, whatever the factor, and shrinking does not.
    Sorted, HashMap, "relativist", size_of::<u64>(),
    |before: usize, after: usize| u8::from(after > before)
}
