//! Statistics of the memory in use, and of making room.

use std::array;
use std::ops::AddAssign;

/// The position of a cache in the order of its stores.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sequence {
    /// The line of the last flush: items with numbers up to it are flushed.
    pub flushed: u64,
    /// The second of a pending flush.
    pub pending_flush: Option<u32>,
}

/// The memory in use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Usage {
    /// Items in the table, including expired ones that no command has found yet.
    pub items: usize,
    /// Bytes of these items.
    pub item_bytes: usize,
    /// Buckets of the table.
    pub buckets: usize,
    /// Bytes of the bucket array.
    pub table_bytes: usize,
    /// Whether the table is being resized.
    pub is_resizing: bool,
    /// Bytes mapped for items: in the table, removed and not freed yet, or free for new ones.
    pub mapped_bytes: usize,
    /// Of these, bytes of pinned blocks: large values that connections send or receive in place.
    pub pinned_bytes: usize,
    /// The limit on table and memory for items together.
    pub limit: usize,
    /// The sweeps since the start.
    pub sweeps: SweepStats,
}

/// Where the memory of a cache goes, in bytes.
/// [`Cache::sample_memory`](crate::Cache::sample_memory) gathers this.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MemoryUse {
    /// Keys of items in the table.
    pub keys: usize,
    /// Values of these items.
    pub values: usize,
    /// All other parts of these items: the table's link, the header, options such as client flags.
    pub item_headers: usize,
    /// Bytes between items, for their alignment.
    pub alignment: usize,
    /// The buckets of the table. While it is resized, those of the old and of the new array.
    pub table: usize,
    /// Headers of blocks that have items.
    pub block_headers: usize,
    /// Removed items in blocks that have others, and items that are being written.
    pub freed: usize,
    /// Room after the last item of a block: for new items if the block is open, otherwise unused.
    pub unused: usize,
    /// Free blocks.
    pub free: usize,
    /// Blocks without items that readers may still read.
    pub waiting: usize,
    /// Blocks that a thread sweeps or fills, and blocks that only connections use: they receive a
    /// large value, or send one that was removed.
    pub in_transit: usize,
}

impl MemoryUse {
    /// The number of parts.
    pub const PARTS: usize = 11;

