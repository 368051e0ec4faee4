//! The memory of items: blocks, who puts items in them, and the limit on all of it.
//!
//! **Putting in.** Threads are spread over *stripes*, each with an open block per class. To make room for an item moves an end forward,
//! under a lock that is the thread's own as long as there are not more threads than stripes. A full block is closed and goes to the
//! queue of its class, and a free one takes its place: that is the one visit to the lock of all, once in some hundreds of items. An
//! item too large to share a block has one to its measure.
//!
//! **The limit** counts what is mapped, to the page: blocks open, queued, free, and waiting for readers, and the bytes that
//! the table takes. So items removed and not yet given back are in it, and what the system sees of the process is what is counted.
//! A block is mapped only when it fits.
//!
//! **Taking back.** A block to be evicted is taken out of its queue, so it has one sweeper. When all that was in it is unlinked, it
//! waits for a grace period, because readers may still look at its items, and is free. A few are kept waiting or free ahead
//! ([`Heap::victim_ahead`]), so that who needs one finds it, and what moves on finds room. Nobody waits for readers here: see
//! [`Heap::shortage`].
//!
//! **Why blocks and not size classes.** In slabs, items can be evicted one by one, but memory that one class has is lost for others
//! until someone empties a page of it, and sizes are rounded (memcached's factor of 1.25 loses 10 % on average). Blocks are all alike, so no
//! mix of sizes is worse than another, sizes are rounded to 8 bytes, and items need no place in free lists or queues.
//! What it costs: what moves on is copied (0.6 to 0.75 bytes per byte stored on the trace in [`policy`]), and what is overwritten
//! is dead until its block is swept. A block is swept early when a quarter of it is dead.

use super::block::{ALIGN, Block, HEADER, Place, footprint};
use super::policy::{self, CLASSES};
use crossbeam_utils::CachePadded;
use relativist_rcu::contention::Site;
use relativist_rcu::{GracePeriod, wait_for_readers};
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

static CENTRAL: Site = Site::new("heap_central");
static STRIPE: Site = Site::new("heap_stripe");

/// The smallest blocks, those of tiny heaps. Their beginnings lie as far apart as those of larger ones.
const SMALLEST_BLOCK: usize = 1 << 12;

/// Blocks that a heap should have at least, its limit permitting.
const FEWEST_BLOCKS: usize = 64;

/// Free blocks that are left to who moves items on.
const KEPT: usize = 2;

/// No room: the budget is used up, or the system has nothing left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutOfMemory {
    /// Bytes that were asked for.
    pub requested: usize,
}

/// The memory of one engine's items.
pub(super) struct Heap {
    /// Of an ordinary block.
    capacity: usize,
    stripes: Box<[CachePadded<Stripe>]>,
    /// Few blocks are free or about to be: whoever comes by should evict one.
    is_low: AtomicBool,
    limit: AtomicUsize,
    central: Mutex<Central>,
}

/// What some threads share.
struct Stripe {
    open: Mutex<[Option<Block>; CLASSES]>,
    /// Bytes of items linked by these threads, less those of items unlinked by them.
    linked: AtomicIsize,
}

/// All that is not open.
struct Central {
    /// By number. Blocks of a class come one after the other.
    queues: [BTreeMap<u64, Block>; CLASSES],
    /// Blocks of which much is dead.
    sparse: BTreeMap<u64, Block>,
    /// Swept, in the order of their grace periods.
    waiting: VecDeque<(GracePeriod, Block)>,
    free: Vec<Block>,
    /// The last block's number, and the priority of the last one evicted.
    number: u64,
    level: u64,
    /// Bytes mapped.
    mapped: usize,
    /// Bytes of the table, as last told.
    table: usize,
    /// Capacity of ordinary blocks.
    capacity: usize,
}

/// A block to be swept, and for what.
pub(super) struct Victim {
    pub(super) block: Block,
    pub(super) purpose: Purpose,
}

/// Why a block is swept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Purpose {
    /// Its turn has come: what has earned it moves on, the rest goes.
    Evict,
    /// Much of it is dead: the rest moves on.
    Compact,
    /// Something may have expired: the rest stays.
    Expire,
}

/// What can be done about a lack of room.
pub(super) enum Remedy {
    /// There is room.
    None,
    /// To sweep this block.
    Sweep(Victim),
    /// To wait for readers: enough memory waits for them, and more of it would wait longer.
    Wait(GracePeriod),
}

