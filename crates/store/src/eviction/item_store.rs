//! The items of a cache: the table that finds them, their memory, and the state that decides which
//! of them are alive.

use crate::clock::Clock;
use crate::eviction::flush::Flush;
use crate::eviction::observer::EvictionObserver;
use crate::eviction::reclaim::TableMemory;
use crate::eviction::store_times::StoreTimes;
use crate::expiry::Expiry;
use crate::item::hit::Lookup;
use crate::item::item_ref::{ItemRef, dispose};
use crate::item::status::Marks;
use crate::item::unlinked::UnlinkedItem;
use crate::memory::allocator::ItemAllocator;
use crate::memory::request::OutOfMemory;
use relativist_rcu::Guard;
use relativist_table::{CompactLink, Policy, Resizing, Table};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The number of buckets of an empty table: 8 KiB. A smaller table would save nothing that counts.
const MIN_BUCKETS: usize = 1 << 10;

/// Numbers up to this are never drawn: 0 means no CAS value in the protocols, and 1 is what test
/// programs use for a wrong one.
const NEVER_DRAWN: u64 = 1;

/// The range of entries per bucket. A table grows by a factor of four, from four entries per bucket
/// to one. So one to four items share the 8 bytes of a bucket, and a lookup that hits walks half a
/// step more than at the usual load factors.
const LOAD: RangeInclusive<f64> = 0.5..=4.0;

/// The factor by which the table grows at once, as in [`Policy`].
const GROWTH: usize = 4;

/// The items of a cache.
pub(crate) struct ItemStore {
    pub(crate) table: Table<CompactLink>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) allocator: ItemAllocator,
    /// Whether items may be evicted to make room.
    pub(crate) evicts: bool,
    pub(crate) flush: Flush,
    /// Notified of evictions.
    pub(crate) observer: Option<Arc<dyn EvictionObserver>>,
    pub(crate) store_times: StoreTimes,
}

impl ItemStore {
    /// An empty store, which keeps table and memory of items within `limit` bytes.
    pub(crate) fn new(clock: Arc<Clock>, limit: usize) -> Result<ItemStore, OutOfMemory> {
        let policy = Policy::from(Resizing::Automatic).load_factor(LOAD).expect("the bounds are far enough apart");
        let store = ItemStore {
            table: Table::with_compact_links(MIN_BUCKETS, policy, dispose)
                .map_err(|_| OutOfMemory { requested: MIN_BUCKETS * size_of::<usize>() })?,
            clock,
            allocator: ItemAllocator::new(limit)?,
            evicts: true,
            flush: Flush::new(),
            observer: None,
            store_times: StoreTimes::new(),
        };
        Ok(store.with_first_number(0))
    }

    /// The same store, whose numbers begin `first` higher.
    pub(crate) fn with_first_number(self, first: u64) -> ItemStore {
        // Relaxed: no other thread has the store.
        self.allocator.last_number.store(NEVER_DRAWN + first, Ordering::Relaxed);
        self
    }

    /// The same store, whose numbers are larger than `last`.
    pub(crate) fn with_numbers_after(self, last: u64) -> ItemStore {
        self.with_first_number(last.saturating_sub(NEVER_DRAWN))
    }

    /// The number drawn last.
    pub(crate) fn last_number(&self) -> u64 {
        // Relaxed: a caller that needs the very last one has stopped all threads that draw numbers.
        // Other callers need one that was the last one a moment ago.
        self.allocator.last_number.load(Ordering::Relaxed)
    }

    /// Begins a command: returns the current second, and executes a flush that is due.
    pub(crate) fn begin(&self) -> u32 {
        let now = self.clock.now();
        self.flush.catch_up(now, &self.allocator.last_number);
        now
    }

    /// `Hit` if the item exists for clients.
    #[inline(always)]
    pub(crate) fn state(&self, item: ItemRef<'_>, now: u32) -> Lookup {
        self.state_at(item, now, self.flush.line())
    }

    /// `Hit` if the item exists for clients after the flush that drew this `line`.
    #[inline(always)]
    pub(crate) fn state_at(&self, item: ItemRef<'_>, now: u32, line: u64) -> Lookup {
        self.state_with(item, item.expiry(), now, line)
    }

