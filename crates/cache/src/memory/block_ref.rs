//! Large values in the hands of connections: those that are sent from where they lie, or received to where they will lie.
//!
//! A network is slow, and a read section must not last as long as a client takes to read: grace periods would wait for it, and all memory
//! with them. So who sends a large value has its block on *loan*. A loan hinders nobody: the item may be replaced, deleted or
//! expire, and its block be swept; it is only not chosen to be evicted, because that would free nothing yet. Only when the block's grace period has passed the heap asks whether there are pinned, and lets go of
//! the block if there are: then it comes back with the last loan, and is free. Until then it counts as mapped, so `-m` holds.
//!
//! Room for a value that is still to come is lent, too: a block of which the heap has let go from the beginning, so that nobody waits for a
//! slow client, and nothing is to be swept there. It is turned over to the heap with the finished item, or comes back.
//!
//! What clients who take their time can hold this way is bounded: no loan is given to who would read when a quarter of the limit is lent, and none to
//! who would send at an eighth, unless it is the only one. Values are copied then, as small ones are. A block's bytes are counted before its first loan begins,
//! and no longer after its last has ended: at every moment what is lent has been allowed.
//!
//! **Why nothing is lost.** `pinned` in a block's header counts them, with one bit for "the heap has let go". A loan begins while the item is
//! shown, when the block can't be waiting for readers of before; so when a grace period has passed all pinned that will ever be are
//! counted. From then on the count only falls. The heap sets the bit, and a loan's end counts down, in one atomic step each: either the
//! heap finds no pinned, or the last loan finds the bit. Exactly one of the two has the block then. Where the heap is gone before the
//! last loan, that one gives the memory back to the system.

use crate::memory::arena;
use crate::memory::arena::SLOT;
use crate::memory::block::{Block, HEADER, UnpinOutcome};
use crossbeam_utils::CachePadded;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Values from this size on are worth a loan: to copy less costs less than to keep count.
pub const LARGE_VALUE: usize = 16 << 10;

// Then its item has a block of its own, see `ItemAllocator::is_large`.
const _: () = assert!(LARGE_VALUE > (SLOT - HEADER) / 4);

/// The part of the limit, one in so many, up to which blocks are lent to those who read.
const READERS_SHARE: usize = 4;

/// The part up to which they are lent to those who send. Smaller, so that these can't keep readers from it all.
const WRITERS_SHARE: usize = 8;

/// What a heap has lent. Outlives it if need be.
pub(crate) struct PinnedBlocks {
    /// Bytes of all blocks that are lent. Written with every loan that is the first of its block, so apart from what others read.
    bytes: CachePadded<AtomicUsize>,
    /// The heap's limit.
    limit: AtomicUsize,
    returned: Mutex<Returned>,
    has_returned: AtomicBool,
}

/// Blocks that have come back after the heap had let go of them.
#[derive(Default)]
struct Returned {
    blocks: Vec<Block>,
    /// There is no heap any more.
    is_closed: bool,
}

