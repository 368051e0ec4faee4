//! All blocks that are not open, and the bytes that all blocks take, under one lock.
//!
//! Every function takes constant or logarithmic time, and reads no block's memory beyond its
//! header. Longer work is returned to the caller, which does it without the lock. The only system
//! call opens a region of addresses, once per 64 MiB. (When addresses run out, arenas are joined:
//! once, and in linear time.)

use crate::memory::arena::Arenas;
use crate::memory::block::{Block, HEADER, NEVER, Place};
use crate::memory::block_ref::PinnedBlocks;
use crate::memory::free::FreeBlocks;
use crate::memory::request::{AllocContext, OutOfMemory};
use crate::memory::room::{Aside, Room};
use crate::memory::sum::BlockSum;
use crate::policy::{self, EvictFor, MeanSizes};
use crate::usage::SweepStats;
use relativist_rcu::GracePeriod;
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::ptr::NonNull;
use std::thread::ThreadId;

/// The number of ordinary blocks kept for items that move, if the limit is at least 128 blocks. A
/// smaller cache keeps one, and the smallest ones none: it would be too large a part of them.
const KEPT: usize = 2;

/// All blocks that are not open.
pub(crate) struct BlockPool {
    /// The queues of the [policy]: their blocks by number.
    queues: [BTreeMap<u64, Block>; policy::QUEUES],
    /// The blocks of which at least a quarter is freed, by number.
    compactable: BTreeMap<u64, Block>,
    /// The sizes of all blocks in `queues` and `compactable`.
    pub(crate) queued: BlockSum,
    /// The blocks in `queues` and `compactable` in which something expires, by the second in which
    /// they should be swept (as known when they were queued), and by number.
    due: BTreeMap<(u32, u64), Block>,
    /// The next block whose header the background examines: a queue, and a block number.
    round: (usize, u64),
    /// The line of the last flush whose items the background has swept.
    swept_line: u64,
    /// Swept blocks, in the order of their grace periods, and the bytes that will be free then.
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    pub(crate) free: FreeBlocks,
    /// Blocks that threads sweep or give back, or have taken for new items.
    pub(crate) checked_out: usize,
    /// Threads that wait for [`BlockPool::checked_out`] to change.
    pub(crate) waiters: usize,
    /// The last block's number, and the priority of the last one evicted.
    number: u64,
    level: u64,
    goal: EvictFor,
    /// Those of the items that were swept lately.
    mean_sizes: MeanSizes,
    /// Bytes of all blocks.
    mapped: usize,
    /// Bytes of the table, as last reported.
    table: usize,
    /// The limit on the bytes of blocks and table.
    limit: usize,
    /// The limit that was set. It is lower than `limit` while the cache shrinks.
    target: usize,
    /// The limit before that one was set, which is not exceeded on the way.
    earlier_limit: usize,
    /// The bytes of blocks and table when a block found no addresses. Until blocks are given back,
    /// no more can be used, whatever the limit.
    reachable: usize,
    /// The thread that has a reservation, and its bytes. No other thread may take these.
    reservation: Option<(ThreadId, usize)>,
    /// Bytes set aside for values that are announced.
    aside: Aside,
    refusal: Option<Refusal>,
    /// The place of the next search for slightly fragmented blocks (a queue and a number), and the
    /// number of blocks examined since the last one was found.
    slightly_fragmented: (usize, u64),
    looked_at: usize,
    pub(crate) sweeps: SweepStats,
    /// The capacity of ordinary blocks.
    capacity: usize,
    arenas: Arenas,
}

/// A store that failed for lack of room, without eviction. Later stores fail until something is
/// freed.
struct Refusal {
    need: usize,
    /// The bytes of linked items at that time.
    linked: usize,
}

/// A swept block.
struct Waiting {
    grace: GracePeriod,
    block: Block,
    /// 0 if the block is pinned: it is returned by the last unpin, not by the grace period.
    bytes: usize,
}

/// A block to be swept, and the purpose.
pub(crate) struct Victim {
    pub(crate) block: Block,
    pub(crate) purpose: Purpose,
}

/// What a sweep has found in a block, and done with it.
pub(crate) struct Swept {
    /// The number of all items, those included that were freed before.
    pub(crate) items: u64,
    pub(crate) counts: SweepStats,
}

/// Why a block is swept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// Evicted: items with visits move, the others go.
    Evict,
    /// Evicted after too many items have moved: all items go.
    Purge,
    /// Compacted: all live items move.
    Compact,
    /// Expired items go, the others stay.
    Expire,
}

