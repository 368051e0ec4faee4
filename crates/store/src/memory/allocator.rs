//! The memory of items: open blocks in which threads allocate, and the limit on all memory.
//!
//! **Allocation.** Threads are spread over *stripes*, each with an open block per queue of the
//! [`policy`]. An allocation advances the end of a block under the stripe's lock, which is
//! uncontended as long as there are no more threads than stripes. A full block is closed and goes
//! to its queue, and a free one replaces it: that takes the pool's lock, once per some hundred
//! items. An item too large to share a block has a block of its own, and takes the pool's lock each
//! time.
//!
//! **The limit** counts mapped memory, in pages: blocks that are open, queued, free or waiting for
//! readers, and the bytes of the table. So removed items count until their memory is given back,
//! and the count is what the system reports. A block is created only when it fits.
//!
//! **Reclaim.** A closed block in which all items are freed, such as that of a large item that was
//! replaced, waits for a grace period, and is then free. A block that is to be evicted is taken out
//! of its queue, so one thread sweeps it. When all its items are unlinked, it waits for a grace
//! period, because readers may still read them, and is then free. A few blocks are kept free or
//! waiting in advance ([`ItemAllocator::victim_ahead`]), for new items and for items that move. No
//! function here waits for readers except `trim` and the destructor. Blocks that stay free are
//! given back to the system.
//!
//! **Why blocks and not slabs.** In slabs, items can be evicted one by one. But memory of one class
//! is lost for others until a page of it is emptied, and sizes are rounded (memcached's factor of
//! 1.25 loses 10 % on average). All blocks are alike, so no mix of sizes is worse than another,
//! sizes are rounded to 8 bytes, and items need no place in free lists or queues. The cost: items
//! that move are copied (0.5 to 0.75 bytes per byte stored on the trace in [`policy`]), and memory
//! of overwritten items is free only when their block is swept. A block is compacted early when a
//! quarter of it is freed. If eviction is disabled and there is no other room, a sixteenth is
//! enough.

use crate::memory::address_space::SLOT;
use crate::memory::block::{Block, HEADER};
use crate::memory::block_ref::{BlockRef, LARGE_VALUE, PinnedBlocks};
use crate::memory::pool::{BlockPool, Source, Swept, Victim};
use crate::memory::request::{AllocContext, OutOfMemory};
use crate::memory::room::Room;
use crate::memory::sum::BlockSum;
use crate::policy::{self, EvictFor};
use crate::usage::{MemoryUse, SweepStats};
use crossbeam_utils::CachePadded;
use relativist_rcu::contention::Site;
use relativist_rcu::{GracePeriod, Guard, wait_for_readers};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, available_parallelism};
use std::time::Duration;

static POOL: Site = Site::new("heap_central");
static STRIPE: Site = Site::new("heap_stripe");
static RESERVATION: Site = Site::new("heap_claim");

/// The size of the smallest blocks, which tiny caches have. Their addresses are as far apart as
/// those of larger ones.
const MIN_BLOCK: usize = 1 << 12;

/// The least number of blocks that the limit is divided into.
const MIN_BLOCKS: usize = 64;

/// The timeout of a wait for other threads, which usually notify earlier.
const SHORT_WAIT: Duration = Duration::from_millis(1);

/// The memory of one cache's items.
pub(crate) struct ItemAllocator {
    /// The capacity of an ordinary block.
    pub(crate) capacity: usize,
    /// The stripes, whose number is a power of two.
    stripes: Box<[CachePadded<Stripe>]>,
    /// The last number that a block has drawn.
    pub(crate) last_number: CachePadded<AtomicU64>,
    /// Whether few blocks are free or waiting, so that the next store should evict one.
    is_low: AtomicBool,
    pool: CachePadded<Mutex<BlockPool>>,
    /// Notified when a thread has checked in a block.
    returned: Condvar,
    /// Held by the thread with a reservation.
    reservation_lock: Mutex<()>,
    pinned: Arc<PinnedBlocks>,
}

