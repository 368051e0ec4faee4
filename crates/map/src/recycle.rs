//! Memory of nodes, kept by each thread for its next ones.
//!
//! A node that has been dropped after its grace period lay in the cache of the thread that removed it not long ago. An allocator
//! would hand that memory out again much later, when it has grown cold, and initialising a cold node holds up the lock that
//! follows. So each thread keeps what it frees, up to a bound, in lists by size, and takes the latest first. The memory is the global allocator's.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};

/// How much memory a thread keeps.
const MAX_KEPT: usize = if cfg!(relativist_no_recycling) { 0 } else { 256 << 10 };

/// Nodes of more bytes are left to the allocator, as are those of another alignment than a word's.
const MAX_SIZE: usize = 256;
const WORD: usize = size_of::<usize>();

/// Free memory.
struct Free {
    next: *mut Free,
}

/// What a thread keeps: a list for each size in words.
struct Kept {
    lists: [Cell<*mut Free>; MAX_SIZE / WORD + 1],
    bytes: Cell<usize>,
}

thread_local! {
    static KEPT: Kept = const { Kept { lists: [const { Cell::new(null_mut()) }; MAX_SIZE / WORD + 1], bytes: Cell::new(0) } };
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
    // SAFETY: as the caller vouches.
    let kept = is_kept(layout) && KEPT.try_with(|kept| unsafe { kept.put(memory, layout) }).unwrap_or(false);
    if !kept {
        // SAFETY: as the caller vouches.
        unsafe { dealloc(memory.as_ptr(), layout) };
    }
}

/// A list is for one layout, so that its memory can be given back to the allocator.
const fn is_kept(layout: Layout) -> bool {
    layout.size() <= MAX_SIZE && layout.align() == WORD && layout.size().is_multiple_of(WORD)
}

impl Kept {
    #[inline]
    fn take(&self, layout: Layout) -> Option<NonNull<u8>> {
        let list = &self.lists[layout.size() / WORD];
        let first = NonNull::new(list.get())?;
        // SAFETY: what is in the lists is ours, and starts with a `Free`.
        list.set(unsafe { first.as_ref() }.next);
        self.bytes.set(self.bytes.get() - layout.size());
        Some(first.cast())
    }

    /// False when there is no room.
    ///
    /// # Safety
    ///
    /// As for [`free`].
    #[inline]
    unsafe fn put(&self, memory: NonNull<u8>, layout: Layout) -> bool {
        let bytes = self.bytes.get() + layout.size();
        if bytes > MAX_KEPT {
            return false;
        }
        let list = &self.lists[layout.size() / WORD];
        let free = memory.cast::<Free>();
        // SAFETY: given up by the caller, aligned to a word and of one at least.
        unsafe { free.write(Free { next: list.get() }) };
        list.set(free.as_ptr());
        self.bytes.set(bytes);
        true
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (words, list) in self.lists.iter().enumerate() {
            while let Some(first) = NonNull::new(list.get()) {
                // SAFETY: as in `take`.
                list.set(unsafe { first.as_ref() }.next);
                let layout = Layout::from_size_align(words * WORD, WORD).expect("a multiple of the alignment");
                // SAFETY: the lists hold memory of this layout, and this one is out of its list.
                unsafe { dealloc(first.as_ptr().cast(), layout) };
            }
        }
    }
}