impl Heap {
    /// A heap that maps `limit` bytes at most.
    pub(super) fn new(limit: usize) -> Heap {
        let capacity = (limit / FEWEST_BLOCKS).clamp(SMALLEST_BLOCK, ALIGN) & !(SMALLEST_BLOCK - 1);
        // Twice as many as processors, so that threads rarely share; few where their open blocks would be much of the memory.
        let threads = available_parallelism().map_or(8, |threads| 2 * threads.get());
        let stripes = threads.min(limit / capacity / 64).clamp(1, 64);
        let stripe = || Stripe { open: Mutex::new([None; CLASSES]), linked: AtomicIsize::new(0) };
        Heap {
            capacity,
            stripes: (0..stripes).map(|_| CachePadded::new(stripe())).collect(),
            is_low: AtomicBool::new(false),
            limit: AtomicUsize::new(limit),
            central: Mutex::new(Central {
                queues: [const { BTreeMap::new() }; CLASSES],
                sparse: BTreeMap::new(),
                waiting: VecDeque::new(),
                free: Vec::new(),
                number: 0,
                level: 0,
                mapped: 0,
                table: 0,
                capacity,
            }),
        }
    }

    pub(super) fn limit(&self) -> usize {
        // Relaxed, here and in `set_limit`: a number that orders nothing.
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit. What is over it goes as items come.
    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
        self.is_low.store(true, Ordering::Relaxed);
    }

    /// Bytes of linked items.
    pub(super) fn linked(&self) -> usize {
        // Relaxed: a plain sum.
        let sum: isize = self.stripes.iter().map(|stripe| stripe.linked.load(Ordering::Relaxed)).sum();
        sum.max(0).unsigned_abs()
    }

    /// Bytes mapped for items: linked, dead, waiting for readers, and not yet any.
    pub(super) fn mapped(&self) -> usize {
        self.central().mapped
    }

    /// Counts an item of `bytes` as linked.
    pub(super) fn count_linked(&self, bytes: usize) {
        // Relaxed: a plain sum.
        self.stripe().linked.fetch_add(bytes.cast_signed(), Ordering::Relaxed);
    }

    /// Counts an item of `bytes` as unlinked.
    pub(super) fn count_unlinked(&self, bytes: usize) {
        self.count_linked(bytes.wrapping_neg());
    }

    fn stripe(&self) -> &Stripe {
        &self.stripes[relativist_rcu::read().thread_index() % self.stripes.len()]
    }