/// The state that some threads share.
struct Stripe {
    /// The open block of each queue. Those of protected items are all in the first stripe: only
    /// sweeps use them.
    open: Mutex<[Option<Block>; policy::QUEUES]>,
    /// Bytes of items linked by these threads, less those of items unlinked by them.
    linked: AtomicIsize,
    /// Expired or flushed items that these threads replaced by others, and the number of those that
    /// had expired and were never fetched.
    reclaimed: AtomicU64,
    expired_unfetched: AtomicU64,
}

/// Memory reserved for one thread: all memory that becomes free, up to a number of bytes. Only one
/// thread has a reservation at a time.
pub(crate) struct Reservation<'h> {
    allocator: &'h ItemAllocator,
    _turn: MutexGuard<'h, ()>,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.allocator.pool().set_reservation(None);
    }
}

impl ItemAllocator {
    /// An allocator that uses at most `limit` bytes.
    ///
    /// # Errors
    /// When the system has no addresses for them.
    pub(crate) fn new(limit: usize) -> Result<ItemAllocator, OutOfMemory> {
        let capacity = (limit / MIN_BLOCKS).clamp(MIN_BLOCK, SLOT) & !(MIN_BLOCK - 1);
        // Twice as many stripes as processors, so that threads rarely share one. Fewer if the open
        // blocks would be much of the memory.
        let threads = available_parallelism().map_or(8, |threads| 2 * threads.get());
        let stripes = 1 << threads.min(limit / capacity / 64).clamp(1, 64).ilog2();
        let stripe = || Stripe {
            open: Mutex::new([None; policy::QUEUES]),
            linked: AtomicIsize::new(0),
            reclaimed: AtomicU64::new(0),
            expired_unfetched: AtomicU64::new(0),
        };
        Ok(ItemAllocator {
            capacity,
            stripes: (0..stripes).map(|_| CachePadded::new(stripe())).collect(),
            last_number: CachePadded::new(AtomicU64::new(0)),
            is_low: AtomicBool::new(false),
            pool: CachePadded::new(Mutex::new(BlockPool::new(capacity, limit)?)),
            returned: Condvar::new(),
            reservation_lock: Mutex::new(()),
            pinned: Arc::new(PinnedBlocks::new(limit)),
        })
    }

    /// The limit that was set last.
    pub(crate) fn limit(&self) -> usize {
        self.pool().target()
    }

    /// Sets the limit. A lower one comes into force in [steps](Self::lower_limit).
    pub(crate) fn set_limit(&self, limit: usize) {
        self.pool().set_limit(limit);
        self.pinned.set_limit(limit);
        // Relaxed: as in `victim_ahead`.
        self.is_low.store(true, Ordering::Relaxed);
    }

    /// Lowers the limit towards the one that was set, by some blocks, or to what is taken if
    /// nothing may be evicted. Leaves room for `table` bytes of the table and for some items.
    /// Returns whether it was lowered. The caller evicts the excess at once, so a store that
    /// comes meanwhile finds little of it.
    pub(crate) fn lower_limit(&self, table: usize, evicts: bool) -> bool {
        /// The blocks of a step.
        const STEP: usize = 8;
        /// The blocks that are left for items.
        const LEFT: usize = 32;
        let mut pool = self.pool();
        let least = table + self.pinned.bytes() + pool.kept() + LEFT * self.capacity;
        let is_lower = if evicts {
            pool.lower_limit(STEP * self.capacity, least)
        } else {
            let taken = pool.taken();
            pool.lower_limit(usize::MAX, taken.max(least));
            false
        };
        if is_lower {
            // Relaxed: as in `victim_ahead`.
            self.is_low.store(true, Ordering::Relaxed);
        }
        is_lower
    }

