//! Sweeps of blocks, for eviction and for expired items.
//!
//! **Races.** One thread sweeps a block, and no item is added to it. The sweep handles each item
//! under the lock of its bucket, and finds it there by address, not by key. So either the item is
//! still the one in the table, and is removed or replaced by its copy in one step; or another
//! thread has removed or replaced it, and it is freed. No address can be found twice: the block's
//! memory is reused only after the sweep and a grace period. The lock orders the sweep and commands
//! on the same key. A command before the sweep may change whether the item moves or goes. A command
//! after it finds the copy, which has the same number, or nothing, as if the item had been evicted
//! a moment before. Commands change the expiry in place under the lock, and the sweep reads it
//! there for the copy. Lookups update the status without the lock. Either they do so before the
//! copy takes it over, or they notice that it was taken over, and look the item up again (see
//! [`crate::item::status`]). A lookup that still reads the old item returns what was true when it
//! began. If a visit is marked on the old item after the sweep has read its visits, the mark is
//! lost. This does no harm, because visits are hints.
//!
//! No thread sweeps or waits while it holds a lock or is in a read section.
//!
//! **Expired items** are found by an index of blocks, sorted by the second in which it pays to
//! sweep them: when a share of the live bytes has expired, or some minutes after the first item has
//! (see `Schedule`). Each sweep of a block computes that second again. A command that changes it
//! between sweeps, such as a touch, notes that in the block's header, and the background examines
//! all headers once a minute. It sweeps each block at least twice a day, so that times of accesses
//! do not wrap (see [`crate::item::status`]).

use crate::eviction::item_store::ItemStore;
use crate::eviction::reclaim::{Effort, ReclaimStep};
use crate::eviction::schedule::Schedule;
use crate::expiry::Expiry;
use crate::item::hit::{Hit, Lookup};
use crate::item::item_ref::{ItemRef, items_of};
use crate::item::status::{Marks, VISIT_INTERVAL};
use crate::item::unlinked::UnlinkedItem;
use crate::memory::block::Block;
use crate::memory::pool::{Purpose, Swept, Victim};
use crate::policy;
use crate::usage::SweepStats;
use crate::work::{self, Work};
use relativist_table::Entry;

/// The fate of an item whose block was swept.
#[derive(Eq, PartialEq)]
enum Fate {
    /// The item is freed.
    Gone,
    /// A copy elsewhere has replaced the item.
    Moved,
    /// The item is still in the block.
    Stays,
}

/// The sweep of one block.
struct Sweep<'e> {
    store: &'e ItemStore,
    purpose: Purpose,
    now: u32,
    is_watched: bool,
    counts: SweepStats,
    schedule: Schedule,
}

/// The decision of a sweep about an item, made without a lock.
struct Verdict {
    state: Lookup,
    /// The item's visits if it moves.
    visits: Option<u8>,
}

impl ItemStore {
    /// Makes room for an item of `bytes`, or finds that this is impossible. May block: it evicts
    /// some blocks, and waits for readers if enough memory waits for them. The `effort` of all
    /// calls for one item is in proportion to `bytes`. Other threads may take the room before
    /// the caller does.
    pub(crate) fn make_room(&self, bytes: usize, effort: &mut Effort) -> bool {
        let mut reclaim = self.allocator.begin_reclaim(bytes, *effort);
        let has_room = loop {
            match self.allocator.next_reclaim_step(&mut reclaim, self.evicts, &self.table_memory()) {
                ReclaimStep::Attempt => break true,
                ReclaimStep::OutOfMemory => break false,
                ReclaimStep::Sweep(victim) => reclaim.note_swept(self.sweep(victim)),
                ReclaimStep::Wait(grace) => {
                    work::charge(Work::GracePeriod);
                    grace.wait();
                }
                ReclaimStep::Retry => {
                    work::charge(Work::ShortWait);
                    self.allocator.wait_for_others();
                }
            }
        };
        *effort = reclaim.effort();
        has_room
    }