    /// The lock of all. Nobody waits under it for anything but other holders. Taken after a stripe's.
    fn central(&self) -> MutexGuard<'_, Central> {
        CENTRAL.lock(&self.central)
    }

    /// Room for an item of `bytes`, with a draft on its block. Evicts nothing and waits for nobody, so it may be called under a bucket's
    /// lock. The item is to be written before the draft is finished.
    ///
    /// Who moves items on may have the last free blocks. What the table takes is asked for when a block is needed.
    pub(super) fn allocate(
        &self,
        bytes: usize,
        is_moving: bool,
        table: impl FnOnce() -> usize,
    ) -> Result<NonNull<u8>, OutOfMemory> {
        let full = OutOfMemory { requested: bytes };
        let size = footprint(bytes);
        let class = policy::class(size);
        if self.is_large(size) {
            let mut central = self.central();
            central.table = table();
            let place = central.open_large(size, class, self.limit());
            self.note_low(&central);
            return place.ok_or(full);
        }
        let mut open = STRIPE.lock(&self.stripe().open);
        if let Some(place) = open[class].and_then(|block| block.take(size)) {
            return Ok(place);
        }
        let mut central = self.central();
        central.table = table();
        let kept = if is_moving { 0 } else { KEPT };
        let fresh = central.take_free(kept, self.limit());
        self.note_low(&central);
        let fresh = fresh.ok_or(full)?;
        if let Some(block) = open[class].replace(fresh) {
            central.close(block);
        }
        drop(central);
        fresh.open(class);
        fresh.take(size).ok_or(full)
    }

    /// Whether an item of `size` bytes has a block of its own. A smaller one leaves at most a quarter of one unused.
    pub(super) fn is_large(&self, size: usize) -> bool {
        size > (self.capacity - HEADER) / 4
    }

    /// Gives back room that was not used; the item there has been written, as far as its lengths.
    pub(super) fn abandon(&self, place: NonNull<u8>, bytes: usize) {
        let size = footprint(bytes);
        // SAFETY: the draft keeps the block.
        let block = unsafe { Block::of(place) };
        let open = STRIPE.lock(&self.stripe().open);
        let is_undone = open.contains(&Some(block)) && block.untake(place, size);
        drop(open);
        if !is_undone {
            // SAFETY: the draft keeps the block; the item was never alive for others.
            unsafe { self.bury(block, size) };
        }
        block.finish_draft();
    }

    /// An item of `size` bytes in the block is dead.
    ///
    /// # Safety
    /// As for [`Block::bury`].
    pub(super) unsafe fn bury(&self, block: Block, size: usize) {
        // SAFETY: the caller's promise.
        if unsafe { block.bury(size) } {
            self.central().move_to_sparse(block);
        }
    }

    /// A block to evict ahead of need, if few are free or about to be.
    pub(super) fn victim_ahead(&self, evicts: bool) -> Option<Victim> {
        // Relaxed, both: a hint. One of those who find it set goes on.
        let is_hinted = self.is_low.load(Ordering::Relaxed) && self.is_low.swap(false, Ordering::Relaxed);
        let mut central = is_hinted.then(|| self.central())?;
        self.has_few(&central).then(|| central.victim(evicts)).flatten()
    }

    fn note_low(&self, central: &Central) {
        if self.has_few(central) {
            // Relaxed: as in `victim_ahead`.
            self.is_low.store(true, Ordering::Relaxed);
        }
    }

    /// Whether fewer blocks than might be needed soon are free, wait for readers, or can still be mapped.
    fn has_few(&self, central: &Central) -> bool {
        let wanted = (KEPT + self.stripes.len()).min(1 + self.limit() / self.capacity / 16);
        let taken = central.mapped + central.table;
        let room = self.limit().saturating_sub(taken) / self.capacity;
        taken > self.limit() || central.free.len() + central.waiting.len() + room < wanted
    }

    /// What to do so that an item of `bytes` finds room; `None` if nothing can be done. With `evicts` unset only what is dead is taken back.
    pub(super) fn shortage(&self, bytes: usize, evicts: bool, table: usize) -> Option<Remedy> {
        let size = footprint(bytes);
        let is_large = self.is_large(size);
        let need = if is_large { Block::capacity_for(size) } else { self.capacity };
        let mut central = self.central();
        central.table = table;
        if need + table > self.limit() {
            return None;
        }
        central.harvest(self.limit());
        // An ordinary block has to be there beside those that are kept. They may be given back for a large one.
        let kept = if is_large { 0 } else { KEPT };
        let free = central.free.len().saturating_sub(kept) * self.capacity;
        let have = (self.limit() + free).saturating_sub(central.mapped + central.table);
        if need <= have {
            return Some(Remedy::None);
        }
        let waiting: usize = central.waiting.iter().map(|(_, block)| block.capacity()).sum();
        if need <= (self.limit() + free + waiting).saturating_sub(central.mapped + central.table) {
            return central.waiting.front().map(|&(grace, _)| Remedy::Wait(grace));
        }
        if let Some(victim) = central.victim(evicts) {
            return Some(Remedy::Sweep(victim));
        }
        drop(central);
        // All that is left is open, perhaps.
        if self.close_all(|_| true) {
            let mut central = self.central();
            return central.victim(evicts).map(Remedy::Sweep);
        }
        let central = self.central();
        central.waiting.front().map(|&(grace, _)| Remedy::Wait(grace))
    }

    /// Closes all open blocks that `wanted` says yes to; says whether there were any with items.
    pub(super) fn close_all(&self, wanted: impl Fn(Block) -> bool) -> bool {
        let mut any = false;
        for stripe in &self.stripes {
            let mut open = STRIPE.lock(&stripe.open);
            for slot in open.iter_mut() {
                if let Some(block) = slot.take_if(|block| wanted(*block)) {
                    block.cut();
                    self.central().close(block);
                    any = true;
                }
            }
        }
        any
    }

    /// A swept block in which nothing is alive. It waits for readers.
    pub(super) fn release(&self, block: Block) {
        let mut central = self.central();
        central.waiting.push_back((GracePeriod::start(), block));
        self.note_low(&central);
    }

    /// A swept block in which something stays: at its old place in the queue, or as if it had just been closed.
    pub(super) fn put_back(&self, block: Block, is_renewed: bool) {
        let mut central = self.central();
        if is_renewed {
            central.close(block);
        } else {
            central.enqueue(block);
        }
    }

    /// The queues of [`Heap::next_expired`].
    pub(super) const QUEUES: usize = CLASSES + 1;

    /// The next block of a queue, from number `from` on, that `is_due` says yes to, to be swept for what has expired in it, and where
    /// to go on. Looks at a limited number of them.
    pub(super) fn next_expired(
        &self,
        queue: usize,
        from: u64,
        is_due: impl Fn(Block) -> bool,
    ) -> (Option<Victim>, Option<u64>) {
        const AT_ONCE: usize = 256;
        let mut central = self.central();
        let Central { queues, sparse, .. } = &mut *central;
        let queue = queues.get_mut(queue).unwrap_or(sparse);
        let due = queue.range(from..).take(AT_ONCE).find(|&(_, &block)| is_due(block) && !block.has_drafts());
        let Some((&number, &block)) = due else {
            let rest = queue.range(from..).nth(AT_ONCE).map(|(&number, _)| number);
            return (None, rest);
        };
        queue.remove(&number);
        block.set_place(Place::Taken);
        (Some(Victim { block, purpose: Purpose::Expire }), Some(number + 1))
    }

    /// A block of which nothing is alive, to be taken back now.
    pub(super) fn next_dead(&self) -> Option<Victim> {
        let mut central = self.central();
        let (&number, &block) = central.sparse.iter().find(|(_, block)| block.is_dead() && !block.has_drafts())?;
        central.sparse.remove(&number);
        block.set_place(Place::Taken);
        Some(Victim { block, purpose: Purpose::Compact })
    }
}

