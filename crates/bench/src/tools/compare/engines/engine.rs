//! The caches that are compared, each behind the same interface.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use relativist_store::policy::EvictFor;
use relativist_store::sizing::FACTORS;
use relativist_store::{Cache, Clock, Content, Lookup, Mode, Store};

/// A cache of byte strings in memory, for several threads.
pub trait Engine: Send + Sync {
    /// Looks up `key`. Appends its value to `value` and returns true if it is there.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> bool;

    /// Stores an item, in place of one with the same key. Returns whether there was room.
    fn set(&self, key: &[u8], value: &[u8]) -> bool;

    /// Returns how many of these `lookups` would have missed if the memory were a quarter, half,
    /// once, twice and four times as large, by the estimates of the cache, if it makes any. Call it
    /// at least once in a thousand requests. In reality, `misses` of them have missed.
    fn estimated_misses(&self, _lookups: u64, _misses: u64) -> Option<[f64; FACTORS.len()]> {
        None
    }
}

/// The number and the sizes of the items that a cache is made for. relativist-store does not need
/// to know them.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The most bytes that the cache may use, for everything.
    pub limit: u64,
    /// The mean of the bytes of key and value.
    pub mean_item: u64,
    /// The largest bytes of key and value.
    pub largest_item: u64,
}

/// The cache of relativistd.
pub struct Ours(Cache);

impl Ours {
    pub fn new(plan: Plan) -> Result<Self> {
        let clock = Arc::new(Clock::new(1_700_000_000));
        let [limit, largest] = [plan.limit, plan.largest_item].map(|bytes| bytes as usize);
        let cache = Cache::new(clock, limit, largest);
        cache.map(Self).map_err(|_| anyhow!("{limit} bytes are too few for the cache"))
    }

    /// Makes a cache that avoids misses of bytes instead of requests.
    pub fn for_bytes(plan: Plan) -> Result<Self> {
        let ours = Self::new(plan)?;
        ours.0.set_evict_for(EvictFor::Bytes);
        Ok(ours)
    }

    pub fn without_eviction(self) -> Self {
        Self(self.0.without_eviction())
    }

    /// Estimates how it would do with other limits.
    pub fn with_sizing(self) -> Self {
        Self(self.0.with_sizing(1))
    }
}

impl Engine for Ours {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> bool {
        self.0.get(key, |hit| value.extend_from_slice(hit.value)) == Lookup::Hit
    }

    fn set(&self, key: &[u8], value: &[u8]) -> bool {
        let content = Content { flags: 0, exptime: 0, value };
        self.0.store(Mode::Set, key, content) == Store::Stored
    }

    fn estimated_misses(&self, lookups: u64, misses: u64) -> Option<[f64; FACTORS.len()]> {
        self.0.advance_sizing(lookups, misses);
        self.0.sizing().map(|report| report.memory.map(|estimate| estimate.misses))
    }
}

#[cfg(feature = "segcache")]
pub use of_pelikan::Segcache;
#[cfg(feature = "segcache")]
pub use segcache::Policy as SegcachePolicy;

#[cfg(feature = "segcache")]
mod of_pelikan {
    use anyhow::{Context, Result};
    use segcache::{Policy, Value};

    use super::{Engine, Plan};

    /// Segcache (Yang, Yue and Rashmi, NSDI 2021), in Pelikan's implementation.
    ///
    /// The limit covers its heap, the headers of its segments, and its table, whose size is a power
    /// of two and never changes.
    pub struct Segcache(segcache::Segcache);

    /// Bytes of a slot of the table, of which each item takes one.
    const SLOT: u64 = 8;
    /// The smallest table has 2^7 slots.
    const MIN_POWER: u32 = 7;
    /// Bytes of the header of a segment, which is not in the heap.
    const SEGMENT_HEADER: u64 = 64;
    /// Segments have 1 MiB by default, but there should be enough of them to choose from.
    const SEGMENT: u64 = 1 << 20;
    const MIN_SEGMENTS: u64 = 64;

    impl Segcache {
        /// Merges segments as in the paper.
        pub const MERGE: Policy = Policy::Merge { max: 8, merge: 4, compact: 2 };
        /// S3-FIFO of segments.
        pub const S3_FIFO: Policy = Policy::S3Fifo { admission_ratio: 0.1 };

        /// Makes a cache whose table has room for the expected items.
        pub fn new(plan: Plan, policy: Policy) -> Result<Self> {
            Self::with_power(plan, policy, Self::power(plan))
        }

        /// Returns the binary logarithm of the number of slots: the smallest that is at most
        /// nine tenths full with the expected items.
        pub fn power(plan: Plan) -> u32 {
            let items = plan.limit / (stored(plan.mean_item) + SLOT);
            (items * 10 / 9).max(1).next_power_of_two().ilog2().max(MIN_POWER)
        }

        pub fn with_power(plan: Plan, policy: Policy, power: u32) -> Result<Self> {
            let heap = plan.limit.checked_sub(SLOT << power).filter(|&bytes| bytes > 0);
            let heap = heap.with_context(|| format!("{} bytes are too few for the table", plan.limit))?;
            let wanted = (heap / MIN_SEGMENTS).min(SEGMENT).max(stored(plan.largest_item)) / 8 * 8;
            let segments = heap / (wanted + SEGMENT_HEADER);
            let builder = segcache::Segcache::builder()
                .hash_power(power as u8)
                .segment_size(i32::try_from(wanted)?)
                .heap_size((segments * wanted) as usize)
                .eviction(policy);
            Ok(Self(builder.build()?))
        }
    }

    /// Returns the bytes of an item in a segment: with a header of 6 bytes, and aligned.
    fn stored(item: u64) -> u64 {
        (item + 6) / 8 * 8 + 8
    }

    impl Engine for Segcache {
        fn get(&self, key: &[u8], value: &mut Vec<u8>) -> bool {
            match self.0.get(key) {
                Some(item) => {
                    if let Value::Bytes(bytes) = item.value() {
                        value.extend_from_slice(bytes);
                    }
                    true
                }
                None => false,
            }
        }

        fn set(&self, key: &[u8], value: &[u8]) -> bool {
            self.0.insert(key, value, None, std::time::Duration::ZERO).is_ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { limit: 4 << 20, mean_item: 110, largest_item: 1000 };

    fn all() -> Vec<Box<dyn Engine>> {
        vec![
            Box::new(Ours::new(PLAN).unwrap()),
            #[cfg(feature = "segcache")]
            Box::new(Segcache::new(PLAN, Segcache::MERGE).unwrap()),
            #[cfg(feature = "segcache")]
            Box::new(Segcache::new(PLAN, Segcache::S3_FIFO).unwrap()),
        ]
    }

    /// Every cache accepts more than fits, and then has most of what fits.
    #[test]
    fn a_full_cache_evicts() {
        for engine in all() {
            let mut value = Vec::new();
            assert!(!engine.get(b"key", &mut value) && value.is_empty());
            assert!(engine.set(b"key", b"first") && engine.set(b"key", b"second"));
            assert!(engine.get(b"key", &mut value) && value == b"second");
            for index in 0..100_000_u32 {
                engine.set(&index.to_be_bytes(), &[0; 106]);
            }
            let held = (0..100_000_u32).filter(|index| engine.get(&index.to_be_bytes(), &mut Vec::new())).count();
            assert!((15_000..40_000).contains(&held), "{held} items");
        }
    }
}
