//! The readers of a private domain: one slot per guard, in stripes, one per thread.
//!
//! A thread takes the slots for its guards from its own stripe, so threads do not share cache
//! lines. A guard may be dropped by any thread, which frees the slot. So a slot changes hands
//! without a read-modify-write: only the thread that owns the stripe takes a free slot, and only
//! the holder of the guard frees it.
//!
//! The owner of a stripe is the thread with its [index](crate::Guard::thread_index). When that
//! thread exits, a later one gets the index, and with it the stripe, the slots that guards still
//! hold, and the functions that the thread has deferred. So a domain need not know when threads
//! exit, and threads need not know when a domain is dropped.

use std::cell::Cell;
use std::ptr::{NonNull, null, null_mut};

use crate::defer::Reclaiming;
use crate::domain::{GracePeriods, Readers};
use crate::queue::{Deferred, Queue};
use relativist_core::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use relativist_core::sync::{self, global, local};

/// The number on entry of the section whose guard has the slot, or [`FREE`].
pub(crate) struct GuardSlot(AtomicU64);

/// No guard has the slot. The counter of grace periods never takes this value.
const FREE: u64 = 0;

impl GuardSlot {
    /// Returns whether the owner of the stripe may take the slot.
    #[inline(always)]
    pub(crate) fn is_free(&self) -> bool {
        // Acquire: pairs with the Release in `leave`, perhaps by another thread. A driver that sees
        // the next section in this slot sees the end of this one.
        // litmus: guard-migrated
        self.0.load(Acquire) == FREE
    }

    /// Begins a section. Called by the owner of the stripe, if the slot is free.
    #[inline(always)]
    pub(crate) fn enter(&self, number: u64) {
        // Release: pairs with the Acquire in `has_reader_before`, as in `Guard`.
        // litmus: entry-fence, next-section, guard-migrated
        self.0.store(number, Release);
    }

    /// Ends the section. Called by the thread that drops the guard.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        // Release: pairs with the Acquire in `has_reader_before`: the section's reads happen before
        // the end of the grace period. Also pairs with the Acquire in `is_free`.
        // litmus: leave, guard-migrated, membarrier-after-leave
        self.0.store(FREE, Release);
    }
}

local! {
    /// The slot that the thread took last, in any domain. Has no destructor, so a thread can use it
    /// at any time until it ends.
    static RECENT: Cell<Recent> = Cell::new(Recent::NONE);
}

/// A slot of the calling thread's stripe in a domain, which may have been dropped.
#[derive(Clone, Copy)]
pub(crate) struct Recent {
    /// The number of the domain. No other domain ever has it.
    domain: u64,
    slot: *const GuardSlot,
}

impl Recent {
    const NONE: Self = Self { domain: 0, slot: null() };

    /// Returns the slot, if it is one of this domain. Then the calling thread owns its stripe.
    #[inline(always)]
    pub(crate) fn slot_in(domain: &Stripes) -> Option<&GuardSlot> {
        let recent = RECENT.with(Cell::get);
        // SAFETY: a slot of this domain, which lives as long as the domain.
        (recent.domain == domain.number).then(|| unsafe { &*recent.slot })
    }

    pub(crate) fn set(domain: &Stripes, slot: &GuardSlot) {
        RECENT.with(|recent| recent.set(Self { domain: domain.number, slot }));
    }

    /// Called when the calling thread gives its index back, and with it its stripes.
    pub(crate) fn clear() {
        // An error means that loom has already destroyed it.
        let _ = RECENT.try_with(|recent| recent.set(Self::NONE));
    }
}

/// The number of slots that are allocated together: two cache lines, because processors fetch lines
/// in pairs. Few under loom, so that short models need a second block.
const SLOTS: usize = if cfg!(relativist_loom) { 1 } else { 16 };

#[repr(align(128))]
struct Line([GuardSlot; SLOTS]);

impl Line {
    fn new() -> Self {
        Self(std::array::from_fn(|_| GuardSlot(AtomicU64::new(FREE))))
    }
}

/// Some slots of a stripe. Each block has twice the lines of the one before.
struct Block {
    lines: Box<[Line]>,
    /// The block before. Never changes.
    next: *const Block,
}

impl Block {
    fn slots(&self) -> usize {
        self.lines.len() * SLOTS
    }