/// Where a block for items comes from.
pub(crate) enum Source {
    /// A free block.
    Block(Block),
    /// A block to be created at this address.
    Address(NonNull<u8>),
    /// A block to be created after these have been given back to the system.
    After(Vec<Block>),
    /// There is no room.
    Nowhere,
}

impl BlockPool {
    pub(crate) fn new(capacity: usize, limit: usize) -> Result<BlockPool, OutOfMemory> {
        Ok(BlockPool {
            queues: [const { BTreeMap::new() }; policy::QUEUES],
            compactable: BTreeMap::new(),
            queued: BlockSum::default(),
            due: BTreeMap::new(),
            round: (0, 0),
            swept_line: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            free: FreeBlocks::new(capacity),
            checked_out: 0,
            waiters: 0,
            number: 0,
            level: 0,
            goal: EvictFor::default(),
            mean_sizes: MeanSizes::new(),
            mapped: 0,
            table: 0,
            limit,
            target: limit,
            earlier_limit: limit,
            reachable: usize::MAX,
            reservation: None,
            aside: Aside::default(),
            refusal: None,
            slightly_fragmented: (0, 0),
            looked_at: 0,
            sweeps: SweepStats::default(),
            capacity,
            arenas: Arenas::new(limit)?,
        })
    }

    pub(crate) fn mapped(&self) -> usize {
        self.mapped
    }

    /// Notes the bytes of the table. While the limit is being lowered, a resize of the table, which
    /// takes the place of many blocks at once, puts it off: no store could evict as many.
    pub(crate) fn set_table(&mut self, bytes: usize) {
        if self.limit > self.target {
            let put_off = self.limit + bytes.saturating_sub(self.table);
            self.limit = put_off.min(self.earlier_limit.max(self.limit));
        }
        self.table = bytes;
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The limit that was set last.
    pub(crate) fn target(&self) -> usize {
        self.target
    }

    /// Sets the limit. One below what is taken comes into force in steps: see
    /// [`lower_limit`](Self::lower_limit).
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.target = limit;
        self.earlier_limit = self.limit;
        self.limit = limit.max(self.limit.min(self.taken()));
        self.reachable = usize::MAX;
        self.refusal = None;
    }

    /// Lowers the limit by at most `step` bytes towards the one that was set, but not below
    /// `least`. Returns whether it was lowered.
    pub(crate) fn lower_limit(&mut self, step: usize, least: usize) -> bool {
        let lower = self.limit.saturating_sub(step).max(self.target).max(least);
        let is_lower = lower < self.limit;
        self.limit = self.limit.min(lower);
        is_lower
    }

    pub(crate) fn goal(&self) -> EvictFor {
        self.goal
    }

    /// Sets what the order of evictions makes few of, from the next eviction on.
    pub(crate) fn set_goal(&mut self, goal: EvictFor) {
        self.goal = goal;
    }

    /// Reserves `bytes` that are or become free for a thread, or ends the reservation.
    pub(crate) fn set_reservation(&mut self, reservation: Option<(ThreadId, usize)>) {
        self.reservation = reservation;
    }

    /// The bytes that other threads have reserved.
    fn reserved_by_others(&self) -> usize {
        self.reservation.filter(|&(thread, _)| thread != std::thread::current().id()).map_or(0, |(_, bytes)| bytes)
    }

    /// The bytes that new items may take without a sweep. Items that move may also take the bytes
    /// that are kept for them.
    pub(crate) fn room(&self, is_moving: bool) -> usize {
        let kept = if is_moving { 0 } else { self.kept() };
        let refused = self.reserved_by_others() + self.aside.bytes() + kept;
        (self.usable() + self.free.bytes()).saturating_sub(self.taken() + refused)
    }

    /// Sets aside up to `most` more bytes that are free or become free. No store takes them.
    pub(crate) fn set_aside(&mut self, most: usize, room: &mut Room) {
        let more = self.room(false).min(most);
        room.add(more, &self.aside);
    }

    /// The bytes that are set aside.
    pub(crate) fn aside(&self) -> usize {
        self.aside.bytes()
    }

    /// The bytes kept for items that move: free, or not mapped yet.
    pub(crate) fn kept(&self) -> usize {
        let blocks = self.limit / self.capacity;
        KEPT.min(blocks / 8).min(1 + blocks / 128) * self.capacity
    }

