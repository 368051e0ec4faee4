//! Blocks: the pieces of memory that items lie in.
//!
//! A block begins at a multiple of [`SLOT`], and all items' first bytes are less than that behind it: the block of an item is
//! found by its address. Items are put one behind the other and never move; a block is given to new ones as a whole, after a grace
//! period, or given back to the system. So there is nothing to fragment but addresses, of which there are plenty: an ordinary block
//! holds items of any size, and a large item has a block to its measure, to the page.
//!
//! **Who may do what.** While a block is open, one thread at a time puts items in, holding its stripe's lock. Whoever makes an
//! item there holds the block by a *draft*, until the item is linked or given up. A closed block without drafts has all its items
//! written, and gets no more; who takes it out of its queue may walk over them. `live_bytes` counts the bytes of items that are not dead yet,
//! their drafts, and the heap's own claim. It frees the block of the last item where the heap is gone before the table, which happens when a
//! resize outlives the engine. `pins` counts who sends items from where they lie, see [`crate::memory::pin`].

use crate::expiry::Expiry;
use crate::memory::arena;
use crate::memory::arena::SLOT;
use crate::memory::poison;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Alignment of items, as of their links.
const ITEM_ALIGN: usize = 8;

/// What a block occupies comes in these.
const PAGE: usize = 4096;

/// Bytes at the start of a block that items can't have.
pub(crate) const HEADER: usize = size_of::<Header>();

/// The heap's own claim on a block, beside the bytes of its items.
const ALLOCATOR_REF: usize = 1 << 62;

/// The claim of an item in the making.
const PENDING_ITEM: usize = 1 << 40;

/// In `pins`: the heap has let go of the block, which comes back with the last loan.
const RELEASED: u32 = 1 << 31;

/// `due` of a block in which nothing expires.
pub(crate) const NEVER: u32 = u32::MAX;

#[repr(C, align(64))]
struct Header {
    /// In pages.
    capacity: u32,
    /// Its second in the index of due blocks; `NEVER` if it is not there. Written under the lock of
    /// the queues.
    indexed: AtomicU32,
    /// Bytes taken, this header included. Written under the stripe's lock.
    used: AtomicUsize,
    /// Bytes of items that are not dead, [`PENDING_ITEM`] for each in the making, and [`ALLOCATOR_REF`] while the heap has the block.
    live_bytes: AtomicUsize,
    /// Place in its queue, and the level when it was closed. Written under the lock of the queues.
    number: AtomicU64,
    stamp: AtomicU64,
    /// No item has a lower number.
    first_number: AtomicU64,
    /// The background need not sweep it before this second: no item expires earlier, or too few do.
    due: AtomicU32,
    /// Who has it on loan, and [`RELEASED`].
    pins: AtomicU32,
    class: AtomicU8,
    place: AtomicU8,
    is_closed: AtomicBool,
    /// Closed before it was full: what is unused counts as dead.
    is_cut: AtomicBool,
}

/// Where a block is, as the heap knows. Changed under the lock of the queues.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Place {
    /// In a stripe, where items are put in.
    Open,
    /// In the queue of its class.
    Queue,
    /// Among those of which much is dead.
    Compactable,
    /// In the hands of who sweeps it, or waiting for readers, or free.
    Taken,
}

/// What follows from the end of a loan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UnpinOutcome {
    /// Others have the block on loan.
    StillPinned,
    /// Nobody has it on loan any more; the heap has it.
    Unpinned,
    /// Nobody has it at all, but the caller.
    Returned,
}

/// A block that the heap has. Copies are the same block; what each may do with it says the top of this file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Block(NonNull<Header>);

// SAFETY: all fields that change are atomic, and the items' contents are handed over by locks and by drafts.
unsafe impl Send for Block {}

impl Block {
    /// Bytes of a block that has room for `bytes` of items.
    pub(crate) fn capacity_for(bytes: usize) -> usize {
        (HEADER + bytes).next_multiple_of(PAGE)
    }

