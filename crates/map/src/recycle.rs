//! Each thread keeps the memory of the nodes that it frees, and reuses it for new nodes.
//!
//! A general allocator reuses the memory of a node much later, when it is no longer in the cache.
//! Initialising a node that is not in the cache delays the lock that is taken next. So each thread
//! keeps memory by size, up to a bound. It reuses the most recent first, and prefetches the next.
//! The memory still belongs to the global allocator.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::mem::forget;
use std::ptr::NonNull;

use relativist_rcu::prefetch::prefetch_for_write;

/// The maximum memory of nodes that a thread keeps, not counting the stacks of pointers to it.
const MAX_KEPT: usize = if cfg!(relativist_no_recycling) { 0 } else { 256 << 10 };

/// Larger nodes are left to the allocator, and so are nodes whose alignment is not that of a word.
const MAX_SIZE: usize = 256;
const WORD: usize = size_of::<usize>();

/// The memory that a thread keeps: a stack for each size in words. Nothing is written to the memory
/// itself, because it is no longer in the cache.
struct Kept {
    stacks: [Cell<Vec<NonNull<u8>>>; MAX_SIZE / WORD + 1],
    bytes: Cell<usize>,
}

thread_local! {
    static KEPT: Kept = const {
        Kept { stacks: [const { Cell::new(Vec::new()) }; MAX_SIZE / WORD + 1], bytes: Cell::new(0) }
    };
}

/// Returns uninitialised memory of this layout, or `None`.
#[inline]
pub(crate) fn allocate(layout: Layout) -> Option<NonNull<u8>> {
    let kept = is_kept(layout).then(|| KEPT.try_with(|kept| kept.take(layout)).ok().flatten()).flatten();
    // SAFETY: nodes have a link, so their size is not zero.
    kept.or_else(|| NonNull::new(unsafe { alloc(layout) }))
}

/// # Safety
///
/// `memory` came from [`allocate`] with this layout, and no thread uses it any more.
#[inline]
pub(crate) unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    let kept = is_kept(layout) && KEPT.try_with(|kept| kept.put(memory, layout)).unwrap_or(false);
    if !kept {
        // SAFETY: guaranteed by the caller.
        unsafe { dealloc(memory.as_ptr(), layout) };
    }
}

/// Returns whether memory of this layout is kept. A stack has memory of one layout only, so that it
/// can be returned to the allocator.
const fn is_kept(layout: Layout) -> bool {
    layout.size() <= MAX_SIZE && layout.align() == WORD && layout.size() % WORD == 0
}

impl Kept {
    #[inline]
    fn take(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.with_stack(layout, |stack| {
            let memory = stack.pop()?;
            self.bytes.set(self.bytes.get() - layout.size());
            if let Some(next) = stack.last() {
                prefetch_for_write(next.as_ptr());
            }
            Some(memory)
        })
    }

    /// Returns false if there is no room.
    #[inline]
    fn put(&self, memory: NonNull<u8>, layout: Layout) -> bool {
        let bytes = self.bytes.get() + layout.size();
        if bytes > MAX_KEPT {
            return false;
        }
        self.with_stack(layout, |stack| {
            let has_room = stack.len() < stack.capacity() || stack.try_reserve(1).is_ok();
            if has_room {
                stack.push(memory);
                self.bytes.set(bytes);
            }
            has_room
        })
    }

    /// Takes the stack out of its cell while the function runs. (If the global allocator itself
    /// used a map, it could reenter this function when the stack grows. Then the memory that it
    /// keeps is leaked.)
    #[inline(always)]
    fn with_stack<R>(&self, layout: Layout, f: impl FnOnce(&mut Vec<NonNull<u8>>) -> R) -> R {
        let cell = &self.stacks[layout.size() / WORD];
        let mut stack = cell.take();
        let result = f(&mut stack);
        forget(cell.replace(stack));
        result
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (words, stack) in self.stacks.iter().enumerate() {
            let layout = Layout::from_size_align(words * WORD, WORD).expect("a multiple of the alignment");
            for memory in stack.take() {
                // SAFETY: the stack held memory of this layout, and no longer has it.
                unsafe { dealloc(memory.as_ptr(), layout) };
            }
        }
    }
}
