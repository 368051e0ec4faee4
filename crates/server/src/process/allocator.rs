//! The allocator of the C library, for all memory except items: the cache has an allocator of its
//! own.

/// The size from which on blocks are mapped, each on its own: just above the ordinary input buffer,
/// which comes and goes with requests. Mapping each of those would cost system calls and page
/// faults, and with many connections more mappings than the kernel allows (`vm.max_map_count`).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED: libc::c_int = (64 << 10) + 1;

/// Makes the allocator map every large block, for values that are received or sent. They then grow
/// by moving pages instead of bytes, and are unmapped when freed. By default the C library raises
/// its threshold when such a block is freed. Call this first.
pub fn map_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `mallopt` takes no pointers, and the C library sets the number under its own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
    }
}