    /// Returns the number of slots of this block and the older ones.
    fn slots_with_older(&self) -> usize {
        (2 * self.lines.len() - 1) * SLOTS
    }

    fn next(&self) -> Option<&Self> {
        // SAFETY: null, or a block that lives as long as this one.
        unsafe { self.next.as_ref() }
    }

    fn slot(&self, index: usize) -> &GuardSlot {
        &self.lines[index / SLOTS].0[index % SLOTS]
    }
}

/// The part of a domain that belongs to one thread.
#[repr(align(128))]
pub(crate) struct Stripe {
    /// The slot that the owner took last, or null. It is probably free again. Used by the owner
    /// only.
    last: sync::Cell<*const GuardSlot>,
    /// The block, and the place there, after the slot that a search has found last. Used by the
    /// owner only.
    cursor: sync::Cell<(*const Block, usize)>,
    /// The newest block, or null.
    blocks: AtomicPtr<Block>,
    /// The functions that the owner has deferred.
    pub(crate) queue: Queue,
}

// SAFETY: `last` and `cursor` are used only by the owner of the stripe. Threads get an index, and
// with it a stripe, by an Acquire exchange, and return it by a Release store (`registry.rs`), so
// accesses of successive owners are ordered. Slots are atomic; blocks never change, and live as
// long as the stripe. `Queue` has its own argument.
unsafe impl Sync for Stripe {}
// SAFETY: as above: nothing belongs to the thread that made it.
unsafe impl Send for Stripe {}

impl Stripe {
    fn new() -> Self {
        Self {
            last: sync::Cell::new(null()),
            cursor: sync::Cell::new((null(), 0)),
            blocks: AtomicPtr::new(null_mut()),
            queue: Queue::new(),
        }
    }

    /// Returns a free slot. The caller owns the stripe. If the slot that it took last is not free,
    /// looks at no more slots than the stripe has, and allocates more if guards hold all of them.
    pub(crate) fn free_slot(&self) -> &GuardSlot {
        // SAFETY: null, or a slot of this stripe.
        match unsafe { self.last.get().as_ref() } {
            Some(slot) if slot.is_free() => slot,
            _ => self.find_free_slot(),
        }
    }

    /// Looks at the slots after the last ones that were taken so. If guards hold half of all slots
    /// in a row, adds a block: so there are at most about four times as many slots as there were
    /// guards at a time, and few of those that are looked at are not free.
    fn find_free_slot(&self) -> &GuardSlot {
        let Some(newest) = self.newest() else { return self.add_block() };
        let (block, mut index) = self.cursor.get();
        // SAFETY: null, or a block that lives as long as the stripe.
        let mut block = unsafe { block.as_ref() }.unwrap_or(newest);
        for _ in 0..newest.slots_with_older().div_ceil(2) {
            if index == block.slots() {
                (block, index) = (block.next().unwrap_or(newest), 0);
            }
            let slot = block.slot(index);
            index += 1;
            if slot.is_free() {
                return self.take(slot, (block, index));
            }
        }
        self.add_block()
    }

    fn take<'s>(&'s self, slot: &'s GuardSlot, cursor: (*const Block, usize)) -> &'s GuardSlot {
        self.last.set(slot);
        self.cursor.set(cursor);
        slot
    }

    /// Adds a block. Returns a free slot.
    fn add_block(&self) -> &GuardSlot {
        let next = self.newest();
        let lines = next.map_or(1, |block| 2 * block.lines.len());
        let next = next.map_or(null(), std::ptr::from_ref);
        let block = Box::new(Block { lines: (0..lines).map(|_| Line::new()).collect(), next });
        // Relaxed: only the owner writes it. A global allocator that uses the domain itself may
        // have added a block.
        if self.blocks.load(Relaxed).cast_const() != next {
            return self.find_free_slot();
        }
        let block = Box::into_raw(block);
        // Release: pairs with the Acquire in `slots`: other threads see the block as it was made.
        // litmus: stripe-pushed, stripe-unseen
        self.blocks.store(block, Release);
        // SAFETY: it lives as long as the stripe.
        self.take(unsafe { &*block }.slot(0), (block, 1))
    }

    /// Returns the newest block. Called by the owner.
    fn newest(&self) -> Option<&Block> {
        // Relaxed: only the owner writes it.
        // SAFETY: null, or a block that lives as long as the stripe.
        unsafe { self.blocks.load(Relaxed).as_ref() }
    }

