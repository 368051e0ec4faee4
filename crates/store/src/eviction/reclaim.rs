//! The steps that make room when there is none.

use crate::memory::allocator::ItemAllocator;
use crate::memory::pool::{BlockPool, Victim};
use relativist_rcu::GracePeriod;
use std::mem;
use std::sync::MutexGuard;

/// The memory of the table.
pub(crate) struct TableMemory {
    pub(crate) bytes: usize,
    /// The bytes of the table, and of its next array if it grows soon.
    pub(crate) charge: usize,
    pub(crate) is_resizing: bool,
}

/// What was done to make room for one item. Attempts share it, so that a store that fails evicts no
/// more than one that succeeds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Effort {
    /// The number of steps tried.
    turns: usize,
    /// The number of blocks swept.
    swept: usize,
}

/// The state of making room for one item.
pub(crate) struct Reclaim {
    /// Bytes of the block that is needed.
    need: usize,
    effort: Effort,
    /// Whether the last sweep freed nothing.
    last_sweep_freed_nothing: bool,
    has_closed_all: bool,
    empty_searches: usize,
}

/// The next step when there is no room.
pub(crate) enum ReclaimStep {
    /// Try again: there is room, or was a moment ago.
    Attempt,
    /// Sweep this block.
    Sweep(Victim),
    /// Wait for readers: when they have left, enough memory is free. Memory from another sweep
    /// would be free later.
    Wait(GracePeriod),
    /// Wait for other threads: they have checked out all blocks that could be swept, or resize the
    /// table.
    Retry,
    /// There is no room, and none can be made.
    OutOfMemory,
}

impl Reclaim {
    /// How often a search may find nothing to sweep, although no other thread has checked out a
    /// block.
    const MAX_EMPTY_SEARCHES: usize = 4;

    /// How often a search without eviction looks for slightly fragmented blocks, at a number of
    /// blocks each time.
    const LOOKS: usize = 16;

    /// Blocks that are swept selectively, so that visited items move. Beyond these, all items of a
    /// block go. An item may evict as much as it needs, and some blocks more, so the cost of a
    /// store is in proportion to its size.
    const MAX_SELECTIVE_SWEEPS: usize = 32;

    fn max_sweeps(&self, capacity: usize) -> usize {
        Reclaim::MAX_SELECTIVE_SWEEPS + self.need / capacity
    }

    /// What was done so far.
    pub(crate) fn effort(&self) -> Effort {
        self.effort
    }

    /// Records that the victim was swept, and whether its memory waits for readers now.
    pub(crate) fn note_swept(&mut self, is_released: bool) {
        self.effort.swept += 1;
        self.last_sweep_freed_nothing = !is_released;
    }
}

impl ItemAllocator {
    /// Begins to make room for an item of `size` bytes, after this effort of earlier attempts.
    pub(crate) fn begin_reclaim(&self, size: usize, effort: Effort) -> Reclaim {
        Reclaim {
            need: self.block_for(size),
            effort,
            last_sweep_freed_nothing: false,
            has_closed_all: false,
            empty_searches: 0,
        }
    }

    /// Returns what to do next to make room. Without `evicts`, only freed memory is used again.
    pub(crate) fn next_reclaim_step(&self, reclaim: &mut Reclaim, evicts: bool, table: &TableMemory) -> ReclaimStep {
        let &TableMemory { bytes: table, charge: resized, is_resizing } = table;
        let need = reclaim.need;
        self.harvest();
        let mut pool = self.pool();
        pool.set_table(resized);
        // Pinned and kept memory is not available. With eviction, room for a larger table does not
        // count: a table from which much is evicted shrinks.
        let fixed = self.pinned().bytes() + pool.kept() + if evicts { table } else { resized };
        if need + fixed > pool.limit() {
            return ReclaimStep::OutOfMemory;
        }
        let room = pool.room(false);
        reclaim.effort.turns += 1;
        let max_sweeps = reclaim.max_sweeps(self.capacity);
        // If there is no room after many turns, other threads take the memory that is freed. Let
        // the caller try.
        if need <= room || reclaim.effort.turns > 4 * max_sweeps {
            let in_the_way = if need <= room { pool.in_the_way(need) } else { Vec::new() };
            drop(pool);
            if !in_the_way.is_empty() {
                self.give_back(in_the_way);
            }
            return ReclaimStep::Attempt;
        }
        if let Some(step) = self.step_without_sweep(&mut pool, reclaim, evicts) {
            return step;
        }
        let is_urgent = reclaim.effort.swept > max_sweeps;
        if let Some(victim) = pool.victim(evicts, is_urgent) {
            return ReclaimStep::Sweep(victim);
        }
        if !mem::replace(&mut reclaim.has_closed_all, true) {
            drop(pool);
            // Perhaps all remaining blocks are open.
            self.close_all(|_| true);
            pool = self.pool();
            if let Some(victim) = pool.victim(evicts, is_urgent) {
                return ReclaimStep::Sweep(victim);
            }
        }
        if let Some(grace) = pool.next_grace() {
            return ReclaimStep::Wait(grace);
        }
        self.last_reclaim_step(pool, reclaim, evicts, is_resizing)
    }

