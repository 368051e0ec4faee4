//! The global allocator. Items are not in its memory: the cache has an allocator of its own.
//!
//! Small blocks come from mimalloc. Large ones, for values that are received or sent, come from the
//! system's allocator, which maps each of them: they grow by moving pages instead of bytes, and are
//! unmapped when freed. mimalloc would keep large blocks, by size and thread: with values of many
//! sizes, this took 100 MiB at `-m 64` (`relativist-bench soak`).
//!
//! mimalloc gets small pages only. It advises the kernel to use huge ones, and then a few blocks of
//! each size keep 2 MiB resident: in the soak, 2 MiB of blocks took 28 MiB, and now take 9.

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout, System};

/// The size from which on blocks are large: just above the ordinary input buffer, which comes and
/// goes with requests. Mapping each of those would cost system calls and page faults, and with many
/// connections more mappings than the kernel allows (`vm.max_map_count`). It is not larger, because
/// from 128 KiB on, `relativist-bench soak` at `-m 64` found mimalloc to keep too much.
const LARGE: usize = (64 << 10) + 1;

/// One of two allocators, by size.
#[derive(Debug)]
pub struct BySize;

impl BySize {
    /// Makes the C library map every large block. By default it raises its threshold when such a
    /// block is freed. Takes huge pages from mimalloc. Call this first.
    pub fn set_up() {
        #[cfg(target_os = "linux")]
        forbid_huge_pages();
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: sets a number.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE as libc::c_int);
        }
    }
}

/// Advises the kernel not to use huge pages in the mapping in which mimalloc allocates. It has a
/// gibibyte, so there is hardly ever another one.
#[cfg(target_os = "linux")]
fn forbid_huge_pages() {
    let layout = Layout::new::<u64>();
    // SAFETY: the size is not zero.
    let block = unsafe { MiMalloc.alloc(layout) };
    let address = block.addr();
    // SAFETY: just allocated with this layout, and not used. Only its address is.
    unsafe { MiMalloc.dealloc(block, layout) };
    let Ok(mappings) = std::fs::read_to_string("/proc/self/maps") else { return };
    let is_around = |range: &std::ops::Range<usize>| range.contains(&address);
    if let Some(range) = mappings.lines().filter_map(range).find(is_around) {
        let start = std::ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: advice, which changes no contents. If it fails, more memory stays resident.
        unsafe { libc::madvise(start, range.len(), libc::MADV_NOHUGEPAGE) };
    }
}

/// The addresses of a line of `/proc/self/maps`.
#[cfg(target_os = "linux")]
fn range(line: &str) -> Option<std::ops::Range<usize>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE
}

// SAFETY: each block comes from one allocator and returns to it. The size decides which; the caller
// passes the same size both times, and only `realloc` changes it.
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
        // SAFETY: the caller promises that the size, rounded up to the alignment, does not
        // overflow.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller's promise. The block is from the allocator of its old size, and both
        // blocks have at least the bytes that are copied.
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
    #[cfg(target_os = "linux")]
    fn mimalloc_gets_no_huge_pages() {
        // A kernel without them rejects the advice.
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        forbid_huge_pages();
        let layout = Layout::new::<[u64; 100]>();
        // SAFETY: the size is not zero.
        let block = unsafe { MiMalloc.alloc(layout) };
        let mappings = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines =
            mappings.lines().skip_while(|line| !range(line).is_some_and(|range| range.contains(&block.addr())));
        let flags = lines.find(|line| line.starts_with("VmFlags:")).expect("the mapping of the block has flags");
        assert!(flags.contains(" nh"), "{flags}");
        // SAFETY: just allocated with this layout.
        unsafe { MiMalloc.dealloc(block, layout) };
    }

    #[test]
    fn blocks_keep_their_bytes_when_they_change_size() {
        let layout = |size| Layout::from_size_align(size, 16).unwrap();
        let mut size = 100;
        // SAFETY: sizes are not zero, and each call is passed the current one.
        let mut block = unsafe { BySize.alloc(layout(size)) };
        for next in [LARGE - 1, LARGE, 10 * LARGE, LARGE + 1, 200, LARGE, 1] {
            // SAFETY: the block has `size` bytes, and the one that `realloc` returns at least the
            // smaller of both sizes.
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
