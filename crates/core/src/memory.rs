//! Zeroed memory for bucket arrays.
//!
//! Large arrays are mapped directly from the kernel, in huge pages if available: with small pages
//! each random access would miss the TLB. The global allocator is not used for these, because it
//! may write zeros into small pages to provide aligned and zeroed memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Returns zeroed memory of this layout, or `None`.
pub fn allocate_zeroed(layout: Layout) -> Option<NonNull<u8>> {
    assert_ne!(layout.size(), 0);
    if is_mapped(layout) {
        return map(layout.size());
    }
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { alloc_zeroed(layout) })
}

/// Frees memory.
///
/// # Safety
///
/// `memory` came from [`allocate_zeroed`] with this layout, and no thread uses it any more.
pub unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    if is_mapped(layout) {
        // SAFETY: `map` mapped the memory with this size, and no thread uses it any more.
        unsafe { unmap(memory, layout.size()) };
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { dealloc(memory.as_ptr(), layout) };
    }
}

/// The sizes of huge and of small pages on x86-64, and on most Arm systems.
const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// Returns whether memory of this layout is mapped and not allocated: whether it fills a huge page.
fn is_mapped(layout: Layout) -> bool {
    cfg!(all(target_os = "linux", not(any(relativist_loom, miri)))) && layout.size() >= HUGE && layout.align() <= PAGE
}

#[cfg(target_os = "linux")]
fn map(size: usize) -> Option<NonNull<u8>> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // The kernel may place a mapping at any small page, but a huge page has to be aligned. So this
    // maps more than needed, and unmaps the rest.
    let size = size.next_multiple_of(PAGE);
    // SAFETY: a new mapping at an address that the kernel chooses does not affect other memory.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), size.checked_add(HUGE)?, access, kind, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let before = mapped.addr().next_multiple_of(HUGE) - mapped.addr();
    // SAFETY: all these ranges are in the new mapping, which no other code uses yet. The advice
    // does not change its contents. Failures are ignored: at worst some address space stays mapped.
    unsafe {
        let memory = mapped.byte_add(before);
        if before > 0 {
            libc::munmap(mapped, before);
        }
        libc::munmap(memory.byte_add(size), HUGE - before);
        libc::madvise(memory, size, libc::MADV_HUGEPAGE);
        NonNull::new(memory.cast())
    }
}

/// Unmaps memory.
///
/// # Safety
///
/// [`map`] returned `memory` for this size, and no thread uses it any more.
#[cfg(target_os = "linux")]
unsafe fn unmap(memory: NonNull<u8>, size: usize) {
    // SAFETY: guaranteed by the caller. `munmap` rounds the size up to pages, as `map` does.
    let failed = unsafe { libc::munmap(memory.as_ptr().cast(), size) };
    debug_assert_eq!(failed, 0);
}

#[cfg(not(target_os = "linux"))]
fn map(_: usize) -> Option<NonNull<u8>> {
    unreachable!("mapped on Linux alone")
}

#[cfg(not(target_os = "linux"))]
unsafe fn unmap(_: NonNull<u8>, _: usize) {
    unreachable!("mapped on Linux alone")
}