    /// Returns all slots.
    fn slots(&self) -> impl Iterator<Item = &GuardSlot> {
        // Acquire: pairs with the Release in `add_block`.
        // litmus: stripe-pushed, stripe-unseen
        // SAFETY: null, or a block that lives as long as the stripe.
        let newest = unsafe { self.blocks.load(Acquire).as_ref() };
        std::iter::successors(newest, |block| block.next()).flat_map(|block| &block.lines).flat_map(|line| &line.0)
    }
}

impl Drop for Stripe {
    fn drop(&mut self) {
        // Relaxed: no other thread uses it.
        let mut next = self.blocks.load(Relaxed);
        while !next.is_null() {
            // SAFETY: `add_block` made it, and no guard is left: guards borrow the domain.
            next = unsafe { Box::from_raw(next) }.next.cast_mut();
        }
    }
}

/// The number of levels. Level *n* has 2^*n* stripes, so this is enough for all threads that a
/// system can have.
const LEVELS: usize = if cfg!(relativist_loom) { 3 } else { 24 };

global! {
    /// The number of private domains that were created.
    fn domains() -> AtomicU64 = AtomicU64::new(0);
}

/// The stripes of all threads, by their indexes. Never shrinks, so that threads find a stripe
/// without a lock, and stripes stay where they are.
pub(crate) struct Stripes {
    /// Distinguishes the domain from all others of the process, also from those that were dropped.
    number: u64,
    levels: [AtomicPtr<Stripe>; LEVELS],
}

impl Stripes {
    pub(crate) fn new() -> Self {
        // Relaxed: only distinctness matters.
        let number = domains().fetch_add(1, Relaxed) + 1;
        Self { number, levels: std::array::from_fn(|_| AtomicPtr::new(null_mut())) }
    }

    /// Returns the level of a thread, and its place there. The index of unregistered threads gives
    /// a level that does not exist.
    fn place(index: usize) -> (usize, usize) {
        let number = index.saturating_add(1);
        let level = number.ilog2() as usize;
        (level, number - (1 << level))
    }

    /// Returns the stripe of the thread with this index, if it has one.
    pub(crate) fn get(&self, index: usize) -> Option<&Stripe> {
        let (level, place) = Self::place(index);
        // Acquire: pairs with the AcqRel in `get_or_add`: the stripes are seen as they were made.
        // litmus: stripe-added, stripe-unseen
        let stripes = NonNull::new(self.levels.get(level)?.load(Acquire))?;
        // SAFETY: a level is null, or this number of stripes that live as long as the domain.
        Some(unsafe { stripes.add(place).as_ref() })
    }