    /// A new block of `capacity` bytes, a multiple of the page size.
    ///
    /// # Safety
    /// `start` was taken from an arena, for so many bytes, and nobody else has it.
    pub(crate) unsafe fn create(start: NonNull<u8>, capacity: usize) -> Block {
        let header = start.cast::<Header>();
        // SAFETY: the caller's memory, aligned to more than the header needs, and larger.
        unsafe {
            poison::unpoison(start, HEADER);
            header.write(Header {
                capacity: (capacity / PAGE) as u32,
                indexed: AtomicU32::new(NEVER),
                used: AtomicUsize::new(HEADER),
                live_bytes: AtomicUsize::new(ALLOCATOR_REF),
                number: AtomicU64::new(0),
                stamp: AtomicU64::new(0),
                first_number: AtomicU64::new(u64::MAX),
                due: AtomicU32::new(NEVER),
                pins: AtomicU32::new(0),
                class: AtomicU8::new(0),
                place: AtomicU8::new(Place::Taken as u8),
                is_closed: AtomicBool::new(false),
                is_cut: AtomicBool::new(false),
            });
        }
        let block = Block(header);
        block.poison();
        block
    }

    /// Lets the system have its memory, and returns its address, which is no block any more.
    ///
    /// # Safety
    /// Nothing in it is alive, and the caller alone has it.
    pub(crate) unsafe fn discard(self) -> NonNull<u8> {
        let capacity = self.capacity();
        // SAFETY: the caller's promise; a block is a run of an arena.
        unsafe {
            arena::discard(self.0.cast(), capacity);
            poison::poison(self.0.cast(), capacity);
        }
        self.0.cast()
    }

    /// Gives up the heap's claim. If that was the last, the caller has the block's memory now, where no block is any more; otherwise it goes
    /// when the last item does.
    ///
    /// # Safety
    /// The caller is the last to have the block, but for items that are not dead, and no reader looks at dead ones.
    pub(crate) unsafe fn detach(self) -> Option<(NonNull<u8>, usize)> {
        let capacity = self.capacity();
        (self.sub_live(ALLOCATOR_REF) == 0).then_some((self.0.cast(), capacity))
    }

    /// Counts `bytes` less as owed, and says what is left: if nothing is, the block is the caller's.
    fn sub_live(self, bytes: usize) -> usize {
        // SeqCst: see `free_item`. Also Release and Acquire: whoever frees the block does it after all others are done.
        self.header().live_bytes.fetch_sub(bytes, Ordering::SeqCst) - bytes
    }

    /// [`Block::free_item`] for the items of a table that is torn down, while its heap may be, too, on another thread.
    ///
    /// # Safety
    /// An item of this size was alive, and nobody uses it, or needs to know that it is gone.
    pub(crate) unsafe fn sub_live_at_teardown(self, size: usize) {
        let capacity = self.capacity();
        if self.sub_live(size) == 0 {
            // SAFETY: the heap has given it up, and nothing is left that uses it.
            unsafe { arena::unmap(self.0.cast(), capacity) };
        }
    }