    /// Like [`state_at`](Self::state_at), with an `expiry` read before.
    #[inline(always)]
    pub(crate) fn state_with(&self, item: ItemRef<'_>, expiry: Expiry, now: u32, line: u64) -> Lookup {
        if expiry.has_passed(now) {
            Lookup::Expired
        } else if line > 0 && item.number() <= line {
            // Without a flush, the number is not computed, because that reads the block's header.
            Lookup::Flushed
        } else {
            Lookup::Hit
        }
    }

    /// Whether `item` may be linked by a change under a bucket's lock that began when `line` was
    /// that of the last flush. If its block was opened before that flush, the item would seem to
    /// have been stored before. If its block was opened after a later flush, it would outlive this
    /// flush, which the change has not regarded.
    #[inline]
    pub(crate) fn accepts(&self, item: &UnlinkedItem<'_>, line: u64) -> bool {
        // Without a flush, the number is not computed: see `state_at`.
        (line == 0 || item.item.number() > line) && self.flush.line() == line
    }

    /// Closes the open blocks whose new items would be flushed.
    #[cold]
    pub(crate) fn close_flushed(&self) {
        let line = self.flush.line();
        self.allocator.close_all(|block| block.base() <= line);
    }

    /// Counts an expired or flushed item, as `state` says, that a store replaces.
    #[cold]
    pub(crate) fn count_reclaimed(&self, item: ItemRef<'_>, state: Lookup, guard: &Guard) {
        let is_unfetched = !item.status().load().marks().has(Marks::FETCHED);
        self.allocator.count_reclaimed(state == Lookup::Expired && is_unfetched, guard);
    }

    /// Bytes of the table, and the bytes that it occupies during a resize, or will occupy if it
    /// grows soon: the old and the new array exist at the same time. (The arrays before the old one
    /// are not counted if the table grows again before they are freed.)
    pub(crate) fn table_memory(&self) -> TableMemory {
        let buckets = self.table.buckets();
        // The charge is read when a block is requested. It must cover all items that can be stored
        // before the next block is requested.
        let soon = self.table.len() + self.allocator.max_items_in_open_blocks();
        let policy = self.table.policy();
        // A late resize catches up in one step.
        let grown = policy.buckets_for(soon).max(GROWTH * buckets).min(policy.buckets_for(usize::MAX));
        let grows = grown > buckets && soon as f64 > 0.95 * buckets as f64 * LOAD.end();
        let bytes = |buckets| buckets * size_of::<usize>();
        TableMemory {
            bytes: bytes(buckets),
            charge: self.table.bucket_bytes().max(bytes(buckets) + if grows { bytes(grown) } else { 0 }),
            is_resizing: self.table.is_resizing(),
        }
    }

    pub(crate) fn table_charge(&self) -> usize {
        self.table_memory().charge
    }

    /// The charge when a sweep moves items. Without eviction only moves make room for a larger
    /// table, so its memory does not stand in their way.
    pub(crate) fn table_charge_for_moves(&self) -> usize {
        if self.evicts { self.table_charge() } else { self.table.bucket_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Cache, Content, Mode};
    use crate::memory::reader::Reader;
    use relativist_testing::wait_until;

    /// A reader delays the end of a growth. Meanwhile the table needs memory for both arrays, but
    /// not for another growth.
    #[test]
    fn a_table_that_has_grown_is_charged_for_its_two_arrays() {
        let cache = Cache::new(Arc::new(Clock::new(1000)), 8 << 20, 1 << 20).unwrap();
        let table = &cache.store.table;
        let reader = Reader::enter();
        let content = Content { flags: 0, exptime: 0, value: b"" };
        (0..4200).for_each(|index| _ = cache.store(Mode::Set, format!("{index}").as_bytes(), content));
        wait_until("the table to grow", || table.buckets() > MIN_BUCKETS);
        let (memory, is_resizing) = (cache.store.table_memory(), table.is_resizing());
        drop(reader);
        assert!(is_resizing);
        let old = MIN_BUCKETS * size_of::<usize>();
        let both = memory.bytes + old;
        assert!((both..both + old / 4).contains(&memory.charge), "{} and {}", memory.bytes, memory.charge);
    }
}
