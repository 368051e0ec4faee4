//! Pinned blocks: large values that connections send or receive without a copy.
//!
//! A network is slow, and a read section must not last as long as a client takes to read: grace
//! periods would wait for it, and no memory would be freed. So a connection *pins* the block of a
//! large value that it sends. The item may still be replaced, deleted or expire, and its block may
//! be swept. The block is only not chosen for eviction, because that would free nothing yet. If the
//! block is still pinned when its grace period has passed, the allocator releases it. The last
//! unpin returns it, and then it is free. Until then it counts as mapped, so the limit holds.
//!
//! Memory for a value that is still being received is pinned, too. It is a block that the allocator
//! has released from the beginning, so that no thread waits for a slow client. The block is
//! attached to the allocator with the finished item, or returned.
//!
//! **Bounds.** Memory pinned by slow clients is bounded. No reader may pin a block once a quarter
//! of the limit is pinned, and no writer once an eighth is, unless it is the only pinned block.
//! Values are copied then, as small ones are. The bytes of a block are counted before its first
//! pin, and until after its last one.
//!
//! **Why no block is lost.** `pins` in a block's header counts the pins, and has one bit for
//! "released by the allocator". A pin begins while a reader uses the item, so the block is not
//! released yet. When a grace period has passed, all pins are counted, and the count can only fall.
//! The allocator sets the bit, and an unpin decrements the count, in one atomic step each. Either
//! the allocator finds no pins, or the last unpin finds the bit: exactly one of them gets the
//! block. If the allocator is gone before the last unpin, that unpin returns the memory to the
//! system.

use crate::memory::address_space::SLOT;
use crate::memory::arena;
use crate::memory::block::{Block, HEADER, UnpinOutcome};
use crossbeam_utils::CachePadded;
use std::fmt::{self, Debug, Formatter};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Values of at least this size are pinned instead of copied, because a pin costs less than the
/// copy.
pub const LARGE_VALUE: usize = 16 << 10;

// So the item of a large value has a block of its own, see `ItemAllocator::is_large`.
const _: () = assert!(LARGE_VALUE > (SLOT - HEADER) / 4);

/// Readers may pin one part of the limit in this many.
const READERS_SHARE: usize = 4;

/// Writers may pin one part of the limit in this many: fewer bytes than readers, so that they
/// cannot use up the readers' share.
const WRITERS_SHARE: usize = 8;

/// The pinned blocks of an allocator. May outlive it.
pub(crate) struct PinnedBlocks {
    /// The bytes of all pinned blocks. Written with the first pin of each block, so it has a cache
    /// line of its own.
    bytes: CachePadded<AtomicUsize>,
    /// The limit of the allocator.
    limit: AtomicUsize,
    returned: Mutex<Returned>,
    has_returned: AtomicBool,
}

/// Blocks that were unpinned after the allocator had released them.
#[derive(Default)]
struct Returned {
    blocks: Vec<Block>,
    /// Whether the allocator is gone.
    is_closed: bool,
}

impl Debug for PinnedBlocks {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBlocks({} bytes)", self.bytes())
    }
}