    /// Whether other threads have checked out, reserved, or are writing to memory that could be
    /// used.
    pub(crate) fn is_contended(&self, evicts: bool) -> bool {
        let has_pending = |queue: &BTreeMap<u64, Block>| queue.values().any(|block| block.has_pending());
        let is_written_to = has_pending(&self.compactable) || evicts && self.queues.iter().any(has_pending);
        self.checked_out > 0 || self.reserved_by_others() > 0 || is_written_to
    }

    /// Bytes of swept blocks that wait for readers.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// The grace period of the block that was swept first.
    pub(crate) fn next_grace(&self) -> Option<GracePeriod> {
        self.waiting.front().map(|waiting| waiting.grace)
    }

    /// The grace period of the block that was swept last.
    pub(crate) fn last_grace(&self) -> Option<GracePeriod> {
        self.waiting.back().map(|waiting| waiting.grace)
    }

    pub(crate) fn is_over_limit(&self) -> bool {
        self.taken() > self.limit
    }

    pub(crate) fn taken(&self) -> usize {
        self.mapped + self.table
    }

    /// The bytes that blocks and table can take now.
    fn usable(&self) -> usize {
        self.limit.min(self.reachable)
    }

    /// Whether less than `wanted` bytes are free, wait for readers, or can still be mapped.
    pub(crate) fn has_few(&self, wanted: usize) -> bool {
        self.usable() + self.free.bytes() + self.waiting_bytes < self.taken() + wanted
    }

    /// Checks out a block of `capacity`, or returns how to get one.
    pub(crate) fn source(&mut self, capacity: usize, context: AllocContext) -> Source {
        if self.room(context.is_relocation()) < capacity {
            return Source::Nowhere;
        }
        if let Some(block) = self.free.fitting(capacity).and_then(|found| self.free.take(found)) {
            self.checked_out += 1;
            return Source::Block(block);
        }
        if self.taken() + capacity <= self.usable() {
            let Some(address) = self.arenas.take(capacity) else {
                self.reachable = self.taken();
                return Source::Nowhere;
            };
            self.mapped += capacity;
            self.checked_out += 1;
            return Source::Address(address);
        }
        if context == AllocContext::UnderBucketLock {
            Source::Nowhere
        } else {
            Source::After(self.in_the_way(capacity))
        }
    }

    /// Whether there is a free block that fits, and that is not reserved by another thread.
    pub(crate) fn has_free(&self, capacity: usize, context: AllocContext) -> bool {
        self.room(context.is_relocation()) >= capacity && self.free.fitting(capacity).is_some()
    }

    /// Checks out the free blocks that must be given back to the system before a block of
    /// `capacity` can be created, if there is [room](Self::room) but no free block that fits.
    /// Returns none if such a block fits.
    pub(crate) fn in_the_way(&mut self, capacity: usize) -> Vec<Block> {
        match self.free.fitting(capacity) {
            Some(_) => Vec::new(),
            None => self.surplus((self.taken() + capacity).saturating_sub(self.usable()), 0),
        }
    }

    /// Checks out free blocks of at least `excess` bytes, if there are any, except `kept` ordinary
    /// ones.
    fn surplus(&mut self, excess: usize, kept: usize) -> Vec<Block> {
        let blocks = self.free.take_surplus(excess, kept);
        self.checked_out += blocks.len();
        blocks
    }

    /// Checks out free blocks beyond the limit, to be given back.
    pub(crate) fn over_limit(&mut self) -> Vec<Block> {
        self.surplus(self.taken().saturating_sub(self.limit), 0)
    }

    /// Checks out half of the blocks that were free since the last call, except `wanted` bytes, to
    /// be given back.
    pub(crate) fn idle(&mut self, wanted: usize) -> Vec<Block> {
        let idle = self.free.least_bytes().saturating_sub(wanted).div_ceil(2);
        let blocks = self.surplus(idle, KEPT);
        self.free.reset_least_bytes();
        blocks
    }

    /// Notes runs (address and bytes) that were given back to the system.
    pub(crate) fn given_back(&mut self, runs: impl IntoIterator<Item = (NonNull<u8>, usize)>) {
        for (start, capacity) in runs {
            self.arenas.give_back(start, capacity);
            self.mapped -= capacity;
            self.checked_out -= 1;
            // These addresses may be enough.
            self.reachable = usize::MAX;
        }
    }

