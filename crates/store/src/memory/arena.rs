//! Runs of addresses for any number of blocks, in few mappings.
//!
//! The system limits the number of mappings of a process (65530 by default). A mapping per block
//! would reach that limit. So an arena opens large *regions* of a cache's [`AddressSpace`], and
//! returns runs of *slots* in them. A run costs memory only where it is written, so slots can be
//! large, and the unused end of a block's last slot costs nothing. A run that is given back loses
//! its pages ([`discard`]) but keeps its addresses, so the mapping is not split.
//!
//! Runs are found by best fit, and free neighbours are joined, in logarithmic time.

use crate::memory::address_space::{AddressSpace, SLOT};
use crate::memory::request::OutOfMemory;
use nix::libc;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::ptr::{NonNull, with_exposed_provenance_mut};

/// Bytes of a region. Even the largest cache has only some thousands of regions.
const REGION: usize = 64 << 20;

/// Regions, parts of which are in use.
pub(crate) struct Arena {
    /// The free runs: from address to length, and sorted by length. No two runs are adjacent.
    by_address: BTreeMap<usize, usize>,
    by_length: BTreeSet<(usize, usize)>,
    /// The start and the length of each region.
    regions: Vec<(NonNull<u8>, usize)>,
    /// Whether the system may use huge pages. False after a run was given back: in the background,
    /// the system would fill up the huge page to which the run belonged, and the memory in use
    /// would exceed the limit.
    allows_huge_pages: bool,
}

// SAFETY: an arena owns its regions, and no part of it belongs to a thread.
unsafe impl Send for Arena {}

impl Arena {
    /// Creates an arena without regions. Huge pages must not be allowed if runs are used in part,
    /// because a huge page occupies memory as a whole.
    pub(crate) fn new(allows_huge_pages: bool) -> Arena {
        Arena { by_address: BTreeMap::new(), by_length: BTreeSet::new(), regions: Vec::new(), allows_huge_pages }
    }

    /// Returns `bytes` of unused addresses, readable and writable; `None` if neither the arena nor
    /// `space` has them.
    pub(crate) fn take(&mut self, bytes: usize, space: &mut AddressSpace) -> Option<NonNull<u8>> {
        let wanted = bytes.next_multiple_of(SLOT);
        self.take_free(wanted).or_else(|| {
            self.grow(wanted, space)?;
            self.take_free(wanted)
        })
    }

    /// Takes over all of another arena of the same space. It takes time in proportion to the number
    /// of its free runs.
    pub(crate) fn absorb(&mut self, mut other: Arena) {
        if !self.allows_huge_pages {
            other.forbid_huge_pages();
        }
        self.regions.append(&mut other.regions);
        std::mem::take(&mut other.by_address).into_iter().for_each(|(start, length)| self.free(start, length));
    }

    fn take_free(&mut self, wanted: usize) -> Option<NonNull<u8>> {
        let &(length, start) = self.by_length.range((wanted, 0)..).next()?;
        self.remove(start, length);
        if length > wanted {
            self.insert(start + wanted, length - wanted);
        }
        NonNull::new(with_exposed_provenance_mut(start))
    }

    /// Takes back what [`take`](Self::take) returned for `bytes`, discarded in the meantime.
    pub(crate) fn give_back(&mut self, start: NonNull<u8>, bytes: usize) {
        self.forbid_huge_pages();
        self.free(start.addr().get(), bytes.next_multiple_of(SLOT));
    }

    fn forbid_huge_pages(&mut self) {
        if std::mem::take(&mut self.allows_huge_pages) {
            self.regions.iter().for_each(|&(start, length)| forbid_huge_pages(start, length));
        }
    }

    /// Adds a free run, joined with its neighbours.
    fn free(&mut self, mut start: usize, mut length: usize) {
        if let Some((&before, &size)) = self.by_address.range(..start).next_back()
            && before + size == start
        {
            self.remove(before, size);
            (start, length) = (before, size + length);
        }
        if let Some(&size) = self.by_address.get(&(start + length)) {
            self.remove(start + length, size);
            length += size;
        }
        self.insert(start, length);
    }