    /// Evicts a block if few are free, so that stores need not wait for readers. Returns whether it
    /// has found one.
    pub(crate) fn evict_ahead(&self) -> bool {
        let victim = self.allocator.victim_ahead(self.evicts);
        let has_victim = victim.is_some();
        victim.into_iter().for_each(|victim| _ = self.sweep(victim));
        has_victim
    }

    /// Sweeps a block. Returns whether it is empty now.
    fn sweep(&self, victim: Victim) -> bool {
        let Victim { block, purpose } = victim;
        let now = self.begin();
        let is_watched = self.observer.as_ref().is_some_and(|observer| observer.is_watching());
        let counts = SweepStats { blocks: 1, ..SweepStats::default() };
        let schedule = Schedule::default();
        let mut sweep = Sweep { store: self, purpose, now, is_watched, counts, schedule };
        if purpose == Purpose::Expire {
            block.forget();
        }
        let (mut items, mut stays) = (0, false);
        // SAFETY: a victim is closed, has no pending items, and is ours until it is released or put
        // back.
        for item in unsafe { items_of(block) } {
            items += 1;
            stays |= sweep.item(item) == Fate::Stays;
        }
        work::charge(Work::Swept(items));
        let Sweep { counts, schedule, .. } = sweep;
        let swept = Swept { items: items as u64, counts };
        match purpose {
            _ if !stays => self.allocator.release(block, swept),
            Purpose::Expire => {
                block.note_due(schedule.next(now).unwrap_or(u32::MAX).min(now.saturating_add(VISIT_INTERVAL)));
                self.allocator.put_back(block, false, swept);
            }
            _ => self.allocator.put_back(block, true, swept),
        }
        !stays
    }

    /// Frees expired and flushed items, and blocks whose items are all freed. If this call misses a
    /// block because another thread sweeps it, a later call finds it: blocks record when they are
    /// due.
    pub(crate) fn sweep_expired(&self, now: u32) {
        self.store_times.note(self.last_number(), now);
        let line = self.flush.line();
        let is_due = |block: Block| block.is_due(now, line);
        self.allocator.close_all(is_due);
        let mut has_swept = false;
        while let Some(victim) = self.allocator.next_due(now) {
            has_swept = true;
            self.sweep(victim);
        }
        let mut left = self.allocator.begin_round(line);
        while left > 0 {
            if let Some(victim) = self.allocator.look_around(&mut left, is_due) {
                has_swept = true;
                self.sweep(victim);
            }
        }
        if has_swept {
            self.allocator.count_pass();
        }
    }
}