    /// Checks in a block that was not needed.
    pub(crate) fn put_unused(&mut self, block: Block) {
        self.checked_out -= 1;
        self.put_free(block);
    }

    /// Releases a block that the caller has checked out and pins to receive a value. No thread
    /// waits for it.
    pub(crate) fn release_new(&mut self) {
        self.checked_out -= 1;
    }

    /// Checks in a block that is open now, in place of `full`.
    pub(crate) fn opened_in_place_of(&mut self, full: Option<Block>) {
        self.checked_out -= 1;
        full.into_iter().for_each(|full| self.close(full));
    }

    /// Adds a block to the free ones.
    pub(crate) fn put_free(&mut self, block: Block) {
        block.poison();
        self.free.put(block);
    }

    /// Notes what a sweep has found in a block.
    pub(crate) fn note_swept(&mut self, block: Block, swept: Swept) {
        self.sweeps += swept.counts;
        self.mean_sizes.note(block.queue(), swept.items, (block.used() - HEADER) as u64);
    }

    /// Checks in a swept block, which waits for readers.
    pub(crate) fn put_waiting(&mut self, block: Block) {
        self.checked_out -= 1;
        self.let_wait(block);
    }

    /// Makes a block whose items are all freed wait for readers.
    fn let_wait(&mut self, block: Block) {
        block.set_place(Place::Taken);
        let bytes = if block.is_pinned() { 0 } else { block.capacity() };
        self.waiting_bytes += bytes;
        self.waiting.push_back(Waiting { grace: GracePeriod::start(), block, bytes });
    }

    /// Frees blocks that waited for `passed` or an earlier grace period, and are not pinned.
    /// Returns the next grace period.
    pub(crate) fn harvest(&mut self, passed: GracePeriod) -> Option<GracePeriod> {
        while let Some(Waiting { block, bytes, .. }) = self.waiting.pop_front_if(|waiting| waiting.grace <= passed) {
            self.waiting_bytes -= bytes;
            if block.release() {
                self.put_free(block);
            }
        }
        self.next_grace()
    }

    /// Closes an open block.
    pub(crate) fn close(&mut self, block: Block) {
        self.number += 1;
        block.close(self.number, self.level);
        self.enqueue(block);
    }

    /// Checks in a block with items: at its old place in the queue, or as if it had just been
    /// closed.
    pub(crate) fn put_back(&mut self, block: Block, is_renewed: bool) {
        self.checked_out -= 1;
        if is_renewed { self.close(block) } else { self.enqueue(block) }
    }

    fn enqueue(&mut self, block: Block) {
        if block.is_all_freed() {
            return self.let_wait(block);
        }
        if block.is_compactable() {
            block.set_place(Place::Compactable);
            self.compactable.insert(block.number(), block);
        } else {
            block.set_place(Place::Queue);
            self.queues[block.queue()].insert(block.number(), block);
        }
        self.queued.add(block);
        let second = block.due();
        block.set_indexed(second);
        if second != NEVER {
            self.due.insert((second, block.number()), block);
        }
    }

    /// Removes a block that leaves its queue from the sizes, and from the index of blocks that are
    /// due.
    fn note_left(&mut self, block: Block) {
        self.queued.remove(block);
        if block.indexed() != NEVER {
            self.due.remove(&(block.indexed(), block.number()));
        }
    }

    /// Moves a block to the place for its freed bytes. If all items are freed, there is nothing to
    /// sweep.
    pub(crate) fn note_freed(&mut self, block: Block) {
        let queue = match block.place() {
            Place::Queue => &mut self.queues[block.queue()],
            Place::Compactable => &mut self.compactable,
            Place::Open | Place::Taken => return,
        };
        // If another thread was faster or has checked out the block, that thread examines it before
        // it checks it in.
        if queue.remove(&block.number()).is_some() {
            self.note_left(block);
            self.enqueue(block);
        }
    }

    /// Moves pinned blocks at the front of their queues to the end, as if they had just been
    /// closed: they are in use, and a sweep frees nothing before they are unpinned.
    fn skip_pinned(&mut self) {
        let last = self.number;
        for index in 0..BlockPool::QUEUES {
            loop {
                let queue = self.queues.get_mut(index).unwrap_or(&mut self.compactable);
                let is_next =
                    queue.first_key_value().is_some_and(|(&number, block)| number <= last && block.is_pinned());
                let Some((_, block)) = is_next.then(|| queue.pop_first()).flatten() else { break };
                self.note_left(block);
                self.close(block);
            }
        }
    }