impl PinnedBlocks {
    /// The pinned of a heap with this limit.
    pub(crate) fn new(limit: usize) -> PinnedBlocks {
        PinnedBlocks {
            bytes: CachePadded::new(AtomicUsize::new(0)),
            limit: AtomicUsize::new(limit),
            returned: Mutex::default(),
            has_returned: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        // Relaxed: stands for itself.
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Bytes of all blocks that are lent.
    pub(crate) fn bytes(&self) -> usize {
        // Relaxed: a plain sum.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether so many `bytes` may be lent in all, `own` of them to the caller: one of `share` parts of the limit. A block that is lent alone may
    /// be as large as it is.
    fn allows(&self, bytes: usize, own: usize, share: usize) -> bool {
        // Relaxed: as in `set_limit`.
        bytes <= own.max(self.limit.load(Ordering::Relaxed) / share)
    }

    /// Whether a block of so many bytes may be lent to receive a value. Others may be faster.
    pub(crate) fn allows_writer(&self, bytes: usize) -> bool {
        self.allows(self.bytes() + bytes, bytes, WRITERS_SHARE)
    }

    /// Counts `bytes` more as lent, unless that is too much for this share of the limit. Who is refused writes nothing.
    fn pin_bytes(&self, bytes: usize, share: usize) -> bool {
        let more = |sum: usize| Some(sum + bytes).filter(|&sum| self.allows(sum, bytes, share));
        // Relaxed, both: a plain sum.
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// The same for a block of so many bytes that is to receive a value.
    pub(crate) fn pin_bytes_of_writer(&self, bytes: usize) -> bool {
        self.pin_bytes(bytes, WRITERS_SHARE)
    }

    /// Counts them no longer.
    fn unpin_bytes(&self, bytes: usize) {
        // Relaxed: a plain sum. Who has added this has done so before the block was lent.
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn returned(&self) -> MutexGuard<'_, Returned> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks that have come back since the last call. They are free.
    pub(crate) fn take_returned(&self) -> Vec<Block> {
        // Relaxed: a hint; who misses it looks again with the next block. The lock hands the blocks over.
        if !self.has_returned.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut returned = self.returned();
        self.has_returned.store(false, Ordering::Relaxed);
        mem::take(&mut returned.blocks)
    }

    /// The heap ends: what comes back from now on goes to the system. Returns what came back before.
    pub(crate) fn close(&self) -> Vec<Block> {
        let mut returned = self.returned();
        returned.is_closed = true;
        mem::take(&mut returned.blocks)
    }

    /// The last loan of a block of which the heap has let go has ended.
    #[cold]
    fn take_back(&self, block: Block) {
        let mut returned = self.returned();
        if !returned.is_closed {
            returned.blocks.push(block);
            // Relaxed: as in `take_returned`.
            return self.has_returned.store(true, Ordering::Relaxed);
        }
        drop(returned);
        // SAFETY: the caller's, as nobody else has it on loan and there is no heap; what items are left in it the table buries.
        if let Some((start, capacity)) = unsafe { block.detach() } {
            // SAFETY: taken from the heap's arena, which will not get it back, being gone.
            unsafe { arena::unmap(start, capacity) };
        }
    }
}

/// A block on loan.
pub(crate) struct BlockRef {
    block: Block,
    pinned: Arc<PinnedBlocks>,
}

impl BlockRef {
    /// Lends `block`, unless too much is lent. Whoever finds it lent joins those whose pinned are counted; so nobody can join
    /// who is about to be refused.
    ///
    /// # Safety
    /// An item in the block stays allocated until this returns.
    pub(crate) unsafe fn pin(block: Block, pinned: &Arc<PinnedBlocks>) -> Option<BlockRef> {
        // SAFETY: an item stays allocated, so the heap has not let go of its block, and will see this when it does.
        if !unsafe { block.pin_again() } {
            let bytes = block.capacity();
            if !pinned.pin_bytes(bytes, READERS_SHARE) {
                return None;
            }
            // SAFETY: as above.
            if !unsafe { block.pin() } {
                // Somebody was faster, and has counted it.
                pinned.unpin_bytes(bytes);
            }
        }
        Some(BlockRef { block, pinned: Arc::clone(pinned) })
    }

    /// Lends a new block to who receives a value. It has been [counted](PinnedBlocks::pin_bytes_of_writer).
    ///
    /// # Safety
    /// Nobody else has the block, nor does the heap.
    pub(crate) unsafe fn of_new(block: Block, pinned: &Arc<PinnedBlocks>) -> BlockRef {
        block.pin_released();
        BlockRef { block, pinned: Arc::clone(pinned) }
    }

    pub(crate) fn block(&self) -> Block {
        self.block
    }

    pub(crate) fn is_of(&self, pinned: &Arc<PinnedBlocks>) -> bool {
        Arc::ptr_eq(&self.pinned, pinned)
    }
}

impl Drop for BlockRef {
    fn drop(&mut self) {
        let BlockRef { block, pinned } = self;
        // Before the loan ends: afterwards the block may be another's.
        let capacity = block.capacity();
        // SAFETY: this is a loan, and it ends here.
        let end = unsafe { block.unpin() };
        if end != UnpinOutcome::StillPinned {
            pinned.unpin_bytes(capacity);
        }
        if end == UnpinOutcome::Returned {
            pinned.take_back(*block);
        }
    }
}