    /// All parts, with their names.
    pub fn parts(&self) -> [(&'static str, usize); MemoryUse::PARTS] {
        [
            ("keys", self.keys),
            ("values", self.values),
            ("item_headers", self.item_headers),
            ("alignment", self.alignment),
            ("table", self.table),
            ("block_headers", self.block_headers),
            ("freed", self.freed),
            ("unused", self.unused),
            ("free", self.free),
            ("waiting", self.waiting),
            ("in_transit", self.in_transit),
        ]
    }

    /// The sum of all parts: the memory mapped for items and table.
    pub fn total(&self) -> usize {
        self.parts().iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Counts of what sweeps have done with items. (The outcome of a lookup says whether it found an
/// expired or flushed item.)
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SweepStats {
    /// Blocks swept.
    pub blocks: u64,
    /// Items that were evicted.
    pub evictions: u64,
    /// Evicted items that were never fetched.
    pub evicted_unfetched: u64,
    /// Evicted items that were visited since the last sweep.
    pub evicted_active: u64,
    /// Evicted items with an expiry time.
    pub evicted_nonzero: u64,
    /// Seconds between the last access and the eviction of one of the last evicted items, as
    /// [`Hit::idle`](crate::Hit::idle).
    pub evicted_time: u32,
    /// Expired or flushed items that were freed because a store needed room, or that a store
    /// replaced.
    pub reclaimed: u64,
    /// Expired or flushed items that the background has freed.
    pub crawler_reclaimed: u64,
    /// Items in `reclaimed` and `crawler_reclaimed` that had expired and were never fetched.
    pub expired_unfetched: u64,
    /// Items that the background has examined.
    pub crawled: u64,
    /// Background passes that examined items.
    pub passes: u64,
    /// Seconds from the last access to evicted items, or their store, to the eviction, as
    /// [`Hit::idle`](crate::Hit::idle).
    pub evicted_idle: Ages,
    /// Seconds from the store of evicted items to the eviction, up to a sixteenth too few. For the
    /// store counts when the item's block was opened, which may be long before it if the cache
    /// stores little. If the cache took an item over from another one, that counts as its store.
    pub evicted_lifetime: Ages,
}

/// A histogram of ages in seconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ages {
    counts: [u64; Ages::BOUNDS.len() + 1],
    sum: u64,
}

impl Ages {
    /// The upper bounds of the buckets: from a minute to a month. Higher ages have a bucket, too.
    pub const BOUNDS: [u32; 10] =
        [60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600, 30 * 24 * 3600];

    pub(crate) fn note(&mut self, age: u32) {
        self.counts[Ages::BOUNDS.partition_point(|bound| *bound < age)] += 1;
        self.sum += u64::from(age);
    }

    /// The number of ages.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all ages.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// For each of the [`BOUNDS`](Self::BOUNDS), the number of ages up to it.
    pub fn cumulative(&self) -> impl Iterator<Item = (u32, u64)> {
        let sums = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        Ages::BOUNDS.into_iter().zip(sums.collect::<Vec<u64>>())
    }

    /// The least of the [`BOUNDS`](Self::BOUNDS) that this `part` of the ages do not exceed. None
    /// if there is no such bound, or no age.
    pub fn quantile(&self, part: f64) -> Option<u32> {
        let count = self.count() as f64;
        let reaches = |(bound, below): (u32, u64)| (below as f64 >= part * count).then_some(bound);
        if count > 0.0 { self.cumulative().find_map(reaches) } else { None }
    }

    fn since(&self, earlier: &Ages) -> Ages {
        let counts = array::from_fn(|index| self.counts[index].saturating_sub(earlier.counts[index]));
        Ages { counts, sum: self.sum.saturating_sub(earlier.sum) }
    }
}

impl AddAssign for Ages {
    fn add_assign(&mut self, other: Ages) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
    }
}

impl SweepStats {
    /// The difference to `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &SweepStats) -> SweepStats {
        let evictions = self.evictions.saturating_sub(earlier.evictions);
        SweepStats {
            blocks: self.blocks.saturating_sub(earlier.blocks),
            evictions,
            evicted_unfetched: self.evicted_unfetched.saturating_sub(earlier.evicted_unfetched),
            evicted_active: self.evicted_active.saturating_sub(earlier.evicted_active),
            evicted_nonzero: self.evicted_nonzero.saturating_sub(earlier.evicted_nonzero),
            evicted_time: if evictions > 0 { self.evicted_time } else { 0 },
            reclaimed: self.reclaimed.saturating_sub(earlier.reclaimed),
            crawler_reclaimed: self.crawler_reclaimed.saturating_sub(earlier.crawler_reclaimed),
            expired_unfetched: self.expired_unfetched.saturating_sub(earlier.expired_unfetched),
            crawled: self.crawled.saturating_sub(earlier.crawled),
            passes: self.passes.saturating_sub(earlier.passes),
            evicted_idle: self.evicted_idle.since(&earlier.evicted_idle),
            evicted_lifetime: self.evicted_lifetime.since(&earlier.evicted_lifetime),
        }
    }
}

impl AddAssign for SweepStats {
    fn add_assign(&mut self, other: SweepStats) {
        if other.evictions > 0 {
            self.evicted_time = other.evicted_time;
            self.evicted_idle += other.evicted_idle;
            self.evicted_lifetime += other.evicted_lifetime;
        }
        self.blocks += other.blocks;
        self.evictions += other.evictions;
        self.evicted_unfetched += other.evicted_unfetched;
        self.evicted_active += other.evicted_active;
        self.evicted_nonzero += other.evicted_nonzero;
        self.reclaimed += other.reclaimed;
        self.crawler_reclaimed += other.crawler_reclaimed;
        self.expired_unfetched += other.expired_unfetched;
        self.crawled += other.crawled;
        self.passes += other.passes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_counted_by_bounds() {
        let mut ages = Ages::default();
        assert_eq!(ages.quantile(0.5), None);
        [0, 60, 61, 300, 301, u32::MAX].into_iter().for_each(|age| ages.note(age));
        let below: Vec<u64> = ages.cumulative().map(|(_, count)| count).collect();
        assert_eq!(below, [2, 4, 5, 5, 5, 5, 5, 5, 5, 5]);
        assert_eq!((ages.count(), ages.sum()), (6, 722 + u64::from(u32::MAX)));
        assert_eq!(
            [0.1, 0.5, 0.6, 0.8, 0.9].map(|part| ages.quantile(part)),
            [Some(60), Some(300), Some(300), Some(900), None]
        );
        let earlier = ages;
        ages.note(70);
        let newer = ages.since(&earlier);
        assert_eq!((newer.count(), newer.sum(), newer.quantile(0.5)), (1, 70, Some(300)));
    }
}