    /// Checks out the block to sweep next: one to compact or, with `evicts`, one to evict. With
    /// `is_urgent`, all items of the block will go. Never a pinned block.
    pub(crate) fn victim(&mut self, evicts: bool, is_urgent: bool) -> Option<Victim> {
        self.skip_pinned();
        let is_urgent = is_urgent && evicts;
        let is_free = |block: &Block| !block.has_pending() && !block.is_pinned();
        let first = |queue: &BTreeMap<u64, Block>| queue.values().copied().find(is_free);
        let compactable = first(&self.compactable);
        if let Some(block) = compactable
            && !is_urgent
        {
            return Some(self.take(block, Purpose::Compact));
        }
        if !evicts {
            return None;
        }
        let priority = |block: &Block| block.stamp() + self.mean_sizes.worth(block.queue(), self.goal);
        let block = self.queues.iter().filter_map(first).min_by_key(priority).or(compactable)?;
        self.level = self.level.max(priority(&block));
        Some(self.take(block, if is_urgent { Purpose::Purge } else { Purpose::Evict }))
    }

    /// Checks out the next slightly fragmented block, round robin. Examines a limited number of
    /// blocks.
    pub(crate) fn next_slightly_fragmented(&mut self) -> Option<Victim> {
        const AT_ONCE: usize = 1024;
        let most = self.looked_at + AT_ONCE;
        for _ in 0..=policy::QUEUES {
            let (queue, from) = self.slightly_fragmented;
            for (&number, &block) in self.queues[queue].range(from..) {
                if self.looked_at == most {
                    self.slightly_fragmented = (queue, number);
                    return None;
                }
                self.looked_at += 1;
                if block.is_slightly_fragmented() && !block.has_pending() && !block.is_pinned() {
                    self.slightly_fragmented = (queue, number + 1);
                    self.looked_at = 0;
                    return Some(self.take(block, Purpose::Compact));
                }
            }
            self.slightly_fragmented = ((queue + 1) % policy::QUEUES, 0);
        }
        None
    }

    /// Takes a block out of its queue, and checks it out.
    fn take(&mut self, block: Block, purpose: Purpose) -> Victim {
        let is_compactable = block.place() == Place::Compactable;
        let queue = if is_compactable { &mut self.compactable } else { &mut self.queues[block.queue()] };
        queue.remove(&block.number());
        self.note_left(block);
        block.set_place(Place::Taken);
        self.checked_out += 1;
        Victim { block, purpose }
    }

    /// The number of queues, that of compactable blocks included.
    pub(crate) const QUEUES: usize = policy::QUEUES + 1;

    /// Checks out a block that is due at `now`, to sweep its expired items.
    pub(crate) fn next_due(&mut self, now: u32) -> Option<Victim> {
        let block = self.due.range(..=(now, u64::MAX)).map(|(_, &block)| block).find(|block| !block.has_pending())?;
        Some(self.take(block, Purpose::Expire))
    }

    /// Begins a pass of the background. Returns the number of blocks whose headers it must examine
    /// in this second. The index has most blocks that are due. Others have become due since they
    /// were queued, and the background finds them within [`BlockPool::ROUND`] seconds. After a
    /// flush, which draws a new `line`, it examines all blocks.
    pub(crate) fn begin_round(&mut self, line: u64) -> usize {
        let all = self.queues.iter().chain([&self.compactable]).map(BTreeMap::len).sum();
        if mem::replace(&mut self.swept_line, line) == line { usize::div_ceil(all, BlockPool::ROUND) } else { all }
    }

    /// The number of seconds within which the background examines the header of every block.
    const ROUND: usize = 60;

    /// Examines up to `left` blocks, and checks out the first one that `is_due`.
    pub(crate) fn look_around(&mut self, left: &mut usize, is_due: impl Fn(Block) -> bool) -> Option<Victim> {
        const AT_ONCE: usize = 64;
        let mut most = AT_ONCE.min(*left);
        for _ in 0..=BlockPool::QUEUES {
            let (index, from) = self.round;
            let queue = self.queues.get(index).unwrap_or(&self.compactable);
            for (&number, &block) in queue.range(from..).take(most) {
                (most, *left) = (most - 1, *left - 1);
                self.round = (index, number + 1);
                if is_due(block) && !block.has_pending() {
                    return Some(self.take(block, Purpose::Expire));
                }
            }
            if most == 0 {
                return None;
            }
            self.round = ((index + 1) % BlockPool::QUEUES, 0);
        }
        *left = 0;
        None
    }

