//! Each thread keeps the memory of the nodes that it frees, and reuses it for new nodes.
//!
//! A general allocator reuses the memory of a node much later, when it is no longer in the cache.
//! Initialising a node that is not in the cache delays the lock that is taken next. So each thread
//! keeps memory by size, up to a bound. It reuses the most recent first, and prefetches the next.
//! The memory still belongs to the global allocator.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::{Cell, UnsafeCell};
use std::mem::forget;
use std::ptr::NonNull;

use crate::prefetch::prefetch_for_write;

/// The maximum memory of nodes that a thread keeps, not counting the stacks of pointers to it.
const MAX_KEPT: usize = if cfg!(relativist_no_recycling) { 0 } else { 256 << 10 };

/// Larger nodes are left to the allocator, and so are nodes whose alignment is not that of a word.
const MAX_SIZE: usize = 256;
const WORD: usize = size_of::<usize>();

/// The memory that a thread keeps: a stack for each size in words. Nothing is written to the memory
/// itself, because it is no longer in the cache.
struct Kept {
    stacks: [UnsafeCell<Vec<NonNull<u8>>>; MAX_SIZE / WORD + 1],
    bytes: Cell<usize>,
}

thread_local! {
    static KEPT: Kept = const {
        Kept { stacks: [const { UnsafeCell::new(Vec::new()) }; MAX_SIZE / WORD + 1], bytes: Cell::new(0) }
    };
}

/// Returns uninitialised memory of this layout, or `None`.
#[inline]
pub fn allocate(layout: Layout) -> Option<NonNull<u8>> {
    let kept = is_kept(layout).then(|| KEPT.try_with(|kept| kept.take(layout)).ok().flatten()).flatten();
    // SAFETY: nodes have a link, so their size is not zero.
    kept.or_else(|| NonNull::new(unsafe { alloc(layout) }))
}

/// # Safety
///
/// `memory` came from [`allocate`] with this layout, and no thread uses it any more.
#[inline]
pub unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    let kept = is_kept(layout) && KEPT.try_with(|kept| kept.put(memory, layout)).unwrap_or(false);
    if !kept {
        // SAFETY: guaranteed by the caller.
        unsafe { dealloc(memory.as_ptr(), layout) };
    }
}

/// Frees the memory of a node when all nodes of its table are freed. Leaves it to the allocator:
/// nodes of a large table lie far apart, and a small table whose nodes this thread takes from them
/// would need many pages. (Dependent lookups in 2^12 entries then took 1.4 times as long.)
///
/// # Safety
///
/// As for [`free`].
#[inline]
pub unsafe fn free_of_many(memory: NonNull<u8>, layout: Layout) {
    // SAFETY: guaranteed by the caller.
    unsafe { dealloc(memory.as_ptr(), layout) };
}

/// Returns whether memory of this layout is kept. A stack has memory of one layout only, so that it
/// can be returned to the allocator.
const fn is_kept(layout: Layout) -> bool {
    layout.size() <= MAX_SIZE && layout.align() == WORD && layout.size() % WORD == 0
}

impl Kept {
    #[inline]
    fn take(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: no other reference is made while this one is used: `pop` and `last` call no other
        // code.
        let stack = unsafe { &mut *self.stack(layout).get() };
        let memory = stack.pop()?;
        if let Some(next) = stack.last() {
            prefetch_for_write(next.as_ptr());
        }
        self.bytes.set(self.bytes.get() - layout.size());
        Some(memory)
    }

    /// Returns false if there is no room.
    #[inline]
    fn put(&self, memory: NonNull<u8>, layout: Layout) -> bool {
        let bytes = self.bytes.get() + layout.size();
        if bytes > MAX_KEPT {
            return false;
        }
        // SAFETY: no other reference is made while this one is used: it is not used after the call
        // of `grow`, and where there is room, `push` does not allocate.
        let stack = unsafe { &mut *self.stack(layout).get() };
        if stack.len() == stack.capacity() {
            return self.grow(memory, layout);
        }
        stack.push(memory);
        self.bytes.set(bytes);
        true
    }

    /// Puts memory on a stack that is full. (If the global allocator itself uses a map, it may
    /// reenter this module when the stack grows. Then the memory that it keeps is leaked.)
    #[cold]
    fn grow(&self, memory: NonNull<u8>, layout: Layout) -> bool {
        let cell = self.stack(layout).get();
        // SAFETY: no reference to the stack is left, and none is made while other code runs.
        let mut stack = unsafe { cell.replace(Vec::new()) };
        let has_room = stack.try_reserve(1).is_ok();
        if has_room {
            stack.push(memory);
            self.bytes.set(self.bytes.get() + layout.size());
        }
        // SAFETY: as above.
        forget(unsafe { cell.replace(stack) });
        has_room
    }

    #[inline(always)]
    fn stack(&self, layout: Layout) -> &UnsafeCell<Vec<NonNull<u8>>> {
        &self.stacks[layout.size() / WORD]
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (words, stack) in self.stacks.iter().enumerate() {
            let layout = Layout::from_size_align(words * WORD, WORD).expect("a multiple of the alignment");
            // SAFETY: no reference to the stack is left.
            for memory in unsafe { stack.get().replace(Vec::new()) } {
                // SAFETY: the stack held memory of this layout, and no longer has it.
                unsafe { dealloc(memory.as_ptr(), layout) };
            }
        }
    }
}
