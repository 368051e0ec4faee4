//! Statistics of the memory in use, and of making room.

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
        }
    }
}

impl AddAssign for SweepStats {
    fn add_assign(&mut self, other: SweepStats) {
        if other.evictions > 0 {
            self.evicted_time = other.evicted_time;
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