    /// One more has it on loan. True if nobody had.
    ///
    /// # Safety
    /// The heap has not let go of it, and waits for the caller before it does.
    pub(crate) unsafe fn pin(self) -> bool {
        // Relaxed: the heap lets go of a block after a grace period, or has it in hand, and so sees this.
        self.header().pins.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// The same if somebody has it on loan already; otherwise nothing happens.
    ///
    /// # Safety
    /// As of [`Block::pin`].
    pub(crate) unsafe fn pin_again(self) -> bool {
        let more = |pins: u32| (pins > 0).then_some(pins + 1);
        // Relaxed, both: as in `pin`.
        self.header().pins.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Whether somebody has it on loan now.
    pub(crate) fn is_pinned(self) -> bool {
        // Relaxed: a hint. Who has to know asks by `release`.
        self.header().pins.load(Ordering::Relaxed) & !RELEASED > 0
    }

    /// The caller, who alone has it, has it on loan, and the heap has let go of it.
    pub(crate) fn pin_released(self) {
        // Relaxed: nobody else has it.
        self.header().pins.store(1 | RELEASED, Ordering::Relaxed);
    }

    /// The heap has it again, which had let go of it. The caller has the only loan.
    pub(crate) fn attach(self) {
        // Relaxed: others get to know the block under the lock of the queues.
        self.header().pins.store(1, Ordering::Relaxed);
    }

    /// A loan ends.
    ///
    /// # Safety
    /// The caller had the block on loan, and does not use it any more unless it [comes back](UnpinOutcome::Returned).
    pub(crate) unsafe fn unpin(self) -> UnpinOutcome {
        // Release: what was done with the block is done, for who has it then (the Acquire below, in `release`, or here). Acquire: the
        // same, of other pins and of the heap.
        match self.header().pins.fetch_sub(1, Ordering::AcqRel) {
            1 => UnpinOutcome::Unpinned,
            last if last == 1 | RELEASED => {
                // Relaxed: the caller alone has it.
                self.header().pins.store(0, Ordering::Relaxed);
                UnpinOutcome::Returned
            }
            _ => UnpinOutcome::StillPinned,
        }
    }

    /// The heap, which nobody will ask for another loan of it, lets go of a block. True if nobody has it on loan, so that it is the
    /// caller's; otherwise it comes back with the last loan.
    pub(crate) fn release(self) -> bool {
        // Acquire and Release: with `unpin`.
        let is_free = self.header().pins.fetch_or(RELEASED, Ordering::AcqRel) == 0;
        if is_free {
            // Relaxed: the caller alone has it.
            self.header().pins.store(0, Ordering::Relaxed);
        }
        is_free
    }

    /// The block of the item at `address`.
    ///
    /// # Safety
    /// There is an item, whose memory is not given back while the block is used.
    pub(crate) unsafe fn of(address: NonNull<u8>) -> Block {
        // Blocks begin at multiples of this, and items within less of their beginning.
        let start = address.as_ptr().map_addr(|address| address & !(SLOT - 1));
        // SAFETY: the block's address is not null.
        Block(unsafe { NonNull::new_unchecked(start.cast()) })
    }

    fn header(&self) -> &Header {
        // SAFETY: whoever has a block has its header; all that changes in it is atomic.
        unsafe { self.0.as_ref() }
    }

    /// Where its first item is.
    pub(crate) fn first(self) -> NonNull<u8> {
        // SAFETY: a block is larger than its header.
        unsafe { self.0.cast::<u8>().add(HEADER) }
    }

    /// What is mapped for it.
    pub(crate) fn capacity(self) -> usize {
        self.header().capacity as usize * PAGE
    }

    /// Makes a block without items new, for items of `class`.
    pub(crate) fn open(self, class: usize) {
        let header = self.header();
        // Relaxed, all: the caller alone has it; others get to know it by locks.
        header.used.store(HEADER, Ordering::Relaxed);
        header.live_bytes.store(ALLOCATOR_REF, Ordering::Relaxed);
        header.first_number.store(u64::MAX, Ordering::Relaxed);
        header.due.store(NEVER, Ordering::Relaxed);
        header.class.store(class as u8, Ordering::Relaxed);
        header.is_closed.store(false, Ordering::Relaxed);
        header.is_cut.store(false, Ordering::Relaxed);
        self.set_place(Place::Open);
    }

    /// Nobody looks at what was in the block.
    pub(crate) fn poison(self) {
        // SAFETY: behind the header, within the mapping.
        unsafe { poison::poison(self.first(), self.capacity() - HEADER) };
    }

    /// The caller, who alone has the block, writes the first `size` bytes of items before they are [taken](Self::take).
    pub(crate) fn unpoison(self, size: usize) {
        // SAFETY: behind the header, within the mapping.
        unsafe { poison::unpoison(self.first(), size) };
    }

    /// In debug builds, spoils what was in the block, so that tests notice who still looks at it.
    ///
    /// # Safety
    /// Nobody else has the block, and nobody looks at what was in it.
    pub(crate) unsafe fn fill_debug_pattern(self) {
        if cfg!(debug_assertions) && !poison::IS_USED {
            // SAFETY: the caller's promise; within the mapping.
            unsafe { self.0.cast::<u8>().add(HEADER).write_bytes(0xdb, self.capacity() - HEADER) };
        }
    }

    /// Room for an item of `size` bytes, a multiple of its alignment, and a draft on it. The caller holds the stripe's lock.
    pub(crate) fn take(self, size: usize) -> Option<NonNull<u8>> {
        let header = self.header();
        // Relaxed, all: under the stripe's lock; the lock of the queues hands it on.
        let used = header.used.load(Ordering::Relaxed);
        if used + size > self.capacity() {
            return None;
        }
        header.used.store(used + size, Ordering::Relaxed);
        header.live_bytes.fetch_add(size + PENDING_ITEM, Ordering::Relaxed);
        // SAFETY: within the capacity.
        unsafe {
            let place = self.0.cast::<u8>().add(used);
            poison::unpoison(place, size);
            Some(place)
        }
    }

    /// Takes back room that was the last taken, of a draft that was given up. The caller holds the stripe's lock, and the block is
    /// open there.
    pub(crate) fn undo_take(self, place: NonNull<u8>, size: usize) -> bool {
        let header = self.header();
        // Relaxed, all: as in `take`.
        let used = header.used.load(Ordering::Relaxed);
        let is_last = place.addr().get() + size == self.0.addr().get() + used;
        if is_last {
            header.used.store(used - size, Ordering::Relaxed);
            header.live_bytes.fetch_sub(size, Ordering::Relaxed);
            // SAFETY: within the block, and nobody's.
            unsafe { poison::poison(place, size) };
        }
        is_last
    }

    /// An item is linked or given up.
    pub(crate) fn finish_pending(self) {
        // Release: pairs with the Acquire in `has_pending`: the item has been written, and linked.
        self.header().live_bytes.fetch_sub(PENDING_ITEM, Ordering::Release);
    }

    /// Whether items are in the making. Once false for a closed block, it stays false.
    pub(crate) fn has_pending(self) -> bool {
        // Acquire: pairs with the Release in `finish_pending`.
        self.header().live_bytes.load(Ordering::Acquire) & !ALLOCATOR_REF >= PENDING_ITEM
    }

    /// An item of `size` bytes is dead. Says whether the heap should know, because so much of the block is that it should be
    /// [sparse](Place::Compactable), if it isn't, or all of it.
    ///
    /// # Safety
    /// It was alive, and the block is not given back before the caller is done: the caller is in the read section in which it unlinked
    /// the item, or has a draft on the block, or sweeps it.
    pub(crate) unsafe fn free_item(self, size: usize) -> bool {
        let live_bytes = self.sub_live(size);
        // SeqCst, there and here, with those in `close` and `is_compactable`: either we find it closed, or who closes it finds the
        // item dead. Who sweeps it may put it back without having seen this, so only what is sparse already needs no word.
        self.is_quarter_freed(live_bytes)
            && self.header().is_closed.load(Ordering::SeqCst)
            && (self.place() != Place::Compactable || live_bytes == ALLOCATOR_REF)
    }

    /// The same of an item that is given up together with the draft, which may be the last thing that kept the block from being dead.
    ///
    /// # Safety
    /// As of [`Block::free_item`]. The caller is in a read section that began before.
    pub(crate) unsafe fn free_pending(self, size: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.free_item(size + PENDING_ITEM) }
    }

    /// To be called before a block is closed that is not full.
    pub(crate) fn cut(self) {
        // Relaxed: the lock under which the block is closed hands it on.
        self.header().is_cut.store(true, Ordering::Relaxed);
    }

    /// Closes the block: nothing is put in any more. The caller holds the lock of the queues.
    pub(crate) fn close(self, number: u64, stamp: u64) {
        let header = self.header();
        // Relaxed: under the lock of the queues.
        header.number.store(number, Ordering::Relaxed);
        header.stamp.store(stamp, Ordering::Relaxed);
        // SeqCst: see `free_item`.
        header.is_closed.swap(true, Ordering::SeqCst);
    }

    /// Whether all of a closed block is dead, and nothing in the making. Once true, it stays true.
    pub(crate) fn is_all_freed(self) -> bool {
        // SeqCst: as in `is_compactable`. All who have unlinked its items have done so before.
        self.header().live_bytes.load(Ordering::SeqCst) == ALLOCATOR_REF
    }

    /// Whether much of a closed block is dead.
    pub(crate) fn is_compactable(self) -> bool {
        // SeqCst: see `free_item`.
        self.is_quarter_freed(self.header().live_bytes.load(Ordering::SeqCst))
    }

    /// Whether as much of a closed block is dead as pays if nothing may be evicted. (What was cut off is not: nobody would gain by moving what
    /// fills a block but for that to one of which it leaves as much.)
    pub(crate) fn is_slightly_fragmented(self) -> bool {
        // Relaxed, both: hints, and what is used does not change once the block is closed.
        let header = self.header();
        self.freed_before(header.used.load(Ordering::Relaxed), header.live_bytes.load(Ordering::Relaxed))
            >= self.capacity() / 16
    }

    /// Whether a quarter is dead, with `live_bytes` as it is: then what moving the rest costs is three times what is won, and a heap full of
    /// items that are overwritten at random holds some 87 % of what it could.
    fn is_quarter_freed(self, live_bytes: usize) -> bool {
        let header = self.header();
        // Relaxed, both: they do not change once the block is closed.
        let is_cut = header.is_cut.load(Ordering::Relaxed);
        let end = if is_cut { self.capacity() } else { header.used.load(Ordering::Relaxed) };
        self.freed_before(end, live_bytes) >= self.capacity() / 4
    }

    /// Bytes before `end` that are not owed to anybody.
    fn freed_before(self, end: usize, live_bytes: usize) -> usize {
        (end - HEADER).saturating_sub(live_bytes % PENDING_ITEM)
    }

    pub(crate) fn place(self) -> Place {
        // Relaxed: changed under the lock of the queues; others look to save themselves the way there.
        match self.header().place.load(Ordering::Relaxed) {
            0 => Place::Open,
            1 => Place::Queue,
            2 => Place::Compactable,
            _ => Place::Taken,
        }
    }

    pub(crate) fn set_place(self, place: Place) {
        // Relaxed: as in `place`.
        self.header().place.store(place as u8, Ordering::Relaxed);
    }

    pub(crate) fn class(self) -> usize {
        // Relaxed, here and in the two below: set when the block changed hands, under a lock.
        self.header().class.load(Ordering::Relaxed).into()
    }

    pub(crate) fn number(self) -> u64 {
        self.header().number.load(Ordering::Relaxed)
    }

    pub(crate) fn stamp(self) -> u64 {
        self.header().stamp.load(Ordering::Relaxed)
    }

    /// An item in it has this number.
    pub(crate) fn note_number(self, number: u64) {
        let first = &self.header().first_number;
        // Relaxed, both: by who has a draft on the block or sweeps it, which hands it on.
        if number < first.load(Ordering::Relaxed) {
            first.fetch_min(number, Ordering::Relaxed);
        }
    }

    /// An item in it has got this expiry.
    pub(crate) fn note_expiry(self, expiry: Expiry) {
        if expiry != Expiry::NEVER {
            self.note_due(expiry.to_bits());
        }
    }

    /// Notes that it should be swept at `second` or earlier.
    pub(crate) fn note_due(self, second: u32) {
        let due = &self.header().due;
        // SeqCst: see `forget`.
        if second < due.load(Ordering::SeqCst) {
            due.fetch_min(second, Ordering::SeqCst);
        }
    }

    /// The second in which it should be swept, as far as known.
    pub(crate) fn due(self) -> u32 {
        // Relaxed: a hint. A thread that misses a change finds it in the next round.
        self.header().due.load(Ordering::Relaxed)
    }

    /// Whether the background should sweep it at `now`: something may have expired, or was stored before the flush that drew `line`, or
    /// nothing in it is alive.
    pub(crate) fn is_due(self, now: u32, line: u64) -> bool {
        let header = self.header();
        // Relaxed, both: as in `due`.
        self.due() <= now
            || header.first_number.load(Ordering::Relaxed) <= line
            || header.live_bytes.load(Ordering::Relaxed) == ALLOCATOR_REF
    }

    /// Its second in the index of due blocks.
    pub(crate) fn indexed(self) -> u32 {
        // Relaxed, here and below: under the lock of the queues.
        self.header().indexed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_indexed(self, second: u32) {
        self.header().indexed.store(second, Ordering::Relaxed);
    }

    /// Forgets what was noted: who walks over all items notes it anew. By who sweeps the block.
    pub(crate) fn forget(self) {
        // Relaxed: numbers don't change, so nobody else notes any.
        self.header().first_number.store(u64::MAX, Ordering::Relaxed);
        // SeqCst: pairs with the load in `note_due`; an item's expiry is stored before that load,
        // and read by the sweep after this store. So a thread that changes an expiry either finds
        // this value and notes its own, or the sweep finds the changed expiry.
        self.header().due.store(NEVER, Ordering::SeqCst);
    }

    /// The addresses of the items in it, dead ones included. `footprint` returns the bytes that the item at an address occupies.
    ///
    /// # Safety
    /// The block is closed and without drafts, and stays the caller's while the iterator is used.
    pub(crate) unsafe fn items(self, footprint: impl Fn(NonNull<u8>) -> usize) -> impl Iterator<Item = NonNull<u8>> {
        // Relaxed: written before the block was closed, under the lock that the caller took it by.
        let end = self.header().used.load(Ordering::Relaxed);
        let mut offset = HEADER;
        std::iter::from_fn(move || {
            (offset < end).then(|| {
                // SAFETY: items fill the block up to its end, one behind the other.
                let address = unsafe { self.0.cast::<u8>().add(offset) };
                offset += footprint(address);
                address
            })
        })
    }
}

/// What an item of so many bytes occupies.
pub(crate) fn footprint(bytes: usize) -> usize {
    bytes.next_multiple_of(ITEM_ALIGN)
}