    /// Gives free memory beyond the limit back to the system. Waits for readers.
    pub(crate) fn shed(&self) {
        let last = self.pool().last_grace();
        last.into_iter().for_each(|grace| grace.wait());
        self.harvest();
        let excess = self.pool().over_limit();
        if !excess.is_empty() {
            self.give_back(excess);
        }
    }

    /// Sets what eviction makes few of.
    pub(crate) fn set_goal(&self, goal: EvictFor) {
        self.pool().set_goal(goal);
    }

    /// What eviction makes few of.
    pub(crate) fn goal(&self) -> EvictFor {
        self.pool().goal()
    }

    /// Bytes of linked items.
    pub(crate) fn linked(&self) -> usize {
        // Relaxed: a sum on which no other data depends.
        let sum: isize = self.stripes.iter().map(|stripe| stripe.linked.load(Ordering::Relaxed)).sum();
        sum.max(0).unsigned_abs()
    }

    /// Bytes mapped for items: linked, freed, waiting for readers, and unused.
    pub(crate) fn mapped(&self) -> usize {
        self.pool().mapped()
    }

    /// The pinned blocks.
    pub(crate) fn pinned(&self) -> &Arc<PinnedBlocks> {
        &self.pinned
    }

    /// The sizes of all open blocks.
    fn open(&self) -> BlockSum {
        let mut sum = BlockSum::default();
        self.stripes.iter().for_each(|stripe| {
            STRIPE.lock(&stripe.open).iter().flatten().for_each(|block| sum.add(*block));
        });
        sum
    }

    /// Sets all parts of `memory` that concern blocks. Takes constant time, and all locks of the
    /// allocator, one after the other: a block that another thread closes meanwhile may be missed,
    /// or added twice.
    pub(crate) fn measure_blocks(&self, memory: &mut MemoryUse) {
        let (open, linked) = (self.open(), self.linked());
        let pool = self.pool();
        let queued = pool.queued;
        let (capacity, used) = (open.capacity + queued.capacity, open.used + queued.used);
        memory.block_headers = (open.blocks + queued.blocks) * HEADER;
        memory.freed = used.saturating_sub(memory.block_headers + linked);
        memory.unused = capacity - used;
        memory.free = pool.free.bytes();
        memory.waiting = pool.waiting_bytes();
        memory.in_transit = pool.mapped().saturating_sub(capacity + memory.free + memory.waiting);
    }

    /// Counts of what sweeps have freed, and of expired or flushed items that stores have replaced.
    pub(crate) fn sweeps(&self) -> SweepStats {
        let mut sweeps = self.pool().sweeps;
        for stripe in &self.stripes {
            // Relaxed, both: sums on which no other data depends.
            sweeps.reclaimed += stripe.reclaimed.load(Ordering::Relaxed);
            sweeps.expired_unfetched += stripe.expired_unfetched.load(Ordering::Relaxed);
        }
        sweeps
    }

    /// Counts an expired or flushed item that a store has replaced.
    pub(crate) fn count_reclaimed(&self, is_expired_unfetched: bool, guard: &Guard) {
        let stripe = self.stripe(guard);
        // Relaxed, both: sums on which no other data depends.
        stripe.reclaimed.fetch_add(1, Ordering::Relaxed);
        stripe.expired_unfetched.fetch_add(is_expired_unfetched.into(), Ordering::Relaxed);
    }

    /// Counts an item of `bytes` as linked.
    pub(crate) fn count_linked(&self, bytes: usize, guard: &Guard) {
        // Relaxed: a sum on which no other data depends.
        self.stripe(guard).linked.fetch_add(bytes.cast_signed(), Ordering::Relaxed);
    }

    /// Counts an item of `bytes` as unlinked.
    pub(crate) fn count_unlinked(&self, bytes: usize, guard: &Guard) {
        self.count_linked(bytes.wrapping_neg(), guard);
    }