impl PinnedBlocks {
    /// Creates the state for an allocator with this limit, without pinned blocks.
    pub(crate) fn new(limit: usize) -> PinnedBlocks {
        PinnedBlocks {
            bytes: CachePadded::new(AtomicUsize::new(0)),
            limit: AtomicUsize::new(limit),
            returned: Mutex::default(),
            has_returned: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        // Relaxed: no other data depends on it.
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// The bytes of all pinned blocks.
    pub(crate) fn bytes(&self) -> usize {
        // Relaxed: a sum on which no other data depends.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether `bytes` may be pinned in total, of which `own` are the caller's. The maximum is one
    /// part in `share` of the limit, but a block that is pinned alone may have any size.
    fn allows(&self, bytes: usize, own: usize, share: usize) -> bool {
        // Relaxed: as in `set_limit`.
        bytes <= own.max(self.limit.load(Ordering::Relaxed) / share)
    }

    /// Whether a writer may pin a block of this size. Other threads may be faster.
    pub(crate) fn allows_writer(&self, bytes: usize) -> bool {
        self.allows(self.bytes() + bytes, bytes, WRITERS_SHARE)
    }

    /// Counts `bytes` more as pinned, and returns true, unless that is too much for this share of
    /// the limit.
    fn pin_bytes(&self, bytes: usize, share: usize) -> bool {
        let more = |sum: usize| Some(sum + bytes).filter(|&sum| self.allows(sum, bytes, share));
        // Relaxed, both: a sum on which no other data depends.
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Like [`pin_bytes`](Self::pin_bytes), for a writer.
    pub(crate) fn pin_bytes_of_writer(&self, bytes: usize) -> bool {
        self.pin_bytes(bytes, WRITERS_SHARE)
    }

    /// Counts `bytes` less as pinned.
    fn unpin_bytes(&self, bytes: usize) {
        // Relaxed: a sum on which no other data depends. These bytes were added before the block
        // was pinned.
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn returned(&self) -> MutexGuard<'_, Returned> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the blocks that were returned since the last call. They are free.
    pub(crate) fn take_returned(&self) -> Vec<Block> {
        // Relaxed: a hint. A thread that misses it checks again when it needs the next block. The
        // lock publishes the blocks.
        if !self.has_returned.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut returned = self.returned();
        self.has_returned.store(false, Ordering::Relaxed);
        mem::take(&mut returned.blocks)
    }

    /// Marks the allocator as gone: blocks returned from now on are unmapped. Returns the blocks
    /// that were returned before.
    pub(crate) fn close(&self) -> Vec<Block> {
        let mut returned = self.returned();
        returned.is_closed = true;
        mem::take(&mut returned.blocks)
    }

    /// Takes back a released block after its last unpin.
    #[cold]
    fn take_back(&self, block: Block) {
        let mut returned = self.returned();
        if !returned.is_closed {
            returned.blocks.push(block);
            // Relaxed: as in `take_returned`.
            return self.has_returned.store(true, Ordering::Relaxed);
        }
        drop(returned);
        // SAFETY: only the caller has the block: there is no other pin, and no allocator. The table
        // frees the remaining items.
        if let Some((start, capacity)) = unsafe { block.detach() } {
            // SAFETY: taken from an arena that is gone.
            unsafe { arena::unmap(start, capacity) };
        }
    }
}

/// A pin of a block.
pub(crate) struct BlockRef {
    block: Block,
    pinned: Arc<PinnedBlocks>,
}

impl BlockRef {
    /// Pins `block`, unless too much is pinned. If the block is pinned already, adds a pin without
    /// counting its bytes. So no thread adds a pin to one that is about to be refused.
    ///
    /// # Safety
    /// An item in the block stays allocated until this returns.
    pub(crate) unsafe fn pin(block: Block, pinned: &Arc<PinnedBlocks>) -> Option<BlockRef> {
        // SAFETY: an item stays allocated, so the allocator has not released its block, and will
        // see this pin when it does.
        if !unsafe { block.pin_again() } {
            let bytes = block.capacity();
            if !pinned.pin_bytes(bytes, READERS_SHARE) {
                return None;
            }
            // SAFETY: as above.
            if !unsafe { block.pin() } {
                // Another thread pinned the block first, and has counted the bytes.
                pinned.unpin_bytes(bytes);
            }
        }
        Some(BlockRef { block, pinned: Arc::clone(pinned) })
    }

    /// Pins a new block for a value to receive. Its bytes are
    /// [counted](PinnedBlocks::pin_bytes_of_writer) already.
    ///
    /// # Safety
    /// No other thread has the block, nor does the allocator.
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
        // Read before the unpin: afterwards the block may belong to another thread.
        let capacity = block.capacity();
        // SAFETY: this is a pin, and it ends here.
        let end = unsafe { block.unpin() };
        if end != UnpinOutcome::StillPinned {
            pinned.unpin_bytes(capacity);
        }
        if end == UnpinOutcome::Returned {
            pinned.take_back(*block);
        }
    }
}
