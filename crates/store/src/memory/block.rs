//! Blocks: the pieces of memory that hold items.
//!
//! A block begins at a multiple of [`SLOT`], and the first byte of each of its items is less than
//! that after it. So the block of an item is computed from the item's address. Items follow each
//! other and never move. A block is reused for new items only as a whole, after a grace period, or
//! given back to the system. So only addresses can fragment, and there are plenty of them: an
//! ordinary block holds items of any size, and a large item has a block of its own size, rounded up
//! to pages.
//!
//! **Access.** While a block is open, only a thread that holds the stripe's lock adds items. From
//! then until an item is linked or given up, the block counts it as *pending*. In a closed block
//! without pending items, all items are written, and no more are added; the thread that takes it
//! out of its queue may iterate over them. `live_bytes` counts the bytes of items that are not
//! freed yet, the pending items, and a reference of the allocator itself. If a resize outlives the
//! cache, the table outlives the allocator; the last freed item then unmaps the block. `pins`
//! counts the connections that use values in place, see [`crate::memory::block_ref`].
//!
//! **Numbers.** Items do not store a number of their own. A block draws one number for each
//! [`NUMBER_UNIT`] bytes when it is opened, and stores the first of them, its *base*. The number of
//! an item is the base and the item's place in these units. A block that is reused draws again. So
//! no two items have the same number, except an item and its copies, which store the number that
//! they have taken over.

use crate::expiry::Expiry;
use crate::memory::address_space::SLOT;
use crate::memory::arena;
use crate::memory::poison;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Alignment of items.
pub(crate) const ITEM_ALIGN: usize = 4;

/// The unit of a block's size.
const PAGE: usize = 4096;

/// Bytes per number of a block. No item is smaller.
pub(crate) const NUMBER_UNIT: usize = 16;

/// The bytes of the header at the start of a block.
pub(crate) const HEADER: usize = size_of::<Header>();

/// The allocator's own reference to a block, in `live_bytes`.
const ALLOCATOR_REF: usize = 1 << 62;

/// The reference of a pending item, in `live_bytes`.
const PENDING_ITEM: usize = 1 << 40;

/// The bit of `pins` that is set when the allocator has released the block. The last unpin returns
/// it then.
const RELEASED: u32 = 1 << 31;

/// The value of `due` for a block in which nothing expires.
pub(crate) const NEVER: u32 = u32::MAX;

#[repr(C, align(64))]
struct Header {
    /// The capacity in pages.
    capacity: u32,
    /// The block's second in the index of due blocks; `NEVER` if it is not there. Written under the
    /// pool's lock.
    indexed: AtomicU32,
    /// The bytes taken, including this header, in units of [`ITEM_ALIGN`]. Written under the
    /// stripe's lock.
    used: AtomicU32,
    /// The background need not sweep the block before this second: no item expires earlier, or too
    /// few do.
    due: AtomicU32,
    /// Bytes of items that are not freed, [`PENDING_ITEM`] for each pending item, and
    /// [`ALLOCATOR_REF`] while the allocator has the block.
    live_bytes: AtomicUsize,
    /// The block's place in its queue, and the level when it was closed. Written under the pool's
    /// lock.
    number: AtomicU64,
    stamp: AtomicU64,
    /// The number of an item at the first place. Written before the block has items.
    base: AtomicU64,
    /// A lower bound of the items' numbers.
    first_number: AtomicU64,
    /// The number of pins, and [`RELEASED`].
    pins: AtomicU32,
    queue: AtomicU8,
    place: AtomicU8,
    is_closed: AtomicBool,
    /// Whether the block was closed before it was full. Then the unused part counts as freed.
    is_cut: AtomicBool,
}

/// The place of a block. Changed under the pool's lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Place {
    /// In a stripe, which adds items.
    Open,
    /// In its queue.
    Queue,
    /// Among the blocks of which at least a quarter is freed.
    Compactable,
    /// Checked out by a sweep, waiting for readers, or free.
    Taken,
}

/// The result of an unpin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UnpinOutcome {
    /// Other pins remain.
    StillPinned,
    /// No pin remains; the allocator has the block.
    Unpinned,
    /// No pin remains, and the allocator has released the block, which belongs to the caller now.
    Returned,
}