    /// Whether [`BlockPool::next_slightly_fragmented`] has examined all blocks since it last found
    /// one, or since a refusal.
    pub(crate) fn has_seen_all(&self) -> bool {
        self.looked_at >= self.queues.iter().map(BTreeMap::len).sum()
    }

    /// Records that there is no room for `need` bytes without eviction.
    pub(crate) fn refuse(&mut self, need: usize, linked: usize) {
        self.refusal = Some(Refusal { need, linked });
        self.looked_at = 0;
    }

    /// Whether nothing has changed since a store of `need` bytes or fewer found no room without
    /// eviction. A quarter of a block must be freed before another search is worth its cost.
    pub(crate) fn is_refused(&self, need: usize, linked: usize) -> bool {
        let unchanged = |refusal: &Refusal| need >= refusal.need && linked + self.capacity / 4 > refusal.linked;
        self.refusal.as_ref().is_some_and(unchanged)
    }

    /// Frees all blocks without items, including the `open` ones. No other thread has a block,
    /// except for pins.
    pub(crate) fn tear_down(&mut self, open: impl Iterator<Item = Block>, pinned: &PinnedBlocks) {
        let queued = self.queues.iter_mut().flat_map(mem::take).map(|(_, block)| block);
        let compactable = mem::take(&mut self.compactable).into_values();
        self.due.clear();
        let waiting = mem::take(&mut self.waiting).into_iter().map(|waiting| waiting.block);
        let free = self.free.take_all();
        let mut blocks: Vec<Block> = open.chain(queued).chain(compactable).chain(waiting).chain(free).collect();
        blocks.retain(|block| block.release());
        // From here on, released blocks are unmapped by the thread that unpins them.
        blocks.extend(pinned.close());
        for block in blocks {
            // SAFETY: the cache is gone, so only its table still has items, and frees them.
            if let Some((start, capacity)) = unsafe { block.detach() } {
                self.arenas.give_back(start, capacity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::address_space::{AddressSpace, SLOT};
    use crate::memory::arena::unmap;

    /// A table that is resized puts a lower limit off, but never above the one before.
    #[test]
    fn a_resize_of_the_table_puts_a_lower_limit_off() {
        const MIB: usize = 1 << 20;
        let mut pool = BlockPool::new(SLOT, 200 * MIB).unwrap();
        pool.set_table(100 * MIB);
        assert_eq!(pool.limit(), 200 * MIB);
        pool.set_limit(10 * MIB);
        assert_eq!(pool.limit(), 100 * MIB);
        pool.set_table(150 * MIB);
        pool.set_table(50 * MIB);
        assert_eq!(pool.limit(), 150 * MIB);
        pool.set_table(500 * MIB);
        assert_eq!(pool.limit(), 200 * MIB);
        assert!(pool.lower_limit(usize::MAX, 0));
        pool.set_table(700 * MIB);
        assert_eq!(pool.limit(), 10 * MIB);
    }

    /// Addresses of blocks of one kind serve for blocks of the other, and what can be used shrinks
    /// while there are none.
    #[test]
    fn blocks_of_all_kinds_share_the_addresses() {
        const PARTIAL: usize = SLOT / 4;
        let mut pool = BlockPool::new(SLOT, 1 << 30).unwrap();
        pool.arenas = Arenas::of(AddressSpace::of_length(3 * SLOT));
        let take = |pool: &mut BlockPool, capacity| match pool.source(capacity, AllocContext::NoLock) {
            Source::Address(start) => Some((start, capacity)),
            _ => None,
        };
        for (first, second) in [(PARTIAL, SLOT), (SLOT, PARTIAL), (PARTIAL, 3 * SLOT), (SLOT, SLOT + PARTIAL)] {
            let runs = [(); 3].map(|()| take(&mut pool, first).expect("an address"));
            assert_eq!(take(&mut pool, second), None);
            assert_eq!(pool.room(true), 0, "so the caller evicts");
            pool.given_back(runs);
            let run = take(&mut pool, second).expect("an address of the other kind");
            assert!(pool.room(true) > 1 << 29, "the limit counts again");
            pool.given_back([run]);
        }
        let run = take(&mut pool, 3 * SLOT).expect("no address is lost");
        // SAFETY: the run is ours, and the arena does not get it back.
        unsafe { unmap(run.0, run.1) };
    }
}
