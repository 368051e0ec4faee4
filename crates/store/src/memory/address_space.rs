//! The addresses of a cache's memory, reserved when the cache is created.
//!
//! Compact links ([`CompactLink`]) lead from one item to another, so all memory of a cache must lie
//! within their range. The system places a mapping wherever it finds room. In a process with many
//! mappings, that may be out of reach. So before it stores its first item, a cache reserves a range
//! as long as links reach. It opens parts of the range as it needs them, from the start on.
//!
//! Reserved addresses cannot be accessed, and cost no memory: they count neither as committed
//! (`vm.overcommit_memory`) nor as data, and are not in core files. They do count as virtual
//! memory. If that is limited (`ulimit -v`), all caches together reserve at most half of it. The
//! rest is for threads and buffers. So a cache may reserve only what its memory limit needs, and
//! cannot use more if its memory limit is raised later.
//!
//! The alternative is to map each region within reach when it is needed. Then there may be no free
//! place: other mappings of the process, such as that of a large file, may have filled the range.

use crate::memory::request::OutOfMemory;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use relativist_table::CompactLink;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The unit of addresses. Blocks begin at multiples of this.
pub(crate) const SLOT: usize = 1 << 16;

/// Addresses in addition to those of blocks: a region of each arena may be nearly empty.
const SPARE: usize = 128 << 20;

/// The addresses of all caches, in use or not.
static CLAIMED: AtomicUsize = AtomicUsize::new(0);

/// Addresses that are reserved, and not used yet.
pub(crate) struct AddressSpace {
    start: NonNull<u8>,
    length: usize,
    /// All that were reserved.
    _claim: Claim,
}

// SAFETY: these addresses belong to this value, and no part of them to a thread.
unsafe impl Send for AddressSpace {}

impl AddressSpace {
    /// Reserves the addresses of a cache with this limit.
    ///
    /// # Errors
    /// When the system refuses even those that the limit needs, or when the caches would have more
    /// than half of the process's virtual memory, which is limited.
    pub(crate) fn reserve(limit: usize) -> Result<AddressSpace, OutOfMemory> {
        let whole = |bytes: usize| bytes.saturating_add(SPARE).min(CompactLink::RANGE) / SLOT * SLOT;
        // An item of 16 KiB or more has slots of its own, up to 3.2 times its memory. If there are
        // many, fewer addresses can run out before the limit is reached. Then the cache evicts.
        let (ample, enough) = (whole(limit.saturating_mul(4)), whole(limit.saturating_add(limit / 2)));
        // ThreadSanitizer has too few addresses for many caches that reserve the whole range.
        let most = if cfg!(relativist_sanitizer = "thread") { enough } else { CompactLink::RANGE };
        let reserved = [most, ample, enough].into_iter().find_map(AddressSpace::exactly);
        reserved.ok_or(OutOfMemory { requested: enough })
    }

    fn exactly(length: usize) -> Option<AddressSpace> {
        let claim = Claim::new(length, allowed())?;
        Some(AddressSpace { start: reserve(length)?, length, _claim: claim })
    }

    /// Reserves `length` addresses, a multiple of [`SLOT`].
    #[cfg(test)]
    pub(crate) fn of_length(length: usize) -> AddressSpace {
        AddressSpace::exactly(length).unwrap()
    }

    /// Makes the next `bytes`, a multiple of [`SLOT`], readable and writable, and returns their
    /// address. `None` if there are fewer left, or if the system refuses to commit more.
    pub(crate) fn open(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let start = self.start;
        let rest = self.length.checked_sub(bytes)?;
        // SAFETY: this part of our own mapping is not used.
        unsafe { mprotect(start.cast(), bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE) }.ok()?;
        // SAFETY: at most the end of the mapping.
        self.start = unsafe { start.add(bytes) };
        self.length = rest;
        Some(start)
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        // SAFETY: this part of our own mapping is not used. If this fails, it costs no memory.
        let _ = unsafe { munmap(self.start.cast(), self.length) };
    }
}

/// A part of [`CLAIMED`].
struct Claim(usize);