    fn insert(&mut self, start: usize, length: usize) {
        self.by_address.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn remove(&mut self, start: usize, length: usize) {
        self.by_address.remove(&start);
        self.by_length.remove(&(length, start));
    }

    /// Adds a region with room for `bytes`.
    fn grow(&mut self, bytes: usize, space: &mut AddressSpace) -> Option<()> {
        let generous = bytes.max(REGION);
        let (start, length) =
            space.open(generous).map(|start| (start, generous)).or_else(|| Some((space.open(bytes)?, bytes)))?;
        if !self.allows_huge_pages {
            forbid_huge_pages(start, length);
        }
        match self.regions.last_mut() {
            // Few regions mean few system calls when huge pages are forbidden.
            Some((first, bytes)) if first.addr().get() + *bytes == start.addr().get() => *bytes += length,
            _ => self.regions.push((start, length)),
        }
        self.free(start.expose_provenance().get(), length);
        Some(())
    }
}

/// The addresses of a cache's blocks.
pub(crate) struct Arenas {
    /// Those of blocks that fill their slots. Only such blocks may use huge pages: with others,
    /// memory would be used that is not counted. None once addresses have run out.
    whole: Option<Arena>,
    /// Those of other blocks, and of all once addresses have run out.
    partial: Arena,
    /// Where both find more addresses.
    space: AddressSpace,
}

impl Arenas {
    /// The addresses of a cache with this limit.
    ///
    /// # Errors
    /// As for [`AddressSpace::reserve`].
    pub(crate) fn new(limit: usize) -> Result<Arenas, OutOfMemory> {
        AddressSpace::reserve(limit).map(Arenas::of)
    }

    pub(crate) fn of(space: AddressSpace) -> Arenas {
        Arenas { whole: Some(Arena::new(true)), partial: Arena::new(false), space }
    }

    /// Returns unused addresses for a block. When they run out, all blocks share one arena from
    /// then on, without huge pages.
    pub(crate) fn take(&mut self, capacity: usize) -> Option<NonNull<u8>> {
        let whole = self.whole.as_mut().filter(|_| capacity == SLOT);
        if let Some(start) = whole.unwrap_or(&mut self.partial).take(capacity, &mut self.space) {
            return Some(start);
        }
        self.partial.absorb(self.whole.take()?);
        self.partial.take(capacity, &mut self.space)
    }

