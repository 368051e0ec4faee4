//! Making room: sweeping blocks, for eviction and for what has expired.
//!
//! **Races.** Who sweeps a block has it alone, and nothing new is put there. Each of its items is dealt with under the lock of its
//! bucket, and found there by its address, not by its key. So it is either still the one in the table, and is removed or replaced by
//! its copy in one step; or somebody has removed or replaced it, and it is dead. No address can be met twice: the block's memory is
//! used again only when who swept it is done and a grace period has passed. A command on the same key comes before or after, as
//! the lock has it: before, and its outcome is what moves on, or goes; after, and it finds the copy, which has the same number,
//! or nothing, as if the item had been evicted a moment before. What a command may change in place (the expiry) is changed under the
//! lock, and read under it for the copy. What lookups note without the lock, they note before the copy takes it over, or they see that it has
//! been taken over, and look again (see [`super::status`]). A lookup that still reads the old item tells what was true when it began.
//! A visit marked on the old item after its heat was read is lost: a hint.
//!
//! Nobody holds a lock or is in a read section when he sweeps or waits.

use super::block::Block;
use super::central::{Central, Purpose, Victim};
use super::expiry::Expiry;
use super::heap::Remedy;
use super::item::{Draft, ItemRef};
use super::policy;
use super::relativistic::Relativistic;
use super::{Lookup, Marks, Sweeps};
use relativist::raw::Entry;

/// Blocks in which something expires every second are swept for it every so many seconds.
const EXPIRY_INTERVAL: u32 = 5;

/// What became of an item whose block was swept.
#[derive(Eq, PartialEq)]
enum Fate {
    /// It is dead.
    Gone,
    /// It has a copy elsewhere.
    Moved,
    /// It is still there.
    Stays,
}

/// The sweep of one block.
struct Sweep<'e> {
    engine: &'e Relativistic,
    purpose: Purpose,
    now: u32,
    is_watched: bool,
    counts: Sweeps,
}

impl Relativistic {
    /// Makes room for an item of `bytes`, or finds that there can't be any. Blocks: evicts a block or some, and waits for readers where
    /// enough memory waits for them. The work is in proportion to `bytes`. Others may take the room before the caller does.
    pub(super) fn make_room(&self, bytes: usize) -> bool {
        let mut search = self.heap.search(bytes);
        loop {
            match self.heap.remedy(&mut search, self.evicts, &self.table_memory()) {
                Remedy::Attempt => return true,
                Remedy::Hopeless => return false,
                Remedy::Sweep(victim) => search.note_swept(self.sweep(victim)),
                Remedy::Wait(grace) => grace.wait(),
                Remedy::Retry => self.heap.wait_for_others(),
            }
        }
    }

    /// Evicts a block if few are free, so that nobody has to wait for readers.
    pub(super) fn evict_ahead(&self) {
        if let Some(victim) = self.heap.victim_ahead(self.evicts) {
            self.sweep(victim);
        }
    }

    /// Sweeps a block; says whether it is empty now.
    fn sweep(&self, victim: Victim) -> bool {
        let Victim { block, purpose } = victim;
        let now = self.begin();
        let is_watched = self.witness.as_ref().is_some_and(|witness| witness.is_watching());
        let counts = Sweeps { blocks: 1, ..Sweeps::default() };
        let mut sweep = Sweep { engine: self, purpose, now, is_watched, counts };
        if purpose == Purpose::Expire {
            block.forget();
        }
        let mut stays = false;
        // SAFETY: a victim is closed and without drafts, and ours until it is released or put back.
        for item in unsafe { block.items() } {
            stays |= sweep.item(item) == Fate::Stays;
        }
        let counts = sweep.counts;
        match purpose {
            _ if !stays => self.heap.release(block, counts),
            Purpose::Expire => {
                block.put_off_expiry(now + EXPIRY_INTERVAL);
                self.heap.put_back(block, false, counts);
            }
            _ => self.heap.put_back(block, true, counts),
        }
        !stays
    }

