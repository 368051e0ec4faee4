//! Making room: sweeping blocks, for eviction and for what has expired.
//!
//! **Races.** Who sweeps a block has it alone, and nothing new is put there. Each of its items is dealt with under the lock of its
//! bucket, and found there by its address, not by its key. So it is either still the one in the table, and is removed or replaced by
//! its copy in one step; or somebody has removed or replaced it, and it is dead. No address can be met twice: the block's memory is
//! used again only when it was swept to its end and a grace period has passed. A command on the same key comes before or after, as
//! the lock has it: before, and its outcome is what moves on, or goes; after, and it finds the copy, which has the same number,
//! or nothing, as if the item had been evicted a moment before. What a command may change in place (the expiry) is changed under the
//! lock, and read under it for the copy. A lookup that still reads the old item tells what was true when it began. A visit marked on
//! the old item after it was copied is lost: a hint.
//!
//! Nobody holds a lock or is in a read section when he sweeps or waits.

use super::Lookup;
use super::block::Block;
use super::heap::{Heap, Purpose, Remedy, Victim};
use super::item::{Draft, ItemRef};
use super::policy;
use super::relativistic::Relativistic;
use relativist::raw::Entry;
use std::sync::atomic::Ordering;

/// Blocks in which something expires every second are swept for it every so many seconds.
const EXPIRY_INTERVAL: u32 = 5;

/// After so many blocks were swept for one item, large ones are no longer spared.
const MERCY: usize = 32;

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

impl Relativistic {
    /// Makes room for an item of `bytes`, or finds that there can't be any. Blocks: evicts a block or some, and waits for readers where
    /// enough memory waits for them. Others may take the room before the caller does.
    pub(super) fn make_room(&self, bytes: usize) -> bool {
        // A limit, so that a system without memory does not keep us here, nor blocks of which nothing may go.
        for turn in 0..if self.evicts { 10_000 } else { 100 } {
            match self.heap.shortage(bytes, self.evicts, self.table_charge()) {
                None => return false,
                Some(Remedy::None) => return true,
                // Large items that were visited stay where they are, and free nothing. There may be thousands of them.
                Some(Remedy::Sweep(victim)) => self.sweep(victim, turn < MERCY),
                Some(Remedy::Wait(grace)) => grace.wait(),
            }
        }
        false
    }

    /// Evicts a block if few are free, so that nobody has to wait for readers.
    pub(super) fn evict_ahead(&self) {
        if let Some(victim) = self.heap.victim_ahead(self.evicts) {
            self.sweep(victim, true);
        }
    }

    /// Sweeps a block. Without mercy large items that were visited go, too, if the block is to be evicted.
    fn sweep(&self, victim: Victim, has_mercy: bool) {
        let Victim { block, purpose } = victim;
        let now = self.begin();
        if purpose == Purpose::Expire {
            block.forget_expiry();
        }
        let mut stays = false;
        // SAFETY: a victim is closed and without drafts, and ours until it is released or put back.
        for item in unsafe { block.items() } {
            stays |= self.sweep_item(item, purpose, has_mercy, now) == Fate::Stays;
        }
        match purpose {
            _ if !stays => self.heap.release(block),
            Purpose::Expire => {
                block.put_off_expiry(now + EXPIRY_INTERVAL);
                self.heap.put_back(block, false);
            }
            _ => self.heap.put_back(block, true),
        }
    }

    fn sweep_item(&self, item: ItemRef<'_>, purpose: Purpose, has_mercy: bool, now: u32) -> Fate {
        if item.is_gone() {
            return Fate::Gone;
        }
        let is_alive = self.state(item, now) == Lookup::Hit;
        let (visits, was_visited) = item.heat();
        let future = match purpose {
            _ if !is_alive => None,
            Purpose::Evict if !has_mercy && self.heap.is_large(item.footprint()) => None,
            Purpose::Evict => policy::verdict(visits, was_visited),
            Purpose::Compact | Purpose::Expire => Some(visits + u8::from(was_visited && visits < policy::MOST_VISITS)),
        };
        if purpose == Purpose::Expire && is_alive {
            item.note_expiry();
            return Fate::Stays;
        }
        // Alone in its block, it moves on with that.
        if let Some(visits) = future
            && self.heap.is_large(item.footprint())
        {
            item.cool(visits);
            return Fate::Stays;
        }
        let copy =
            future.and_then(|visits| Some((Draft::copy(item, &self.heap, || self.table_charge()).ok()?, visits)));
        if copy.is_none() && is_alive && !self.evicts {
            return Fate::Stays;
        }
        let guard = relativist_rcu::read();
        let Entry::Occupied(entry) = self.table.entry(item.hash(), |link| link == item.link(), &guard) else {
            return Fate::Gone;
        };
        let fate = match copy {
            Some((copy, visits)) => {
                copy.take_over(item, visits);
                copy.link(item.number(), |link| {
                    // SAFETY: a fresh link with the entry's hash; it stays allocated until it was removed and a grace period passed,
                    // see `Heap::release`.
                    unsafe { entry.replace(link) };
                });
                Fate::Moved
            }
            None => {
                entry.remove();
                Fate::Gone
            }
        };
        if fate == Fate::Gone && is_alive {
            // Relaxed: a statistic.
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: unlinked just now, within the section of `guard`.
        unsafe { item.bury(&self.heap) };
        fate
    }

    /// Frees what has expired or was flushed, and blocks in which nothing is left alive.
    pub(super) fn sweep_expired(&self, now: u32) {
        let line = self.flush.line();
        // Relaxed: one thread maintains the engine; two would look twice.
        let is_flushed = self.swept_line.swap(line, Ordering::Relaxed) != line;
        let is_due = |block: Block| is_flushed || block.has_expired(now);
        self.heap.close_all(is_due);
        for queue in 0..Heap::QUEUES {
            let mut next = Some(0);
            while let Some(from) = next {
                let (victim, after) = self.heap.next_expired(queue, from, is_due);
                next = after;
                victim.into_iter().for_each(|victim| self.sweep(victim, true));
            }
        }
        while let Some(victim) = self.heap.next_dead() {
            self.sweep(victim, true);
        }
    }
}