/// A reference to a block. The top of this file says what a thread may do with it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Block(NonNull<Header>);

// SAFETY: all fields that change are atomic; locks and the count of pending items publish the
// items' contents.
unsafe impl Send for Block {}

impl Block {
    /// The capacity of a block with room for `bytes` of items.
    pub(crate) fn capacity_for(bytes: usize) -> usize {
        (HEADER + bytes).next_multiple_of(PAGE)
    }

    /// Creates a block of `capacity` bytes, a multiple of the page size.
    ///
    /// # Safety
    /// `start` was taken from an arena, for this many bytes, and no other thread has it.
    pub(crate) unsafe fn create(start: NonNull<u8>, capacity: usize) -> Block {
        let header = start.cast::<Header>();
        // SAFETY: the caller's memory, aligned to more than the header needs, and larger.
        unsafe {
            poison::unpoison(start, HEADER);
            header.write(Header {
                capacity: (capacity / PAGE) as u32,
                indexed: AtomicU32::new(NEVER),
                used: AtomicU32::new((HEADER / ITEM_ALIGN) as u32),
                due: AtomicU32::new(NEVER),
                live_bytes: AtomicUsize::new(ALLOCATOR_REF),
                number: AtomicU64::new(0),
                stamp: AtomicU64::new(0),
                base: AtomicU64::new(0),
                first_number: AtomicU64::new(u64::MAX),
                pins: AtomicU32::new(0),
                queue: AtomicU8::new(0),
                place: AtomicU8::new(Place::Taken as u8),
                is_closed: AtomicBool::new(false),
                is_cut: AtomicBool::new(false),
            });
        }
        let block = Block(header);
        block.poison();
        block
    }

    /// Gives the block's memory back to the system, and returns its address. The block does not
    /// exist any more.
    ///
    /// # Safety
    /// No item in it is alive, and only the caller uses it.
    pub(crate) unsafe fn discard(self) -> NonNull<u8> {
        let capacity = self.capacity();
        // SAFETY: the caller's promise; a block is a run of an arena.
        unsafe {
            arena::discard(self.0.cast(), capacity);
            poison::poison(self.0.cast(), capacity);
        }
        self.0.cast()
    }

    /// Drops the allocator's reference. If it was the last one, returns the block's memory, which
    /// belongs to the caller now; otherwise the last item frees it.
    ///
    /// # Safety
    /// Only the caller and items that are not freed still use the block, and no reader uses freed
    /// items.
    pub(crate) unsafe fn detach(self) -> Option<(NonNull<u8>, usize)> {
        let capacity = self.capacity();
        (self.sub_live(ALLOCATOR_REF) == 0).then_some((self.0.cast(), capacity))
    }

    /// Subtracts `bytes` from the live bytes, and returns the rest. At zero the block belongs to
    /// the caller.
    fn sub_live(self, bytes: usize) -> usize {
        // SeqCst: see `free_item`. Also Release and Acquire: the thread that frees the block sees
        // all accesses of other threads as completed.
        self.header().live_bytes.fetch_sub(bytes, Ordering::SeqCst) - bytes
    }

    /// Like [`Block::free_item`], for the items of a table that is dropped, possibly while another
    /// thread drops the allocator.
    ///
    /// # Safety
    /// An item of this size was not freed, and no thread uses it.
    pub(crate) unsafe fn sub_live_at_teardown(self, size: usize) {
        let capacity = self.capacity();
        if self.sub_live(size) == 0 {
            // SAFETY: the allocator has given the block up, and nothing uses it any more.
            unsafe { arena::unmap(self.0.cast(), capacity) };
        }
    }