    /// Waits for readers if that makes enough room, or if the last sweep freed nothing. Gives up if
    /// a sweep would find no room.
    fn step_without_sweep(&self, pool: &mut BlockPool, reclaim: &mut Reclaim, evicts: bool) -> Option<ReclaimStep> {
        let need = reclaim.need;
        let is_patient = need <= pool.room(false) + pool.waiting_bytes() || reclaim.last_sweep_freed_nothing;
        if is_patient && let Some(grace) = pool.next_grace() {
            reclaim.last_sweep_freed_nothing = false;
            return Some(ReclaimStep::Wait(grace));
        }
        if evicts {
            return None;
        }
        if pool.is_refused(need, self.linked()) {
            return Some(ReclaimStep::OutOfMemory);
        }
        reclaim.last_sweep_freed_nothing.then(|| {
            pool.refuse(need, self.linked());
            ReclaimStep::OutOfMemory
        })
    }

    /// Returns what to do when no block is left to evict or to compact, and none waits for readers.
    fn last_reclaim_step<'a>(
        &'a self,
        mut pool: MutexGuard<'a, BlockPool>,
        reclaim: &mut Reclaim,
        evicts: bool,
        is_resizing: bool,
    ) -> ReclaimStep {
        let need = reclaim.need;
        // The remaining free memory is scattered. One store does not search all of a large cache
        // for it; several stores do.
        let mut looks = if evicts { 0 } else { Reclaim::LOOKS };
        while looks > 0 {
            if let Some(victim) = pool.next_slightly_fragmented() {
                return ReclaimStep::Sweep(victim);
            }
            looks = if pool.has_seen_all() { 0 } else { looks - 1 };
            drop(pool);
            pool = self.pool();
        }
        // Or the memory is in blocks that other threads have opened since.
        reclaim.has_closed_all = false;
        reclaim.empty_searches += 1;
        if pool.is_contended(evicts) || is_resizing || (evicts && reclaim.empty_searches < Reclaim::MAX_EMPTY_SEARCHES)
        {
            return ReclaimStep::Retry;
        }
        if evicts || pool.has_seen_all() {
            pool.refuse(need, self.linked());
        }
        ReclaimStep::OutOfMemory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::block::Block;
    use crate::memory::request::AllocContext;

    /// Memory for a resize in progress becomes free, so stores wait for it. Memory for a resize
    /// that has not begun does not.
    #[test]
    fn no_store_waits_for_a_resize_that_has_not_begun() {
        let allocator = ItemAllocator::new(1 << 20).unwrap();
        while let Ok(place) = allocator.allocate(50_000, AllocContext::NoLock, || 0) {
            // SAFETY: the pending item keeps the block.
            unsafe { Block::of(place) }.finish_pending();
        }
        let next_reclaim_step = |is_resizing| {
            let table = TableMemory { bytes: 1 << 10, charge: 2 << 10, is_resizing };
            allocator.next_reclaim_step(&mut allocator.begin_reclaim(50_000, Effort::default()), false, &table)
        };
        assert!(matches!(next_reclaim_step(true), ReclaimStep::Retry));
        assert!(matches!(next_reclaim_step(false), ReclaimStep::OutOfMemory));
    }
}