    /// Frees what has expired or was flushed, and blocks in which nothing is left alive. What it misses because somebody else has it in hand,
    /// the next call finds: blocks know what they have.
    pub(super) fn sweep_expired(&self, now: u32) {
        let line = self.flush.line();
        let is_due = |block: Block| block.is_due(now, line);
        self.heap.close_all(is_due);
        for queue in 0..Central::QUEUES {
            let mut next = Some(0);
            while let Some(from) = next {
                let (victim, after) = self.heap.next_due(queue, from, is_due);
                next = after;
                victim.into_iter().for_each(|victim| _ = self.sweep(victim));
            }
        }
    }
}

impl Sweep<'_> {
    fn item(&mut self, item: ItemRef<'_>) -> Fate {
        let &mut Sweep { engine, purpose, now, .. } = self;
        let heap = &engine.heap;
        self.counts.crawled += u64::from(purpose == Purpose::Expire);
        if item.status().is_gone() {
            return Fate::Gone;
        }
        let state = engine.state(item, now);
        let is_alive = state == Lookup::Hit;
        if purpose == Purpose::Expire && is_alive {
            item.note_in_block();
            return Fate::Stays;
        }
        let (visits, was_visited) = item.status().load().heat();
        let future = match purpose {
            _ if !is_alive => None,
            Purpose::Purge => None,
            Purpose::Evict => policy::verdict(visits, was_visited),
            Purpose::Compact | Purpose::Expire => Some(visits + u8::from(was_visited && visits < policy::MOST_VISITS)),
        };
        // Alone in its block, it moves on with that.
        if let Some(visits) = future
            && heap.is_large(item.footprint())
        {
            item.status().cool(visits);
            return Fate::Stays;
        }
        let copy = future.and_then(|visits| Some((Draft::copy(item, heap, || engine.table_charge()).ok()?, visits)));
        if copy.is_none() && is_alive && !engine.evicts {
            return Fate::Stays;
        }
        let guard = relativist_rcu::read();
        let Entry::Occupied(entry) = engine.table.entry(item.hash(), |link| link == item.link(), &guard) else {
            return Fate::Gone;
        };
        let fate = match copy {
            Some((copy, visits)) => {
                copy.take_over(item, visits);
                copy.link(item.number(), &guard, |link| {
                    // SAFETY: a fresh link with the entry's hash; it stays allocated until it was removed and a grace period passed,
                    // see `Heap::release`.
                    unsafe { entry.replace(link) };
                });
                Fate::Moved
            }
            // Touched since: what counts is what the lock's holders have made of it.
            None if !is_alive && engine.state(item, now) == Lookup::Hit => {
                item.note_in_block();
                return Fate::Stays;
            }
            None => {
                entry.remove();
                Fate::Gone
            }
        };
        // SAFETY: unlinked just now, within the section of `guard`.
        unsafe { item.bury_swept(heap, &guard) };
        drop(guard);
        if fate == Fate::Gone {
            self.count(item, state);
        }
        fate
    }

    /// Counts an item that has gone because of this sweep, and tells who watches. Its block is still ours.
    fn count(&mut self, item: ItemRef<'_>, state: Lookup) {
        let Sweep { engine, purpose, now, counts, .. } = self;
        let hit = item.hit(*now);
        let is_unfetched = u64::from(!hit.marks.has(Marks::FETCHED));
        if state != Lookup::Hit {
            *if *purpose == Purpose::Expire { &mut counts.crawler_reclaimed } else { &mut counts.reclaimed } += 1;
            counts.expired_unfetched += if state == Lookup::Expired { is_unfetched } else { 0 };
            return;
        }
        counts.evictions += 1;
        counts.evicted_unfetched += is_unfetched;
        counts.evicted_active += u64::from(item.status().load().heat().1);
        counts.evicted_nonzero += u64::from(hit.expiry != Expiry::NEVER);
        counts.evicted_time = hit.idle;
        if self.is_watched
            && let Some(witness) = &engine.witness
        {
            witness.evicted(hit);
        }
    }
}