    /// Adds a pin. Returns whether it is the first.
    ///
    /// # Safety
    /// The allocator has not released the block, and does not before this returns.
    pub(crate) unsafe fn pin(self) -> bool {
        // Relaxed: the allocator releases a block after a grace period, or while it is checked out,
        // so it sees this pin.
        self.header().pins.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Adds a pin if the block is pinned already; otherwise returns false.
    ///
    /// # Safety
    /// As for [`Block::pin`].
    pub(crate) unsafe fn pin_again(self) -> bool {
        let more = |pins: u32| (pins > 0).then_some(pins + 1);
        // Relaxed, both: as in `pin`.
        self.header().pins.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Whether the block is pinned now.
    pub(crate) fn is_pinned(self) -> bool {
        // Relaxed: a hint. `release` decides.
        self.header().pins.load(Ordering::Relaxed) & !RELEASED > 0
    }

    /// Pins a block that only the caller has, and that the allocator has released.
    pub(crate) fn pin_released(self) {
        // Relaxed: no other thread has it.
        self.header().pins.store(1 | RELEASED, Ordering::Relaxed);
    }

    /// Returns a released block to the allocator. The caller has the only pin.
    pub(crate) fn attach(self) {
        // Relaxed: other threads find the block under the pool's lock.
        self.header().pins.store(1, Ordering::Relaxed);
    }

    /// Removes a pin.
    ///
    /// # Safety
    /// The caller had a pin, and no longer uses the block, unless it is
    /// [returned](UnpinOutcome::Returned).
    pub(crate) unsafe fn unpin(self) -> UnpinOutcome {
        // Release: pairs with the Acquire in `release`, or here, so that the next owner sees all
        // accesses to the block. Acquire: pairs with the Release of other pins and of `release`, in
        // case this thread becomes the next owner.
        match self.header().pins.fetch_sub(1, Ordering::AcqRel) {
            1 => UnpinOutcome::Unpinned,
            last if last == 1 | RELEASED => {
                // Relaxed: only the caller has the block.
                self.header().pins.store(0, Ordering::Relaxed);
                UnpinOutcome::Returned
            }
            _ => UnpinOutcome::StillPinned,
        }
    }

    /// Releases a block that no thread can pin any more. Returns true if the block is not pinned,
    /// so that it belongs to the caller. Otherwise it is returned by the last unpin.
    pub(crate) fn release(self) -> bool {
        // Acquire and Release: pairs with `unpin`.
        let is_free = self.header().pins.fetch_or(RELEASED, Ordering::AcqRel) == 0;
        if is_free {
            // Relaxed: only the caller has the block.
            self.header().pins.store(0, Ordering::Relaxed);
        }
        is_free
    }

    /// The block of the item at `address`.
    ///
    /// # Safety
    /// There is an item at `address`, and its memory is not given back while the block is used.
    pub(crate) unsafe fn of(address: NonNull<u8>) -> Block {
        // Blocks begin at multiples of `SLOT`, and items begin less than that after them.
        let start = address.as_ptr().map_addr(|address| address & !(SLOT - 1));
        // SAFETY: the block's address is not null.
        Block(unsafe { NonNull::new_unchecked(start.cast()) })
    }

    fn header(&self) -> &Header {
        // SAFETY: a thread that has a block has its header; all fields that change are atomic.
        unsafe { self.0.as_ref() }
    }

    /// The address of the first item.
    pub(crate) fn first(self) -> NonNull<u8> {
        // SAFETY: a block is larger than its header.
        unsafe { self.0.cast::<u8>().add(HEADER) }
    }

    /// The bytes mapped for the block.
    pub(crate) fn capacity(self) -> usize {
        self.header().capacity as usize * PAGE
    }

    /// The bytes taken, including the header. They change while the block is open.
    pub(crate) fn used(self) -> usize {
        // Relaxed: under the stripe's lock, or after the block was closed under the pool's lock.
        self.header().used.load(Ordering::Relaxed) as usize * ITEM_ALIGN
    }

    fn set_used(self, bytes: usize) {
        // Relaxed: as in `used`.
        self.header().used.store((bytes / ITEM_ALIGN) as u32, Ordering::Relaxed);
    }

    /// The count of numbers that a block needs for items that fill it.
    pub(crate) fn numbers(self) -> u64 {
        ((self.capacity() - HEADER) / NUMBER_UNIT) as u64
    }

    /// Opens a block without items, for items of a `queue`, whose numbers begin at `base`.
    pub(crate) fn open(self, queue: usize, base: u64) {
        let header = self.header();
        self.set_used(HEADER);
        // Relaxed, all: only the caller has the block. Other threads receive it through locks, and
        // readers through links of its items.
        header.live_bytes.store(ALLOCATOR_REF, Ordering::Relaxed);
        header.base.store(base, Ordering::Relaxed);
        header.first_number.store(base, Ordering::Relaxed);
        header.due.store(NEVER, Ordering::Relaxed);
        header.queue.store(queue as u8, Ordering::Relaxed);
        header.is_closed.store(false, Ordering::Relaxed);
        header.is_cut.store(false, Ordering::Relaxed);
        self.set_place(Place::Open);
    }

    /// Poisons the block: no thread may read its old contents.
    pub(crate) fn poison(self) {
        // SAFETY: after the header, within the mapping.
        unsafe { poison::poison(self.first(), self.capacity() - HEADER) };
    }

    /// Unpoisons the first `size` bytes, which the caller, the only owner, writes before they are
    /// [taken](Self::take).
    pub(crate) fn unpoison(self, size: usize) {
        // SAFETY: after the header, within the mapping.
        unsafe { poison::unpoison(self.first(), size) };
    }

    /// In debug builds, overwrites the old contents, so that tests notice readers that still use
    /// them.
    ///
    /// # Safety
    /// No other thread has the block, or reads its old contents.
    pub(crate) unsafe fn fill_debug_pattern(self) {
        if cfg!(debug_assertions) && !poison::IS_USED {
            // SAFETY: the caller's promise; within the mapping.
            unsafe { self.0.cast::<u8>().add(HEADER).write_bytes(0xdb, self.capacity() - HEADER) };
        }
    }

    /// Takes room for an item of `size` bytes, a multiple of its alignment. The item is pending
    /// from now on. The caller holds the stripe's lock.
    pub(crate) fn take(self, size: usize) -> Option<NonNull<u8>> {
        let used = self.used();
        if used + size > self.capacity() {
            return None;
        }
        self.set_used(used + size);
        // Relaxed: under the stripe's lock; later readers synchronise by the pool's lock.
        self.header().live_bytes.fetch_add(size + PENDING_ITEM, Ordering::Relaxed);
        // SAFETY: within the capacity.
        unsafe {
            let place = self.0.cast::<u8>().add(used);
            poison::unpoison(place, size);
            Some(place)
        }
    }

    /// Gives back the room of an item that was given up, if it was taken last. The caller holds the
    /// stripe's lock, and the block is open there.
    pub(crate) fn undo_take(self, place: NonNull<u8>, size: usize) -> bool {
        let used = self.used();
        let is_last = place.addr().get() + size == self.0.addr().get() + used;
        if is_last {
            self.set_used(used - size);
            // Relaxed: as in `take`.
            self.header().live_bytes.fetch_sub(size, Ordering::Relaxed);
            // SAFETY: within the block, and not used.
            unsafe { poison::poison(place, size) };
        }
        is_last
    }

    /// Notes that a pending item was linked or given up.
    pub(crate) fn finish_pending(self) {
        // Release: pairs with the Acquire in `has_pending`: the item has been written, and linked.
        self.header().live_bytes.fetch_sub(PENDING_ITEM, Ordering::Release);
    }

    /// Whether items are pending. Once false for a closed block, it stays false.
    pub(crate) fn has_pending(self) -> bool {
        // Acquire: pairs with the Release in `finish_pending`.
        self.header().live_bytes.load(Ordering::Acquire) & !ALLOCATOR_REF >= PENDING_ITEM
    }

    /// Counts an item of `size` bytes as freed. Returns whether the pool must be notified: because
    /// enough is freed for the block to become [compactable](Place::Compactable), or because all
    /// items are freed.
    ///
    /// # Safety
    /// The item was not freed before, and the block is not given back before the caller is done:
    /// the caller is in the read section in which it unlinked the item, has a pending item in the
    /// block, or sweeps it.
    pub(crate) unsafe fn free_item(self, size: usize) -> bool {
        let live_bytes = self.sub_live(size);
        // SeqCst, in `sub_live` and here, pairs with SeqCst in `close` and `is_compactable`: either
        // this thread finds the block closed, or the thread that closes it finds the item freed.
        // This load comes before those of `is_quarter_freed`, because they are final only in a
        // closed block. If the block is compactable already, the pool knows. Otherwise it must be
        // notified, because a sweep may put the block back without having seen this item freed.
        self.header().is_closed.load(Ordering::SeqCst)
            && self.is_quarter_freed(live_bytes)
            && (self.place() != Place::Compactable || live_bytes == ALLOCATOR_REF)
    }

    /// Counts an item that is given up as freed and no longer pending. This may be the last one of
    /// the block.
    ///
    /// # Safety
    /// As for [`Block::free_item`]. The caller is in a read section that began before.
    pub(crate) unsafe fn free_pending(self, size: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.free_item(size + PENDING_ITEM) }
    }

    /// Counts the unused part as freed. Call before closing a block that is not full.
    pub(crate) fn cut(self) {
        // Relaxed: readers synchronise by the lock under which the block is closed.
        self.header().is_cut.store(true, Ordering::Relaxed);
    }

    /// Closes the block: no items are added any more. The caller holds the pool's lock.
    pub(crate) fn close(self, number: u64, stamp: u64) {
        let header = self.header();
        // Relaxed: under the pool's lock.
        header.number.store(number, Ordering::Relaxed);
        header.stamp.store(stamp, Ordering::Relaxed);
        // SeqCst: see `free_item`.
        header.is_closed.swap(true, Ordering::SeqCst);
    }

    /// Whether all items of a closed block are freed, and none is pending. Once true, it stays
    /// true.
    pub(crate) fn is_all_freed(self) -> bool {
        // SeqCst: as in `is_compactable`. Each item was unlinked before it was counted as freed.
        self.header().live_bytes.load(Ordering::SeqCst) == ALLOCATOR_REF
    }

    /// Whether at least a quarter of a closed block is freed.
    pub(crate) fn is_compactable(self) -> bool {
        // SeqCst: see `free_item`.
        self.is_quarter_freed(self.header().live_bytes.load(Ordering::SeqCst))
    }

    /// Whether a sixteenth of a closed block is freed, which is worth compacting if nothing may be
    /// evicted. (An unused end does not count: moving items from such a block to another one would
    /// gain nothing.)
    pub(crate) fn is_slightly_fragmented(self) -> bool {
        // Relaxed: a hint, as `used` is, which does not change once the block is closed.
        self.freed_before(self.used(), self.header().live_bytes.load(Ordering::Relaxed)) >= self.capacity() / 16
    }

    /// Whether a quarter of a closed block with `live_bytes` is freed. Then moving the rest costs
    /// three times what it gains, and a cache whose items are overwritten at random holds 87 % of
    /// what it could hold.
    fn is_quarter_freed(self, live_bytes: usize) -> bool {
        // Relaxed: like `used`, it does not change once the block is closed, and the caller has
        // seen that it is.
        let is_cut = self.header().is_cut.load(Ordering::Relaxed);
        let end = if is_cut { self.capacity() } else { self.used() };
        self.freed_before(end, live_bytes) >= self.capacity() / 4
    }

    /// The freed bytes before `end`.
    fn freed_before(self, end: usize, live_bytes: usize) -> usize {
        (end - HEADER).saturating_sub(live_bytes % PENDING_ITEM)
    }

    pub(crate) fn place(self) -> Place {
        // Relaxed: changed under the pool's lock; other threads read it as a hint, to avoid that
        // lock.
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

    pub(crate) fn queue(self) -> usize {
        // Relaxed, here and in the two functions below: set under a lock when the block was opened
        // or closed, or by the thread that sweeps it.
        self.header().queue.load(Ordering::Relaxed).into()
    }

    /// Sets the queue of a closed block, which the caller sweeps.
    pub(crate) fn set_queue(self, queue: usize) {
        // Relaxed: other threads receive the block through the pool's lock.
        self.header().queue.store(queue as u8, Ordering::Relaxed);
    }

    pub(crate) fn number(self) -> u64 {
        self.header().number.load(Ordering::Relaxed)
    }

    pub(crate) fn stamp(self) -> u64 {
        self.header().stamp.load(Ordering::Relaxed)
    }

    /// The number of an item at `address` in the block, unless it is a copy.
    #[inline]
    pub(crate) fn number_at(self, address: NonNull<u8>) -> u64 {
        let offset = address.addr().get() - self.0.addr().get() - HEADER;
        self.base() + (offset / NUMBER_UNIT) as u64
    }

    /// The number of an item at the first place.
    pub(crate) fn base(self) -> u64 {
        // Relaxed: written before the block had items. The caller received it through a lock, or
        // through the link of an item.
        self.header().base.load(Ordering::Relaxed)
    }

    /// Notes that an item in the block has this number, as [`open`](Self::open) does for all that
    /// are not copies.
    pub(crate) fn note_number(self, number: u64) {
        let first = &self.header().first_number;
        // Relaxed, both: by a thread with a pending item in the block, or by its sweep.
        if number < first.load(Ordering::Relaxed) {
            first.fetch_min(number, Ordering::Relaxed);
        }
    }

    /// Notes that an item in the block has this expiry now.
    pub(crate) fn note_expiry(self, expiry: Expiry) {
        if expiry != Expiry::NEVER {
            self.note_due(expiry.to_bits());
        }
    }

    /// Notes that the block should be swept at `second` or earlier.
    pub(crate) fn note_due(self, second: u32) {
        let due = &self.header().due;
        // SeqCst: see `forget`.
        if second < due.load(Ordering::SeqCst) {
            due.fetch_min(second, Ordering::SeqCst);
        }
    }

    /// The second in which the block should be swept, as far as known.
    pub(crate) fn due(self) -> u32 {
        // Relaxed: a hint. A thread that misses a change finds it in the next round.
        self.header().due.load(Ordering::Relaxed)
    }

    /// Whether the background should sweep the block at `now`: an item may have expired, or was
    /// stored before the flush that drew `line`, or no item is alive.
    pub(crate) fn is_due(self, now: u32, line: u64) -> bool {
        let header = self.header();
        // Relaxed, both: as in `due`.
        self.due() <= now
            || header.first_number.load(Ordering::Relaxed) <= line
            || header.live_bytes.load(Ordering::Relaxed) == ALLOCATOR_REF
    }

    /// The block's second in the index of due blocks.
    pub(crate) fn indexed(self) -> u32 {
        // Relaxed, here and below: under the pool's lock.
        self.header().indexed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_indexed(self, second: u32) {
        self.header().indexed.store(second, Ordering::Relaxed);
    }

    /// Resets the number and the second that were noted; the sweep that iterates over all items
    /// notes them again.
    pub(crate) fn forget(self) {
        // Relaxed: numbers do not change, so no other thread calls `note_number`.
        self.header().first_number.store(u64::MAX, Ordering::Relaxed);
        // SeqCst: pairs with the load in `note_due`; an item's expiry is stored before that load,
        // and read by the sweep after this store. So a thread that changes an expiry either finds
        // this value and notes its own, or the sweep finds the changed expiry.
        self.header().due.store(NEVER, Ordering::SeqCst);
    }

    /// The addresses of all items in the block, including freed ones. `footprint` returns the bytes
    /// that the item at an address occupies.
    ///
    /// # Safety
    /// The block is closed and has no pending items, and belongs to the caller while the iterator
    /// is used.
    pub(crate) unsafe fn items(self, footprint: impl Fn(NonNull<u8>) -> usize) -> impl Iterator<Item = NonNull<u8>> {
        let end = self.used();
        let mut offset = HEADER;
        std::iter::from_fn(move || {
            (offset < end).then(|| {
                // SAFETY: items follow each other up to the end.
                let address = unsafe { self.0.cast::<u8>().add(offset) };
                offset += footprint(address);
                address
            })
        })
    }
}

/// The bytes that an item of `bytes` bytes occupies.
pub(crate) const fn footprint(bytes: usize) -> usize {
    // `next_multiple_of` would also handle an overflow.
    (bytes + (ITEM_ALIGN - 1)) & !(ITEM_ALIGN - 1)
}
