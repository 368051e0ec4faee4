//! Ghosts: the hashes of new entries that were evicted lately. A key that comes back while it is
//! remembered is used again and again, though not often enough for its time on probation.
//!
//! A ghost is a fingerprint of 32 bits in a set of eight, of which the oldest is forgotten. So
//! there are false positives, a few in a billion, and nothing to allocate per ghost.

use relativist_core::prefetch::prefetch_for_write;

/// The number of ghosts in a set: half a cache line.
const WAYS: usize = 8;

/// The fingerprint of no hash.
const NONE: u32 = 0;

pub(super) struct Ghosts {
    sets: Box<[[u32; WAYS]]>,
    /// The smallest and the largest number of entries for which there are about enough sets.
    fits: (usize, usize),
}

impl Default for Ghosts {
    fn default() -> Self {
        // No number fits.
        Self { sets: Box::default(), fits: (1, 0) }
    }
}

impl Ghosts {
    /// Remembers a hash, for as many later ones as there are entries, on average. If there is no
    /// memory for that, remembers fewer.
    #[inline(always)]
    pub(super) fn remember(&mut self, hash: u64, entries: usize) {
        self.make_room(entries);
        if let Some(set) = self.set(hash) {
            set.copy_within(..WAYS - 1, 1);
            set[0] = fingerprint(hash);
        }
    }

    /// Returns whether the hash was remembered, and forgets it.
    #[inline(always)]
    pub(super) fn forget(&mut self, hash: u64) -> bool {
        let Some(set) = self.set(hash) else { return false };
        // Compares all at once, because most hashes are not there.
        let wanted = fingerprint(hash);
        set.iter().fold(false, |any, &ghost| any | (ghost == wanted)) && take_out(set, wanted)
    }

    /// Prefetches what remembering and forgetting this hash will read and write.
    #[inline]
    pub(super) fn prefetch(&mut self, hash: u64) {
        if let Some(set) = self.set(hash) {
            prefetch_for_write(set);
        }
    }

    #[inline]
    fn set(&mut self, hash: u64) -> Option<&mut [u32; WAYS]> {
        let sets = self.sets.len() as u64;
        self.sets.get_mut((((hash >> 32) * sets) >> 32) as usize)
    }

    /// Makes as many sets as these entries need, unless there are about as many. Forgets all ghosts
    /// if there were not.
    #[inline(always)]
    fn make_room(&mut self, entries: usize) {
        if entries < self.fits.0 || entries > self.fits.1 {
            self.resize(entries);
        }
    }

    #[cold]
    fn resize(&mut self, entries: usize) {
        let needed = entries.div_ceil(WAYS).max(1);
        let mut sets = Vec::new();
        // A quarter more, so that a cache that grows slowly does not begin anew each time.
        let count = needed + needed / 4;
        if sets.try_reserve_exact(count).is_ok() {
            sets.resize(count, [NONE; WAYS]);
            self.sets = sets.into();
            // Entries that need fewer than half of the sets are too few.
            let too_few = (count / 2).saturating_sub(1) * WAYS;
            self.fits = (if too_few > 0 { too_few + 1 } else { 0 }, count * WAYS);
        }
    }
}

/// Takes a fingerprint out of a set. Returns whether it was there.
#[cold]
fn take_out(set: &mut [u32; WAYS], wanted: u32) -> bool {
    let Some(at) = set.iter().position(|&ghost| ghost == wanted) else { return false };
    set.copy_within(at + 1.., at);
    set[WAYS - 1] = NONE;
    true
}

#[inline]
fn fingerprint(hash: u64) -> u32 {
    (hash as u32).max(NONE + 1)
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use super::*;
    use relativist_bucket::Hash;

    fn hash(n: u64) -> u64 {
        Hash::new(n).get()
    }

    #[test]
    fn a_ghost_is_remembered_once() {
        let mut ghosts = Ghosts::default();
        assert!(!ghosts.forget(hash(1)));
        ghosts.remember(hash(1), 100);
        assert!(!ghosts.forget(hash(2)));
        assert!(ghosts.forget(hash(1)));
        assert!(!ghosts.forget(hash(1)));
    }

    #[test]
    fn the_latest_ghosts_are_remembered() {
        let mut ghosts = Ghosts::default();
        (0..100_000).for_each(|n| ghosts.remember(hash(n), 10_000));
        let remembered =
            |ghosts: &mut Ghosts, range: std::ops::Range<u64>| range.filter(|&n| ghosts.forget(hash(n))).count();
        assert!(remembered(&mut ghosts, 96_000..100_000) > 3_900);
        assert!(remembered(&mut ghosts, 0..70_000) < 700);
    }

    #[test]
    fn equal_hashes_share_a_set() {
        let mut ghosts = Ghosts::default();
        (0..100).for_each(|_| ghosts.remember(0, 100));
        assert_eq!((0..100).filter(|_| ghosts.forget(0)).count(), WAYS);
        assert!(!ghosts.forget(1 << 63));
    }

    #[test]
    fn room_follows_the_number_of_entries() {
        let mut ghosts = Ghosts::default();
        ghosts.remember(hash(1), 80);
        let sets = ghosts.sets.len();
        ghosts.remember(hash(1), 90);
        assert_eq!(ghosts.sets.len(), sets);
        ghosts.remember(hash(1), 1000);
        assert!(ghosts.sets.len() * WAYS >= 1000);
        ghosts.remember(hash(1), 10);
        assert!(ghosts.sets.len() <= 3);
    }
}