impl Claim {
    /// `None` if all claims together would exceed `allowed` bytes.
    fn new(bytes: usize, allowed: usize) -> Option<Claim> {
        let add = |claimed: usize| claimed.checked_add(bytes).filter(|sum| *sum <= allowed);
        // Relaxed: no other data depends on the sum.
        CLAIMED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Claim(bytes))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Relaxed: as in `new`.
        CLAIMED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// The addresses that all caches may reserve: half of those of the process if they are limited.
fn allowed() -> usize {
    match getrlimit(Resource::RLIMIT_AS) {
        Ok((limit, _)) if limit != RLIM_INFINITY => usize::try_from(limit / 2).unwrap_or(usize::MAX),
        _ => usize::MAX,
    }
}

/// Maps `length` bytes, a multiple of [`SLOT`], at an address that is also one. They cannot be
/// accessed.
fn reserve(length: usize) -> Option<NonNull<u8>> {
    let whole = NonZeroUsize::new(length.checked_add(SLOT)?)?;
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
    let start = unsafe { mmap_anonymous(None, whole, ProtFlags::PROT_NONE, flags) }.ok()?.cast::<u8>();
    let before = start.align_offset(SLOT);
    // SAFETY: `before` is less than a slot. The ends that are not aligned are within the mapping,
    // and no thread uses them. If `munmap` fails, they cost no memory.
    unsafe {
        let middle = start.add(before);
        for (part, rest) in [(start, before), (middle.add(length), SLOT - before)] {
            if rest > 0 {
                let _ = munmap(part.cast(), rest);
            }
        }
        Some(middle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::arena::Arena;

    /// Maps all addresses for a long way around the next mapping, except for a few slots: there the
    /// system puts the next small mapping.
    #[cfg(not(relativist_sanitizer = "thread"))]
    fn crowd() -> Vec<AddressSpace> {
        let mut crowd: Vec<_> = (0..4).map(|_| AddressSpace::of_length(CompactLink::RANGE)).collect();
        // SAFETY: within the mapping.
        let middle = unsafe { crowd[1].start.add(CompactLink::RANGE / 2) };
        let hole = 4 * SLOT;
        // SAFETY: as above. Nothing uses these addresses.
        unsafe { munmap(middle.cast(), hole) }.expect("a hole");
        crowd[1].length /= 2;
        // SAFETY: as above.
        let start = unsafe { middle.add(hole) };
        crowd.push(AddressSpace { start, length: CompactLink::RANGE / 2 - hole, _claim: Claim(0) });
        crowd
    }

    /// All memory lies within reach, whatever else the process maps, before and later.
    #[test]
    #[cfg(not(relativist_sanitizer = "thread"))]
    fn other_mappings_take_no_addresses_from_a_cache() {
        let _before = crowd();
        let mut space = AddressSpace::reserve(1 << 20).unwrap();
        assert_eq!(space.length, CompactLink::RANGE);
        let reach = space.start..space.start.map_addr(|first| first.saturating_add(CompactLink::RANGE));
        let _later = crowd();
        for allows_huge_pages in [true, false] {
            let mut arena = Arena::new(allows_huge_pages);
            for bytes in [SLOT, 1 << 30, CompactLink::RANGE / 8] {
                let start = arena.take(bytes, &mut space).unwrap();
                // SAFETY: the run is ours, and has these bytes.
                let last = unsafe { start.add(bytes - 1) };
                // SAFETY: as above.
                unsafe { last.write(1) };
                assert!(reach.contains(&start) && reach.contains(&last));
            }
        }
    }

    /// Where addresses are few, a cache can open those that it has reserved, to the last one.
    #[test]
    fn reserved_addresses_can_be_used_to_the_end() {
        let mut space = AddressSpace::of_length(3 * SLOT);
        let mut arena = Arena::new(false);
        let runs = [(); 3].map(|()| arena.take(SLOT, &mut space).unwrap());
        // SAFETY: the runs are ours.
        runs.iter().for_each(|start| unsafe { start.write_bytes(1, SLOT) });
        assert_eq!(arena.take(SLOT, &mut space), None);
        arena.give_back(runs[1], SLOT);
        assert_eq!(arena.take(SLOT, &mut space), Some(runs[1]));
    }

    /// However many caches there are: half of a limit on virtual memory is left to the process.
    #[test]
    #[cfg(not(any(relativist_sanitizer = "address", relativist_sanitizer = "thread")))]
    fn caches_leave_half_of_a_limit_to_the_process() {
        relativist_testing::alone(|| {
            const LIMIT: usize = 16 << 30;
            nix::sys::resource::setrlimit(Resource::RLIMIT_AS, LIMIT as u64, LIMIT as u64).expect("a lower limit");
            let cache = || AddressSpace::reserve(1 << 30).ok();
            let caches: Vec<AddressSpace> = std::iter::from_fn(cache).take(100).collect();
            let lengths: Vec<usize> = caches.iter().map(|cache| cache.length).collect();
            let (ample, enough) = ((4 << 30) + SPARE, (3 << 29) + SPARE);
            assert_eq!(lengths, [ample, enough, enough], "one more would be more than half");
            assert!(reserve(LIMIT / 2).is_some(), "half of the limit is left");
            drop(caches);
            assert_eq!(cache().expect("as in the beginning").length, ample);
        });
    }

    #[test]
    #[cfg(not(relativist_sanitizer = "thread"))]
    fn a_cache_reserves_no_more_than_links_reach() {
        let space = AddressSpace::reserve(usize::MAX).unwrap();
        assert_eq!(space.length, CompactLink::RANGE, "more is out of reach");
    }
}