impl Sweep<'_> {
    fn item(&mut self, item: ItemRef<'_>) -> Fate {
        self.counts.crawled += u64::from(self.purpose == Purpose::Expire);
        match self.look(item) {
            Ok(verdict) => self.carry_out(item, &verdict),
            Err(fate) => fate,
        }
    }

    /// Decides what to do with `item`. The error is the fate of an item that needs no change.
    fn look(&mut self, item: ItemRef<'_>) -> Result<Verdict, Fate> {
        let &mut Sweep { store, purpose, now, .. } = self;
        if item.status().is_gone() {
            return Err(Fate::Gone);
        }
        let state = store.state(item, now);
        let is_alive = state == Lookup::Hit;
        if purpose == Purpose::Expire && is_alive {
            self.schedule.note(item);
            item.status().age(now);
            return Err(Fate::Stays);
        }
        let (visits, was_visited) = item.status().load().heat();
        let visits = match purpose {
            _ if !is_alive => None,
            Purpose::Purge => None,
            Purpose::Evict => policy::verdict(visits, was_visited),
            Purpose::Compact | Purpose::Expire => Some(visits + u8::from(was_visited && visits < policy::MAX_VISITS)),
        };
        // An item that is alone in its block need not be copied.
        if let Some(visits) = visits
            && store.allocator.is_large(item.footprint())
        {
            item.status().age(now);
            item.status().cool(visits);
            item.block().set_queue(policy::queue(item.footprint(), visits));
            return Err(Fate::Stays);
        }
        Ok(Verdict { state, visits })
    }

    /// Carries out the decision under the lock of the item's bucket. Another thread may have been
    /// faster.
    fn carry_out(&mut self, item: ItemRef<'_>, &Verdict { state, visits }: &Verdict) -> Fate {
        let &mut Sweep { store, now, .. } = self;
        let (allocator, is_alive) = (&store.allocator, state == Lookup::Hit);
        let copy = visits.and_then(|visits| {
            Some((UnlinkedItem::copy(item, visits, now, allocator, || store.table_charge_for_moves()).ok()?, visits))
        });
        if copy.is_none() && is_alive && !store.evicts {
            return Fate::Stays;
        }
        let guard = relativist_rcu::read();
        let Entry::Occupied(entry) = store.table.entry(item.hash(), |link| link == item.link(), &guard) else {
            return Fate::Gone;
        };
        let fate = match copy {
            Some((copy, visits)) => {
                copy.take_over(item, visits, now);
                copy.link(&guard, |link| {
                    // SAFETY: a fresh link with the entry's hash; it stays allocated until it was
                    // removed and a grace period passed, see `ItemAllocator::release`.
                    unsafe { entry.replace(link) };
                });
                Fate::Moved
            }
            // The item was touched in the meantime: the state under the lock counts.
            None if !is_alive && store.state(item, now) == Lookup::Hit => {
                self.schedule.note(item);
                return Fate::Stays;
            }
            None => {
                entry.remove();
                Fate::Gone
            }
        };
        // SAFETY: unlinked just now, within the section of `guard`.
        unsafe { item.free_item_in_sweep(allocator, &guard) };
        drop(guard);
        if fate == Fate::Gone {
            self.count(item, state);
        }
        fate
    }

    /// Counts an item that this sweep has removed, and reports it to the observer. The sweep still
    /// holds the block.
    fn count(&mut self, item: ItemRef<'_>, state: Lookup) {
        let Sweep { store, purpose, now, counts, .. } = self;
        let hit = Hit::of(item, *now);
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
        counts.evicted_idle.note(hit.idle);
        counts.evicted_lifetime.note(store.store_times.age(item.number(), *now, &relativist_rcu::read()));
        if self.is_watched
            && let Some(observer) = &store.observer
        {
            observer.evicted(hit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::cache::{Content, Mode};
    use crate::clock::Clock;
    use std::sync::Arc;

    /// A command that began in the second before may touch an item that a sweep has found expired.
    #[test]
    fn an_item_touched_when_a_sweep_has_found_it_expired_stays() {
        let clock = Arc::new(Clock::new(1000));
        let cache = Cache::new(Arc::clone(&clock), 1 << 20, 1 << 20).unwrap();
        cache.store(Mode::Set, b"key", Content { flags: 0, exptime: 10, value: b"value" });
        cache.store.allocator.close_all(|_| true);
        clock.set(1010);
        let Victim { block, purpose } = cache.store.allocator.next_due(1010).expect("something expires");
        let (counts, schedule) = (SweepStats::default(), Schedule::default());
        let mut sweep = Sweep { store: &cache.store, purpose, now: 1010, is_watched: false, counts, schedule };
        block.forget();
        // SAFETY: a victim is closed, has no pending items, and is ours until it is put back.
        let item = unsafe { items_of(block) }.next().expect("the one item");
        let Ok(verdict) = sweep.look(item) else { panic!("it has expired") };
        assert_eq!((verdict.state, verdict.visits), (Lookup::Expired, None));
        clock.set(1009);
        assert!(cache.touch(b"key", 100));
        clock.set(1010);
        assert!(sweep.carry_out(item, &verdict) == Fate::Stays);
        let Sweep { counts, schedule, .. } = sweep;
        assert_eq!((counts, schedule.next(1010)), (SweepStats::default(), Some(1109)), "when it expires now");
        cache.store.allocator.put_back(block, false, Swept { items: 1, counts });
        assert_eq!(cache.peek(b"key", |hit| assert_eq!(hit.ttl(), Some(99))), Lookup::Hit);
    }
}