    /// The stripe of the guard's thread.
    fn stripe(&self, guard: &Guard) -> &Stripe {
        &self.stripes[guard.thread_index() & (self.stripes.len() - 1)]
    }

    /// The stripe in which the guard's thread allocates items of a queue.
    fn stripe_of(&self, queue: usize, guard: &Guard) -> &Stripe {
        if policy::is_protected(queue) { &self.stripes[0] } else { self.stripe(guard) }
    }

    /// Draws `count` numbers, and returns the first of them.
    fn draw(&self, count: u64) -> u64 {
        // Relaxed: numbers only have to be distinct and to rise. If a flush has ended before this
        // call began, the synchronisation between its client and ours orders it before.
        self.last_number.fetch_add(count, Ordering::Relaxed) + 1
    }

    /// Locks the pool. A thread that holds this lock does not wait for anything else. Lock order: a
    /// stripe, then the pool.
    pub(crate) fn pool(&self) -> MutexGuard<'_, BlockPool> {
        POOL.lock(&self.pool)
    }

    /// Takes room for an item of `size` bytes, which is then pending. Evicts nothing and does not
    /// wait, so it may be called under a bucket's lock. The item must be written before it stops
    /// being pending.
    ///
    /// `table` is called only if a block is needed.
    pub(crate) fn allocate(
        &self,
        size: usize,
        context: AllocContext,
        table: impl FnOnce() -> usize,
    ) -> Result<NonNull<u8>, OutOfMemory> {
        let full = OutOfMemory { requested: size };
        let queue = policy::queue(size, context.visits());
        if self.is_large(size) {
            let block = self.obtain(Block::capacity_for(size), context, table()).ok_or(full)?;
            block.open(queue, self.draw(1));
            let place = block.take(size).ok_or(full);
            self.put_down(|pool| pool.put_back(block, true));
            return place;
        }
        let stripe = self.stripe_of(queue, &relativist_rcu::read());
        if let Some(place) = STRIPE.lock(&stripe.open)[queue].and_then(|block| block.take(size)) {
            return Ok(place);
        }
        // Without the lock, because this may take long.
        let fresh = self.obtain(self.capacity, context, table()).ok_or(full)?;
        let mut open = STRIPE.lock(&stripe.open);
        if let Some(place) = open[queue].and_then(|block| block.take(size)) {
            // Another thread of the stripe was faster.
            self.put_down(|pool| pool.put_unused(fresh));
            return Ok(place);
        }
        fresh.open(queue, self.draw(fresh.numbers()));
        let full_one = open[queue].replace(fresh);
        self.put_down(|pool| pool.opened_in_place_of(full_one));
        fresh.take(size).ok_or(full)
    }

    /// Pins a new block for an item of `size` bytes whose value is still to be received; `Ok(None)`
    /// if too much is pinned.
    pub(crate) fn pin_new(&self, size: usize, table: impl FnOnce() -> usize) -> Result<Option<BlockRef>, OutOfMemory> {
        let capacity = Block::capacity_for(size);
        if !self.pinned.allows_writer(capacity) {
            return Ok(None);
        }
        let block = self.obtain(capacity, AllocContext::NoLock, table()).ok_or(OutOfMemory { requested: size })?;
        // Checked again: the block may be larger than requested, and other threads may have been
        // faster.
        let is_allowed = self.pinned.pin_bytes_of_writer(block.capacity());
        self.put_down(|pool| if is_allowed { pool.release_new() } else { pool.put_unused(block) });
        Ok(is_allowed.then(|| {
            block.unpoison(size);
            // SAFETY: this thread has checked out the block, and no other thread has it.
            unsafe { BlockRef::of_new(block, &self.pinned) }
        }))
    }

    /// Sets room aside for an item of `size` bytes, as far as there is any. Returns the number of
    /// bytes that are missing; none if there may be no such item, because too much is pinned.
    pub(crate) fn set_aside(&self, size: usize, room: &mut Room) -> usize {
        let need = self.block_for(size);
        let mut pool = self.pool();
        let others = pool.aside() - room.bytes();
        if !self.pinned.allows_writer(need + others) {
            return 0;
        }
        pool.set_aside(need.saturating_sub(room.bytes()), room);
        need.saturating_sub(room.bytes())
    }

    /// Takes back a released block with an item of `size` bytes, which is pending and may be
    /// written.
    ///
    /// # Safety
    /// The allocator has released the block, and the caller has the only pin.
    pub(crate) unsafe fn attach(&self, block: Block, size: usize) -> Option<NonNull<u8>> {
        block.open(policy::queue(size, 0), self.draw(1));
        let place = block.take(size)?;
        block.attach();
        self.put_down(|pool| pool.close(block));
        Some(place)
    }

    /// The maximum number of items that can be stored before a block is requested: as many as fill
    /// the open blocks.
    pub(crate) fn max_items_in_open_blocks(&self) -> usize {
        // A stripe has one open block of new items per class. Their items have at least 16, 88, 344
        // bytes and so on, so one item in 12 bytes is an upper bound.
        self.stripes.len() * self.capacity / 12
    }

    /// Whether an item of `size` bytes has a block of its own. A smaller one leaves at most a
    /// quarter of one unused. In the small blocks of a small cache, an item may leave more of its
    /// own block unused, because that has whole pages: then it shares one, unless it takes more
    /// than half.
    pub(crate) fn is_large(&self, size: usize) -> bool {
        let room = self.capacity - HEADER;
        let pays = |shared| shared < 2 || Block::capacity_for(size) <= self.capacity / shared;
        size > room / 4 && (size >= LARGE_VALUE || pays(room / size))
    }

    /// Checks out a block, if there is room.
    fn obtain(&self, capacity: usize, context: AllocContext, table: usize) -> Option<Block> {
        let mut has_harvested = false;
        loop {
            let mut pool = self.pool();
            pool.set_table(table);
            // Waiting blocks are harvested only if there is no other: that may cost a barrier on
            // all processors.
            if !has_harvested && !pool.has_free(capacity, context) {
                drop(pool);
                self.harvest();
                has_harvested = true;
                continue;
            }
            let source = pool.source(capacity, context);
            self.note_low(&pool);
            drop(pool);
            match source {
                Source::Block(block) => {
                    // SAFETY: it was free: swept, and its grace period has passed.
                    unsafe { block.fill_debug_pattern() };
                    return Some(block);
                }
                // SAFETY: the arena has just returned it, for this many bytes.
                Source::Address(start) => return Some(unsafe { Block::create(start, capacity) }),
                Source::After(surplus) => self.give_back(surplus),
                Source::Nowhere => return None,
            }
        }
    }

    /// Frees blocks whose grace period has passed, and released blocks that were unpinned.
    pub(crate) fn harvest(&self) {
        let returned = self.pinned.take_returned();
        if !returned.is_empty() {
            let mut pool = self.pool();
            returned.into_iter().for_each(|block| pool.put_free(block));
        }
        let mut next = self.pool().next_grace();
        // `has_passed` may cost a barrier on all processors, so it is called without the lock.
        while let Some(grace) = next.filter(GracePeriod::has_passed) {
            next = self.pool().harvest(grace);
        }
    }

    /// Gives free blocks, which the caller has checked out, back to the system.
    pub(crate) fn give_back(&self, blocks: Vec<Block>) {
        let discard = |block: Block| {
            let capacity = block.capacity();
            // SAFETY: it was free, so it has no items, and this thread has checked it out.
            (unsafe { block.discard() }, capacity)
        };
        let runs: Vec<_> = blocks.into_iter().map(discard).collect();
        self.put_down(|pool| pool.given_back(runs));
    }

    /// Checks in blocks that the caller had checked out, and notifies waiting threads.
    fn put_down(&self, put: impl FnOnce(&mut BlockPool)) {
        let mut pool = self.pool();
        put(&mut pool);
        self.note_low(&pool);
        if pool.waiters > 0 {
            self.returned.notify_all();
        }
    }

    /// Waits until another thread checks in a block, for a short time.
    pub(crate) fn wait_for_others(&self) {
        let mut pool = self.pool();
        pool.waiters += 1;
        let woken = self.returned.wait_timeout(pool, SHORT_WAIT);
        woken.unwrap_or_else(PoisonError::into_inner).0.waiters -= 1;
    }

    /// Gives back room that was not used. The item there has been written, at least its lengths.
    pub(crate) fn abandon(&self, place: NonNull<u8>, size: usize) {
        // SAFETY: the pending item keeps the block.
        let block = unsafe { Block::of(place) };
        let section = relativist_rcu::read();
        let open = STRIPE.lock(&self.stripe_of(block.queue(), &section).open);
        let is_undone = open.contains(&Some(block)) && block.undo_take(place, size);
        drop(open);
        if is_undone {
            return block.finish_pending();
        }
        // SAFETY: the item was never linked; the pending item keeps the block, and then the read
        // section.
        if unsafe { block.free_pending(size) } {
            self.note_freed(block);
        }
    }

    /// Moves the block to the place for its freed bytes, after [`Block::free_item`] has returned
    /// true.
    pub(crate) fn note_freed(&self, block: Block) {
        self.pool().note_freed(block);
    }

    /// A block to evict in advance, if few blocks are free or waiting.
    pub(crate) fn victim_ahead(&self, evicts: bool) -> Option<Victim> {
        // Relaxed, both: a hint. Only one of the threads that find it set continues.
        let is_hinted = self.is_low.load(Ordering::Relaxed) && self.is_low.swap(false, Ordering::Relaxed);
        is_hinted.then(|| self.act_on_hint(evicts)).flatten()
    }

    #[cold]
    fn act_on_hint(&self, evicts: bool) -> Option<Victim> {
        self.harvest();
        let mut pool = self.pool();
        let excess = pool.over_limit();
        let is_useless = !evicts && pool.is_refused(self.capacity, self.linked());
        let victim = (!is_useless && pool.has_few(self.wanted(&pool))).then(|| pool.victim(evicts, false)).flatten();
        if evicts && pool.is_over_limit() {
            // Relaxed: as in `victim_ahead`.
            self.is_low.store(true, Ordering::Relaxed);
        }
        drop(pool);
        if !excess.is_empty() {
            self.give_back(excess);
        }
        victim
    }

    fn note_low(&self, pool: &BlockPool) {
        if pool.is_over_limit() || pool.has_few(self.wanted(pool)) {
            // Relaxed: as in `victim_ahead`.
            self.is_low.store(true, Ordering::Relaxed);
        }
    }

    /// The bytes that might be needed soon.
    fn wanted(&self, pool: &BlockPool) -> usize {
        pool.kept() + self.stripes.len().min(1 + pool.limit() / self.capacity / 16) * self.capacity
    }

    /// Gives back to the system half of the memory that was unused since the last call. Waits for
    /// readers.
    pub(crate) fn trim(&self) {
        self.shed();
        let mut pool = self.pool();
        let wanted = self.wanted(&pool);
        let idle = pool.idle(wanted);
        drop(pool);
        if !idle.is_empty() {
            self.give_back(idle);
        }
    }

    /// The bytes of the block that an item of `size` bytes needs.
    pub(crate) fn block_for(&self, size: usize) -> usize {
        if self.is_large(size) { Block::capacity_for(size) } else { self.capacity }
    }

    /// Reserves room for an item of `size` bytes for the calling thread. Waits for threads that
    /// have a reservation.
    pub(crate) fn reserve(&self, size: usize) -> Reservation<'_> {
        let turn = RESERVATION.lock(&self.reservation_lock);
        self.pool().set_reservation(Some((thread::current().id(), self.block_for(size))));
        Reservation { allocator: self, _turn: turn }
    }

    /// Closes all open blocks for which `wanted` returns true.
    pub(crate) fn close_all(&self, wanted: impl Fn(Block) -> bool) {
        for stripe in &self.stripes {
            let mut open = STRIPE.lock(&stripe.open);
            for slot in open.iter_mut() {
                if let Some(block) = slot.take_if(|block| wanted(*block)) {
                    block.cut();
                    self.pool().close(block);
                }
            }
        }
    }

    /// Checks in a swept block without items, which waits for readers.
    pub(crate) fn release(&self, block: Block, swept: Swept) {
        self.put_down(|pool| {
            pool.note_swept(block, swept);
            pool.put_waiting(block);
        });
    }

    /// Checks in a swept block in which items stay: at its old place in the queue, or as if it had
    /// just been closed.
    pub(crate) fn put_back(&self, block: Block, is_renewed: bool, swept: Swept) {
        self.put_down(|pool| {
            pool.note_swept(block, swept);
            pool.put_back(block, is_renewed);
        });
    }

    /// See [`BlockPool::next_due`].
    pub(crate) fn next_due(&self, now: u32) -> Option<Victim> {
        self.pool().next_due(now)
    }

    /// See [`BlockPool::begin_round`].
    pub(crate) fn begin_round(&self, line: u64) -> usize {
        self.pool().begin_round(line)
    }

    /// See [`BlockPool::look_around`].
    pub(crate) fn look_around(&self, left: &mut usize, is_due: impl Fn(Block) -> bool) -> Option<Victim> {
        self.pool().look_around(left, is_due)
    }

    /// Counts a background pass that examined items.
    pub(crate) fn count_pass(&self) {
        self.pool().sweeps.passes += 1;
    }
}

