//! What to do next when there is no room.

use crate::memory::allocator::{Heap, TableMemory};
use crate::memory::pool::Victim;
use relativist_rcu::GracePeriod;
use std::mem;

/// What somebody does to make room for an item, from its beginning to its end.
pub(crate) struct Search {
    /// Bytes of the block that is needed.
    need: usize,
    /// Remedies tried, and blocks swept.
    turns: usize,
    swept: usize,
    /// The last block that was swept is as full as before.
    is_stuck: bool,
    has_closed_all: bool,
    surprises: usize,
}

/// What can be done about a lack of room.
pub(crate) enum Remedy {
    /// To try again: there is room, or was a moment ago.
    Attempt,
    /// To sweep this block.
    Sweep(Victim),
    /// To wait for readers: enough memory waits for them, and more of it would wait longer.
    Wait(GracePeriod),
    /// To wait for other threads: they have in hand all that could be swept, or resize the table.
    Retry,
    /// Nothing.
    Hopeless,
}

impl Search {
    /// How often there may be nothing to sweep, and nobody in sight who has it.
    const MOST_SURPRISES: usize = 4;

    /// How often a search without eviction looks for blocks of which some is dead, at a number of them each time.
    const LOOKS: usize = 16;

    /// Blocks that are swept with mercy. An item has as much taken from others as it needs, and some blocks more: then it is enough that
    /// what was wanted moves on, and all goes that is in the way. So what a store costs is in proportion to its size.
    const MERCY: usize = 32;

    fn most(&self, capacity: usize) -> usize {
        Search::MERCY + self.need / capacity
    }

    /// The victim was swept; says whether its memory waits for readers now.
    pub(crate) fn note_swept(&mut self, is_released: bool) {
        self.swept += 1;
        self.is_stuck = !is_released;
    }
}

impl Heap {
    /// Begins to make room for an item of `size` bytes.
    pub(crate) fn search(&self, size: usize) -> Search {
        Search { need: self.block_for(size), turns: 0, swept: 0, is_stuck: false, has_closed_all: false, surprises: 0 }
    }

    /// What to do next to make room. Without `evicts` only what is dead is taken back.
    pub(crate) fn remedy(&self, search: &mut Search, evicts: bool, table: &TableMemory) -> Remedy {
        let &TableMemory { bytes: table, charge: resized, is_resizing } = table;
        let need = search.need;
        self.harvest();
        let mut central = self.central();
        central.set_table(resized);
        // Neither can what is lent be had, nor what is kept; a table from which much is evicted shrinks.
        let fixed = self.loans().bytes() + central.kept() + if evicts { table } else { resized };
        if need + fixed > central.limit() {
            return Remedy::Hopeless;
        }
        let room = central.room(false);
        search.turns += 1;
        let most = search.most(self.capacity);
        // When there is still no room after many turns, others take what we free. May the caller have more luck.
        if need <= room || search.turns > 4 * most {
            let in_the_way = if need <= room { central.in_the_way(need) } else { Vec::new() };
            drop(central);
            if !in_the_way.is_empty() {
                self.give_back(in_the_way);
            }
            return Remedy::Attempt;
        }
        let is_patient = need <= room + central.waiting_bytes() || search.is_stuck;
        if is_patient && let Some(grace) = central.next_grace() {
            search.is_stuck = false;
            return Remedy::Wait(grace);
        }
        if !evicts && central.is_refused(need, self.linked()) {
            return Remedy::Hopeless;
        }
        if !evicts && search.is_stuck {
            central.refuse(need, self.linked());
            return Remedy::Hopeless;
        }
        let is_urgent = search.swept > most;
        if let Some(victim) = central.victim(evicts, is_urgent) {
            return Remedy::Sweep(victim);
        }
        if !mem::replace(&mut search.has_closed_all, true) {
            drop(central);
            // All that is left is open, perhaps.
            self.close_all(|_| true);
            central = self.central();
            if let Some(victim) = central.victim(evicts, is_urgent) {
                return Remedy::Sweep(victim);
            }
        }
        if let Some(grace) = central.next_grace() {
            return Remedy::Wait(grace);
        }
        // What is left is little here and there. A large heap is not searched as a whole by one store, but by some.
        let mut looks = if evicts { 0 } else { Search::LOOKS };
        while looks > 0 {
            if let Some(victim) = central.next_thin() {
                return Remedy::Sweep(victim);
            }
            looks = if central.has_seen_all() { 0 } else { looks - 1 };
            drop(central);
            central = self.central();
        }
        // Or all of it is in blocks that others have opened since.
        search.has_closed_all = false;
        search.surprises += 1;
        if central.is_contended(evicts) || is_resizing || (evicts && search.surprises < Search::MOST_SURPRISES) {
            return Remedy::Retry;
        }
        if evicts || central.has_seen_all() {
            central.refuse(need, self.linked());
        }
        Remedy::Hopeless
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::allocator::Asks;
    use crate::memory::block::Block;

    /// What a resize has taken comes back when it is over; what one would take, which nobody has begun, does not.
    #[test]
    fn nobody_waits_for_what_is_not_going_on() {
        let heap = Heap::new(1 << 20);
        while let Ok(place) = heap.allocate(50_000, Asks::Unlocked, || 0) {
            // SAFETY: the draft keeps the block.
            unsafe { Block::of(place) }.finish_draft();
        }
        let remedy = |is_resizing| {
            let table = TableMemory { bytes: 1 << 10, charge: 2 << 10, is_resizing };
            heap.remedy(&mut heap.search(50_000), false, &table)
        };
        assert!(matches!(remedy(true), Remedy::Retry));
        assert!(matches!(remedy(false), Remedy::Hopeless));
    }
}
