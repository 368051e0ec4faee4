//! What to do next when there is no room.

use crate::memory::allocator::{ItemAllocator, TableMemory};
use crate::memory::pool::Victim;
use relativist_rcu::GracePeriod;
use std::mem;

/// What somebody does to make room for an item, from its beginning to its end.
pub(crate) struct Reclaim {
    /// Bytes of the block that is needed.
    need: usize,
    /// Remedies tried, and blocks swept.
    turns: usize,
    swept: usize,
    /// The last block that was swept is as full as before.
    last_sweep_freed_nothing: bool,
    has_closed_all: bool,
    empty_searches: usize,
}

/// What can be done about a lack of room.
pub(crate) enum ReclaimStep {
    /// To try again: there is room, or was a moment ago.
    Attempt,
    /// To sweep this block.
    Sweep(Victim),
    /// To wait for readers: enough memory waits for them, and more of it would wait longer.
    Wait(GracePeriod),
    /// To wait for other threads: they have in hand all that could be swept, or resize the table.
    Retry,
    /// Nothing.
    OutOfMemory,
}

impl Reclaim {
    /// How often there may be nothing to sweep, and nobody in sight who has it.
    const MAX_EMPTY_SEARCHES: usize = 4;

    /// How often a search without eviction looks for blocks of which some is dead, at a number of them each time.
    const LOOKS: usize = 16;

    /// Blocks that are swept with mercy. An item has as much taken from others as it needs, and some blocks more: then it is enough that
    /// what was wanted moves on, and all goes that is in the way. So what a store costs is in proportion to its size.
    const MAX_SELECTIVE_SWEEPS: usize = 32;

    fn most(&self, capacity: usize) -> usize {
        Reclaim::MAX_SELECTIVE_SWEEPS + self.need / capacity
    }

    /// The victim was swept; says whether its memory waits for readers now.
    pub(crate) fn note_swept(&mut self, is_released: bool) {
        self.swept += 1;
        self.last_sweep_freed_nothing = !is_released;
    }
}

impl ItemAllocator {
    /// Begins to make room for an item of `size` bytes.
    pub(crate) fn begin_reclaim(&self, size: usize) -> Reclaim {
        Reclaim {
            need: self.block_for(size),
            turns: 0,
            swept: 0,
            last_sweep_freed_nothing: false,
            has_closed_all: false,
            empty_searches: 0,
        }
    }

    /// What to do next to make room. Without `evicts` only what is dead is taken back.
    pub(crate) fn next_reclaim_step(&self, reclaim: &mut Reclaim, evicts: bool, table: &TableMemory) -> ReclaimStep {
        let &TableMemory { bytes: table, charge: resized, is_resizing } = table;
        let need = reclaim.need;
        self.harvest();
        let mut pool = self.pool();
        pool.set_table(resized);
        // Neither can what is lent be had, nor what is kept; a table from which much is evicted shrinks.
        let fixed = self.pinned().bytes() + pool.kept() + if evicts { table } else { resized };
        if need + fixed > pool.limit() {
            return ReclaimStep::OutOfMemory;
        }
        let room = pool.room(false);
        reclaim.turns += 1;
        let most = reclaim.most(self.capacity);
        // When there is still no room after many turns, others take what we free. May the caller have more luck.
        if need <= room || reclaim.turns > 4 * most {
            let in_the_way = if need <= room { pool.in_the_way(need) } else { Vec::new() };
            drop(pool);
            if !in_the_way.is_empty() {
                self.give_back(in_the_way);
            }
            return ReclaimStep::Attempt;
        }
        let is_patient = need <= room + pool.waiting_bytes() || reclaim.last_sweep_freed_nothing;
        if is_patient && let Some(grace) = pool.next_grace() {
            reclaim.last_sweep_freed_nothing = false;
            return ReclaimStep::Wait(grace);
        }
        if !evicts && pool.is_refused(need, self.linked()) {
            return ReclaimStep::OutOfMemory;
        }
        if !evicts && reclaim.last_sweep_freed_nothing {
            pool.refuse(need, self.linked());
            return ReclaimStep::OutOfMemory;
        }
        let is_urgent = reclaim.swept > most;
        if let Some(victim) = pool.victim(evicts, is_urgent) {
            return ReclaimStep::Sweep(victim);
        }
        if !mem::replace(&mut reclaim.has_closed_all, true) {
            drop(pool);
            // All that is left is open, perhaps.
            self.close_all(|_| true);
            pool = self.pool();
            if let Some(victim) = pool.victim(evicts, is_urgent) {
                return ReclaimStep::Sweep(victim);
            }
        }
        if let Some(grace) = pool.next_grace() {
            return ReclaimStep::Wait(grace);
        }
        // What is left is little here and there. A large heap is not searched as a whole by one store, but by some.
        let mut looks = if evicts { 0 } else { Reclaim::LOOKS };
        while looks > 0 {
            if let Some(victim) = pool.next_slightly_fragmented() {
                return ReclaimStep::Sweep(victim);
            }
            looks = if pool.has_seen_all() { 0 } else { looks - 1 };
            drop(pool);
            pool = self.pool();
        }
        // Or all of it is in blocks that others have opened since.
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
    use crate::memory::allocator::AllocContext;
    use crate::memory::block::Block;

    /// What a resize has taken comes back when it is over; what one would take, which nobody has begun, does not.
    #[test]
    fn nobody_waits_for_what_is_not_going_on() {
        let allocator = ItemAllocator::new(1 << 20);
        while let Ok(place) = allocator.allocate(50_000, AllocContext::NoLock, || 0) {
            // SAFETY: the draft keeps the block.
            unsafe { Block::of(place) }.finish_pending();
        }
        let next_reclaim_step = |is_resizing| {
            let table = TableMemory { bytes: 1 << 10, charge: 2 << 10, is_resizing };
            allocator.next_reclaim_step(&mut allocator.begin_reclaim(50_000), false, &table)
        };
        assert!(matches!(next_reclaim_step(true), ReclaimStep::Retry));
        assert!(matches!(next_reclaim_step(false), ReclaimStep::OutOfMemory));
    }
}