impl Central {
    /// A free block, if more than `kept` are, or a new one, if it fits.
    fn take_free(&mut self, kept: usize, limit: usize) -> Option<Block> {
        self.harvest(limit);
        if self.free.len() > kept {
            return self.free.pop();
        }
        self.map(self.capacity, limit)
    }

    fn open_large(&mut self, size: usize, class: usize, limit: usize) -> Option<NonNull<u8>> {
        let capacity = Block::capacity_for(size);
        self.harvest(limit);
        while self.mapped + self.table + capacity > limit {
            let block = self.free.pop()?;
            self.unmap(block);
        }
        let block = self.map(capacity, limit)?;
        block.open(class);
        let place = block.take(size);
        self.close(block);
        place
    }

    fn map(&mut self, capacity: usize, limit: usize) -> Option<Block> {
        if self.mapped + self.table + capacity > limit {
            return None;
        }
        let block = Block::map(capacity)?;
        self.mapped += capacity;
        Some(block)
    }

    fn unmap(&mut self, block: Block) {
        self.mapped -= block.capacity();
        // SAFETY: it was free, so nobody has it and nothing in it is alive; its grace period has passed.
        unsafe { block.disown() };
    }

    /// Frees what has waited long enough, and gives back to the system what is over the limit or too large to be used again.
    fn harvest(&mut self, limit: usize) {
        while let Some((_, block)) = self.waiting.pop_front_if(|(grace, _)| grace.has_passed()) {
            if block.capacity() != self.capacity || self.mapped + self.table > limit {
                self.unmap(block);
            } else {
                // SAFETY: swept, and its grace period has passed.
                unsafe { block.scribble() };
                self.free.push(block);
            }
        }
        while self.mapped + self.table > limit
            && let Some(block) = self.free.pop()
        {
            self.unmap(block);
        }
    }

    /// Closes an open block, or one that is to be as if it just had been.
    fn close(&mut self, block: Block) {
        self.number += 1;
        block.close(self.number, self.level);
        self.enqueue(block);
    }

    fn enqueue(&mut self, block: Block) {
        if block.is_sparse() {
            block.set_place(Place::Sparse);
            self.sparse.insert(block.number(), block);
        } else {
            block.set_place(Place::Queue);
            self.queues[block.class()].insert(block.number(), block);
        }
    }

    fn move_to_sparse(&mut self, block: Block) {
        // Somebody may have been faster, or have taken it.
        if block.place() == Place::Queue && self.queues[block.class()].remove(&block.number()).is_some() {
            block.set_place(Place::Sparse);
            self.sparse.insert(block.number(), block);
        }
    }

    /// Takes the block that should go next.
    fn victim(&mut self, evicts: bool) -> Option<Victim> {
        let sparse = self.sparse.values().copied().find(|block| !block.has_drafts());
        if let Some(block) = sparse {
            self.sparse.remove(&block.number());
            block.set_place(Place::Taken);
            return Some(Victim { block, purpose: Purpose::Compact });
        }
        if !evicts {
            return None;
        }
        let oldest = |queue: &BTreeMap<u64, Block>| queue.values().copied().find(|block| !block.has_drafts());
        let priority = |block: &Block| block.stamp() + policy::worth(block.class());
        let block = self.queues.iter().filter_map(oldest).min_by_key(priority)?;
        self.queues[block.class()].remove(&block.number());
        self.level = self.level.max(priority(&block));
        block.set_place(Place::Taken);
        Some(Victim { block, purpose: Purpose::Evict })
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // The table's resizer may still look at items that are gone.
        wait_for_readers();
        let open =
            self.stripes.iter_mut().flat_map(|stripe| mem::take(get_mut(&mut stripe.open)).into_iter().flatten());
        let central = get_mut(&mut self.central);
        let queued = mem::take(&mut central.queues).into_iter().flat_map(BTreeMap::into_values);
        let sparse = mem::take(&mut central.sparse).into_values();
        let waiting = mem::take(&mut central.waiting).into_iter().map(|(_, block)| block);
        let free = mem::take(&mut central.free).into_iter();
        for block in open.chain(queued).chain(sparse).chain(waiting).chain(free) {
            // SAFETY: the engine is gone, so nobody looks at items but its table, which buries those it has.
            unsafe { block.disown() };
        }
    }
}

fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}