    /// Takes back what [`take`](Self::take) returned for `capacity`, discarded in the meantime.
    pub(crate) fn give_back(&mut self, start: NonNull<u8>, capacity: usize) {
        let whole = self.whole.as_mut().filter(|_| capacity == SLOT);
        whole.unwrap_or(&mut self.partial).give_back(start, capacity);
    }
}

impl Drop for Arena {
    /// Unmaps the free runs. The users of the others must [`unmap`] them.
    fn drop(&mut self) {
        for (start, length) in std::mem::take(&mut self.by_address) {
            if let Some(start) = NonNull::new(with_exposed_provenance_mut(start)) {
                // SAFETY: no thread uses it.
                unsafe { unmap(start, length) };
            }
        }
    }
}

/// Gives the pages of a run back to the system. Reading them again yields zeros.
///
/// # Safety
/// The run was taken from an arena, for this many bytes, and no thread uses it.
pub(crate) unsafe fn discard(start: NonNull<u8>, bytes: usize) {
    // Locked memory (`-k`) needs another advice, which Linux has since 5.18.
    for advice in [libc::MADV_DONTNEED, DONTNEED_LOCKED] {
        // SAFETY: the caller's promise.
        if unsafe { libc::madvise(start.as_ptr().cast(), bytes, advice) } == 0 {
            return;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { replace(start, bytes) };
}

/// `MADV_DONTNEED_LOCKED` on Linux. Other systems reject -1.
const DONTNEED_LOCKED: libc::c_int = if cfg!(target_os = "linux") { 24 } else { -1 };

/// Replaces the pages of a run by fresh ones.
///
/// # Safety
/// As for [`discard`].
unsafe fn replace(start: NonNull<u8>, bytes: usize) {
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_FIXED;
    let Some(length) = NonZeroUsize::new(bytes) else { return };
    // SAFETY: replaces a part of our own mapping that no thread uses. If this fails, the pages
    // stay.
    if unsafe { mmap_anonymous(Some(start.addr()), length, READ_WRITE, flags) }.is_ok() {
        // The flags must equal those of the neighbours. Otherwise this would become a mapping of
        // its own, and the system allows only some thousands.
        forbid_huge_pages(start, bytes);
    }
}

/// Forbids huge pages for a part of our own mapping.
fn forbid_huge_pages(start: NonNull<u8>, length: usize) {
    // SAFETY: advice changes no contents. It fails where there are no huge pages.
    let _ = unsafe { madvise(start.cast(), length, MmapAdvise::MADV_NOHUGEPAGE) };
}

/// Gives up a run for good, with its addresses.
///
/// # Safety
/// As for [`discard`], and the arena is gone or will not get it back.
pub(crate) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    let length = bytes.next_multiple_of(SLOT);
    // SAFETY: the caller's promise.
    if unsafe { munmap(start.cast(), length) }.is_err() {
        // A hole splits a mapping, and the system may allow no more mappings. Then the addresses
        // are lost, but the memory is not.
        // SAFETY: as above.
        unsafe { discard(start, length) };
    }
}

const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::mman::mlock;

    fn space() -> AddressSpace {
        AddressSpace::reserve(16 * REGION).unwrap()
    }

    #[test]
    fn runs_are_disjoint_aligned_and_joined_again() {
        let (mut arena, mut space) = (Arena::new(false), space());
        let sizes = [1, SLOT, SLOT + 1, 5 * SLOT, 3, 2 * SLOT];
        let runs: Vec<_> = sizes.iter().map(|&bytes| (arena.take(bytes, &mut space).unwrap(), bytes)).collect();
        for &(start, bytes) in &runs {
            assert_eq!(start.addr().get() % SLOT, 0);
            // SAFETY: the run is ours, and has at least this number of bytes.
            unsafe { start.write_bytes(0xff, bytes) };
        }
        let mut ends: Vec<_> = runs
            .iter()
            .map(|(start, bytes)| (start.addr().get(), start.addr().get() + bytes.next_multiple_of(SLOT)))
            .collect();
        ends.sort_unstable();
        assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ends:?}");
        for index in [1, 3, 0, 5, 2, 4] {
            let (start, bytes) = runs[index];
            // SAFETY: the run is ours, and not used any more.
            unsafe { discard(start, bytes) };
            arena.give_back(start, bytes);
        }
        assert_eq!(arena.by_address.len(), 1, "{:?}", arena.by_address);
        assert_eq!(arena.by_length.len(), 1);
        assert_eq!(arena.by_address.values().sum::<usize>(), REGION);
        let again = arena.take(sizes.iter().sum(), &mut space).unwrap();
        // SAFETY: the run is ours.
        assert_eq!(unsafe { again.read() }, 0, "what was discarded is zero");
    }

    /// With `-k` all memory is locked.
    #[test]
    fn locked_memory_is_discarded_too() {
        let (mut arena, mut space) = (Arena::new(false), space());
        let start = arena.take(SLOT, &mut space).unwrap();
        // SAFETY: the run is ours.
        unsafe {
            start.write(7);
            mlock(start.cast(), SLOT).unwrap();
            discard(start, SLOT);
            assert_eq!(start.read(), 0);
            start.write(8);
            assert_eq!(start.read(), 8);
        }
    }

    /// The flags of the mappings that overlap these bytes, as the kernel reports them.
    #[cfg(target_os = "linux")]
    fn mappings(start: NonNull<u8>, bytes: usize) -> Vec<String> {
        let (first, end) = (start.addr().get(), start.addr().get() + bytes);
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_ours = false;
        let mut flags = Vec::new();
        for line in text.lines() {
            let word = line.split(' ').next().unwrap_or_default();
            let bounds =
                word.split_once('-').map(|(low, high)| [low, high].map(|text| usize::from_str_radix(text, 16)));
            if let Some([Ok(low), Ok(high)]) = bounds {
                is_ours = low < end && first < high;
            } else if let Some(words) = line.strip_prefix("VmFlags:").filter(|_| is_ours) {
                flags.push(words.trim().to_owned());
            }
        }
        flags
    }

