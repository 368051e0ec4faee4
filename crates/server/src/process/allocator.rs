//! Memory for what connections need; items lie in memory of the engine's own.
//!
//! Small blocks come from mimalloc. Large ones, for values that arrive or leave, come from the system's allocator, which maps each by
//! itself: they grow by moving pages instead of bytes, and are gone when they are freed. mimalloc keeps them, by size and thread: under
//! values of many sizes that came to 100 MiB, with `-m 64` (`relativist-bench soak`).

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout, System};

/// Blocks from this on are large: those above the ordinary input buffer, which come and go with requests. To map each of these would take system
/// calls and page faults every time, and with many connections more mappings than the kernel grants a process (`vm.max_map_count`).
/// No more than that: from 128 KiB on, `relativist-bench soak` at `-m 64` still found too much kept by mimalloc.
const LARGE: usize = (64 << 10) + 1;

/// One of two allocators, by size.
#[derive(Debug)]
pub struct BySize;

impl BySize {
    /// Has the C library map them all. It would raise the size from which it does when it is asked to free one.
    pub fn set_up() {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: sets a number.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE as libc::c_int);
        }
    }
}

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE
}

// SAFETY: each block is from one allocator, and goes back to it: which one is told by its size, which the caller tells both times, and
// which changes in `realloc` only.
unsafe impl GlobalAlloc for BySize {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { if is_large(layout) { System.alloc(layout) } else { MiMalloc.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { if is_large(layout) { System.alloc_zeroed(layout) } else { MiMalloc.alloc_zeroed(layout) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, and the block is from the allocator of this size.
        unsafe { if is_large(layout) { System.dealloc(block, layout) } else { MiMalloc.dealloc(block, layout) } }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size, rounded up to the alignment, does not overflow.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller's promise; the block is from the allocator of its old size, and the new one is as long as is copied.
        unsafe {
            match (is_large(layout), is_large(new)) {
                (true, true) => System.realloc(block, layout, size),
                (false, false) => MiMalloc.realloc(block, layout, size),
                _ => {
                    let moved = self.alloc(new);
                    if !moved.is_null() {
                        moved.copy_from_nonoverlapping(block, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    moved
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_bytes_when_they_change_size() {
        let layout = |size| Layout::from_size_align(size, 16).unwrap();
        let mut size = 100;
        // SAFETY: sizes are not zero, and each is told to the next call.
        let mut block = unsafe { BySize.alloc(layout(size)) };
        for next in [LARGE - 1, LARGE, 10 * LARGE, LARGE + 1, 200, LARGE, 1] {
            // SAFETY: the block has so many bytes; what `realloc` returns has the smaller number of both.
            unsafe {
                block.write_bytes(7, size);
                block = BySize.realloc(block, layout(size), next);
                let kept = std::slice::from_raw_parts(block, size.min(next));
                assert!(kept.iter().all(|byte| *byte == 7), "{size} {next}");
            }
            assert_eq!(block.addr() % 16, 0);
            size = next;
        }
        // SAFETY: as above.
        unsafe { BySize.dealloc(block, layout(size)) };
    }
}