    /// Returns the stripe of the thread with this index. Aborts if there is no memory for it.
    pub(crate) fn get_or_add(&self, index: usize) -> &Stripe {
        if let Some(stripe) = self.get(index) {
            return stripe;
        }
        let (level, _) = Self::place(index);
        let new: Box<[Stripe]> = (0..1_usize << level).map(|_| Stripe::new()).collect();
        let new = Box::into_raw(new);
        // AcqRel: Release pairs with the Acquire in `get` and `iter`. Acquire is not needed.
        // litmus: stripe-added, stripe-unseen
        if self.levels[level].compare_exchange(null_mut(), new.cast(), AcqRel, Relaxed).is_err() {
            // SAFETY: made above, and no other thread has it.
            drop(unsafe { Box::from_raw(new) });
        }
        self.get(index).expect("added by this thread or by another one")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stripe> {
        self.levels.iter().enumerate().flat_map(|(level, stripes)| {
            // Acquire: as in `get`.
            // litmus: stripe-added, stripe-unseen
            let stripes = NonNull::new(stripes.load(Acquire));
            // SAFETY: as in `get`.
            stripes.map_or(&[][..], |stripes| unsafe { std::slice::from_raw_parts(stripes.as_ptr(), 1 << level) })
        })
    }

    /// Runs all deferred functions.
    pub(crate) fn run_all(&mut self) {
        for (level, stripes) in self.levels.iter_mut().enumerate() {
            // Relaxed: no other thread uses it.
            if let Some(stripes) = NonNull::new(stripes.load(Relaxed)) {
                // SAFETY: as in `get`, and no other thread uses them.
                let stripes = unsafe { std::slice::from_raw_parts_mut(stripes.as_ptr(), 1 << level) };
                stripes.iter_mut().for_each(|stripe| stripe.queue.run_all());
            }
        }
    }
}

impl Drop for Stripes {
    fn drop(&mut self) {
        for (level, stripes) in self.levels.iter().enumerate() {
            // Relaxed: no other thread uses it.
            let stripes = stripes.load(Relaxed);
            if !stripes.is_null() {
                // SAFETY: a boxed slice of this length that `get_or_add` has leaked.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(stripes, 1 << level)) });
            }
        }
    }
}

impl Readers for Stripes {
    fn has_reader_before(&self, number: u64) -> bool {
        let blocks = |slot: &GuardSlot| {
            // Acquire: pairs with the Release stores in `enter` and `leave`: the section happens
            // before the end of the grace period.
            // litmus: leave, next-section, guard-migrated
            let entered = slot.0.load(Acquire);
            entered != FREE && entered < number
        };
        self.iter().flat_map(Stripe::slots).any(blocks)
    }
}

/// Appends a function to the queue of a stripe, which the caller owns, and returns whether it is
/// time to reclaim.
pub(crate) fn push(stripe: &Stripe, deferred: Deferred) -> bool {
    stripe.queue.push(deferred);
    let is_due = stripe.queue.is_due();
    if is_due {
        stripe.queue.set_due();
    }
    is_due
}

/// Runs what is due: first of the stripe, if one is given, then of threads that have not reclaimed
/// themselves since the last call. Stops when the quota is used up.
pub(crate) fn reclaim(domain: &GracePeriods<Stripes>, own: Option<&Stripe>, quota: &mut Quota<'_>) {
    let marked = quota.marked;
    if let Some(stripe) = own {
        stripe.queue.drain(domain, marked, || quota.count());
    }
    for stripe in domain.registry.iter().filter(|stripe| stripe.queue.pending().0 > 0) {
        if quota.is_used_up() {
            return;
        }
        stripe.queue.drain_if_stale(domain, marked, || quota.count());
    }
}

/// What a thread may run of the functions of a private domain: a number of them, and no more after
/// these have deferred a batch in the domain of the process.
pub(crate) struct Quota<'m> {
    left: u64,
    marked: &'m Reclaiming,
}

impl<'m> Quota<'m> {
    pub(crate) fn new(functions: u64, marked: &'m Reclaiming) -> Self {
        Self { left: functions, marked }
    }

    /// Counts a function that has run. Returns whether another one may.
    fn count(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        !self.is_used_up()
    }

    fn is_used_up(&self) -> bool {
        self.left == 0 || self.marked.is_due()
    }

    /// Returns whether the thread goes on when it has room in the domain of the process again.
    pub(crate) fn is_suspended(&self) -> bool {
        self.left > 0 && self.marked.is_due()
    }
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use std::cell::OnceCell;
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};

    use super::Recent;
    use crate::{Barrier, Domain, active_barrier};

    /// When dropped, reports whether the thread still knows a slot of the domain.
    struct Late(Arc<Domain>, Sender<bool>);

    impl Drop for Late {
        fn drop(&mut self) {
            let knows = || Recent::slot_in(&self.0.state.registry).is_some();
            let before = knows();
            drop(self.0.read());
            self.1.send(before || knows()).unwrap();
        }
    }

    thread_local! {
        static LATE: OnceCell<Late> = const { OnceCell::new() };
    }

    /// D1: a thread that has given its index back takes no slot of the stripe, which may have
    /// another owner.
    #[test]
    fn an_exiting_thread_forgets_its_slot() {
        let domain = Arc::new(Domain::new());
        let (send, knows) = channel();
        std::thread::spawn({
            let domain = Arc::clone(&domain);
            move || {
                // Used before this crate's own variable, and so destroyed after it.
                LATE.with(|late| late.set(Late(Arc::clone(&domain), send)).ok().unwrap());
                drop(domain.read());
                assert!(Recent::slot_in(&domain.state.registry).is_some() || active_barrier() == Barrier::Fence);
            }
        })
        .join()
        .unwrap();
        assert!(!knows.recv().unwrap(), "knows a slot of a stripe that it does not own");
    }
}