    /// Whether the kernel has huge pages, and so reports where they are forbidden.
    #[cfg(target_os = "linux")]
    fn has_huge_pages() -> bool {
        let has = std::path::Path::new("/sys/kernel/mm/transparent_hugepage/enabled").exists();
        if !has {
            eprintln!("not tested: the kernel has no transparent huge pages");
        }
        has
    }

    /// A run that is discarded stays in its mapping, even if memory is locked (`-k`).
    #[test]
    #[cfg(target_os = "linux")]
    fn discarding_locked_memory_splits_no_mapping() {
        const SLOTS: usize = 32;
        let (mut arena, mut space) = (Arena::new(false), space());
        let start = arena.take(SLOTS * SLOT, &mut space).unwrap();
        // SAFETY: the run is ours.
        if let Err(error) = unsafe { mlock(start.cast(), SLOTS * SLOT) } {
            return eprintln!("not tested: cannot lock 2 MiB of memory: {error}");
        }
        // SAFETY: as above.
        if unsafe { libc::madvise(start.as_ptr().cast(), SLOT, DONTNEED_LOCKED) } != 0 {
            return eprintln!("not tested: the kernel is older than 5.18");
        }
        let before = mappings(start, SLOTS * SLOT);
        assert_eq!(before.len(), 1, "{before:?}");
        for slot in (1..SLOTS).step_by(2) {
            // SAFETY: as above.
            unsafe { discard(start.add(slot * SLOT), SLOT) };
        }
        assert_eq!(mappings(start, SLOTS * SLOT), before);
    }

    /// The arena replaces memory on kernels that can't discard locked memory.
    #[test]
    #[cfg(target_os = "linux")]
    fn replaced_memory_is_like_its_neighbours() {
        if !has_huge_pages() {
            return;
        }
        let (mut arena, mut space) = (Arena::new(false), space());
        let start = arena.take(3 * SLOT, &mut space).unwrap();
        let before = mappings(start, 3 * SLOT);
        // SAFETY: the run is ours, and has these bytes.
        unsafe { replace(start.add(SLOT), SLOT) };
        assert_eq!(mappings(start, 3 * SLOT), before, "one mapping, with the same flags");
    }

    /// Where huge pages are set to `always`, the kernel would fill up those that were discarded in
    /// part.
    #[test]
    #[cfg(target_os = "linux")]
    fn discarded_memory_does_not_become_a_huge_page_again() {
        if !has_huge_pages() {
            return;
        }
        let is_poisoned = |start, bytes| {
            let all = mappings(start, bytes);
            all.iter().all(|flags| flags.split(' ').any(|flag| flag == "nh"))
        };
        let (mut arena, mut space) = (Arena::new(true), space());
        let (one, other) = (arena.take(SLOT, &mut space).unwrap(), arena.take(2 * REGION, &mut space).unwrap());
        assert!(!is_poisoned(one, SLOT) && !is_poisoned(other, 2 * REGION));
        // SAFETY: the run is ours, and not used any more.
        unsafe { discard(one, SLOT) };
        arena.give_back(one, SLOT);
        assert!(is_poisoned(one, SLOT) && is_poisoned(other, 2 * REGION));
        let later = arena.take(8 * REGION, &mut space).unwrap();
        assert!(is_poisoned(later, 8 * REGION), "regions to come");
    }

    #[test]
    fn a_run_larger_than_a_region_finds_room() {
        let (mut arena, mut space) = (Arena::new(true), space());
        let large = arena.take(3 * REGION, &mut space).unwrap();
        // SAFETY: the run is ours, and has these bytes.
        unsafe { large.add(3 * REGION - 1).write(1) };
        arena.take(REGION, &mut space).unwrap();
        let lengths: Vec<_> = arena.regions.iter().map(|&(_, length)| length).collect();
        assert_eq!(lengths, [4 * REGION], "neighbours are one region");
    }
}
