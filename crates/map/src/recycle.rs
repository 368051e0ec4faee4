//! Memory of nodes, kept by each thread for its next ones.
//!
//! An allocator would hand out again the memory of a node much later, when it has grown cold; and
//! to initialise a cold node holds up the lock that is taken next. So each thread keeps what it
//! frees, up to a bound, by size. The latest is taken first, and while it is used the processor is
//! asked for the next. The memory remains the global allocator's.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::mem::forget;
use std::ptr::NonNull;

use relativist_rcu::prefetch::prefetch_for_write;

/// How much memory of nodes a thread keeps, beside the stacks that tell where it is.
const MAX_KEPT: usize = if cfg!(relativist_no_recycling) { 0 } else { 256 << 10 };

/// Nodes of more bytes are left to the allocator, as are those of another alignment than a word's.
const MAX_SIZE: usize = 256;
const WORD: usize = size_of::<usize>();

/// What a thread keeps: a stack for each size in words. Nothing is written to the memory itself,
/// which has long left the cache.
struct Kept {
    stacks: [Cell<Vec<NonNull<u8>>>; MAX_SIZE / WORD + 1],
    bytes: Cell<usize>,
}

thread_local! {
    static KEPT: Kept = const {
        Kept { stacks: [const { Cell::new(Vec::new()) }; MAX_SIZE / WORD + 1], bytes: Cell::new(0) }
    };
}

/// Uninitialised memory of this layout, or `None`.
#[inline]
pub(crate) fn allocate(layout: Layout) -> Option<NonNull<u8>> {
    let kept = is_kept(layout).then(|| KEPT.try_with(|kept| kept.take(layout)).ok().flatten()).flatten();
    // SAFETY: nodes have a link, so their size is not zero.
    kept.or_else(|| NonNull::new(unsafe { alloc(layout) }))
}

/// # Safety
///
/// `memory` came from [`allocate`] with this layout, and nobody uses it any more.
#[inline]
pub(crate) unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    let kept = is_kept(layout) && KEPT.try_with(|kept| kept.put(memory, layout)).unwrap_or(false);
    if !kept {
        // SAFETY: as the caller vouches.
        unsafe { dealloc(memory.as_ptr(), layout) };
    }
}

/// A stack is for one layout, so that its memory can be given back to the allocator.
const fn is_kept(layout: Layout) -> bool {
    layout.size() <= MAX_SIZE && layout.align() == WORD && layout.size().is_multiple_of(WORD)
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

    /// False when there is no room.
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

    /// The stack is out of its cell meanwhile. (If the global allocator itself used a map, and so
    /// came back here when the stack grows, what it kept would be leaked.)
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
                // SAFETY: the stack holds memory of this layout, and gives it up.
                unsafe { dealloc(memory.as_ptr(), layout) };
            }
        }
    }
}