impl Drop for ItemAllocator {
    fn drop(&mut self) {
        // The table's resizer may still read freed items.
        wait_for_readers();
        let open =
            self.stripes.iter_mut().flat_map(|stripe| get_mut(&mut stripe.open).iter_mut().filter_map(Option::take));
        get_mut(&mut self.pool).tear_down(open, &self.pinned);
    }
}

fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::reader::Reader;

    /// Reserved memory is refused to other threads, even if it is free.
    #[test]
    fn a_reservation_excludes_other_threads() {
        let allocator = ItemAllocator::new(1 << 20).unwrap();
        let (reserved, other) = (500_000, 600_000);
        let allocate = |size| allocator.allocate(size, AllocContext::NoLock, || 0).is_ok();
        let by_another = |size| thread::scope(|scope| scope.spawn(|| allocate(size)).join().expect("no panic"));
        let reservation = allocator.reserve(reserved);
        assert!(!by_another(other), "there is room, but it is reserved");
        assert!(by_another(100_000), "there is more room than is reserved");
        drop(reservation);
        assert!(by_another(other));

        let allocator = ItemAllocator::new(1 << 20).unwrap();
        let _reservation = allocator.reserve(reserved);
        assert!(
            allocator.allocate(other, AllocContext::NoLock, || 0).is_ok(),
            "the thread with the reservation may take all"
        );
    }

    /// When an allocator is dropped, readers may still read freed items.
    #[test]
    fn a_dropped_allocator_waits_for_readers() {
        let allocator = ItemAllocator::new(1 << 20).unwrap();
        let reader = Reader::enter();
        thread::scope(|scope| {
            let dropping = scope.spawn(|| drop(allocator));
            // A drop that does not wait ends within 100 ms. (Yields would take minutes on a busy
            // core.)
            let has_ended = (0..100).any(|_| {
                thread::sleep(std::time::Duration::from_millis(1));
                dropping.is_finished()
            });
            drop(reader);
            assert!(!has_ended, "a reader was there");
        });
    }
}
