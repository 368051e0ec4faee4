//! The word of a segment: the tags of its live slots, and when its other slots were vacated.
//!
//! ```text
//!  63         50   49       48     47       32 31       16 15        0
//! +-------------+-------+--------+-----------+-----------+-----------+
//! | stamp       | moved | locked | slot 2    | slot 1    | slot 0    |
//! +-------------+-------+--------+-----------+-----------+-----------+
//! ```
//!
//! * *slot n:* 0 if the slot is free. A [`Tag`], which has its highest bit set, if the slot is
//!   live. 1 if the slot is *vacated*: it held an entry to which readers may still have references.
//! * *stamp:* the number of the latest grace period that had begun when a slot of this segment was
//!   last vacated, modulo 2^14. After 2^14 grace periods the numbers repeat. Then vacated slots
//!   look younger than they are, which only delays their reuse. They never look older, because
//!   fewer than 2^13 grace periods have begun and not ended.
//! * *locked:* an update or a mover holds the lock of the bucket. Only in first segments.
//! * *moved:* the entries of the bucket are in the next array, and no slot is live. Only in first
//!   segments.

use relativist_rcu::clock;

use relativist_table::Hash;

/// Part of a hash, by which lookups skip most entries with other keys. Never 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(u64);

impl Tag {
    const LIVE: u64 = 1 << 15;

    /// Takes bits 20 to 34. They are below those that choose the bucket, in arrays of up to 2^29
    /// buckets. The lowest bits of a hash are weak.
    #[inline(always)]
    pub(super) fn of(hash: Hash) -> Self {
        Self(hash.get() >> 20 & 0xffff | Self::LIVE)
    }

    /// Returns the bit for this tag in the filter of a [`Link`](super::segment::Link). Tags share
    /// bits.
    #[inline(always)]
    pub(super) fn filter_bit(self) -> usize {
        1 << self.filter_index()
    }

    #[inline(always)]
    pub(super) fn filter_index(self) -> u32 {
        self.0 as u32 & 15
    }
}

/// The value of a segment's word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    /// The number of slots of a segment.
    pub(super) const SLOTS: usize = 3;

    /// The lowest bit of each lane: a lane is the 16 bits of a slot.
    const LANES: u64 = 0x0001_0001_0001;
    const HIGHEST: u64 = Self::LANES << 15;
    const LOWER: u64 = Self::HIGHEST - Self::LANES;
    const LANE: u64 = 0xffff;
    const VACATED: u64 = 1;
    const LOCKED: u64 = 1 << 48;
    const MOVED: u64 = 1 << 49;
    const STAMP_SHIFT: u32 = 50;
    const STAMP_MASK: u64 = (1 << (64 - Self::STAMP_SHIFT)) - 1;

    /// All slots are free.
    pub(super) const EMPTY: Self = Self(0);

    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(super) fn is_moved(self) -> bool {
        self.0 & Self::MOVED != 0
    }

    #[inline(always)]
    pub(super) fn is_locked(self) -> bool {
        self.0 & Self::LOCKED != 0
    }

    #[inline(always)]
    pub(super) fn is_locked_or_moved(self) -> bool {
        self.0 & (Self::LOCKED | Self::MOVED) != 0
    }

    #[inline(always)]
    pub(super) fn locked(self) -> Self {
        Self(self.0 | Self::LOCKED)
    }

    /// The entries of the bucket are in the next array. No slot is live, so that a lookup which
    /// finds an entry need not check whether the bucket has moved.
    pub(super) const MOVED_AWAY: Self = Self(Self::MOVED);

    /// Returns the live slots.
    #[inline(always)]
    pub(super) fn live(self) -> Slots {
        Slots(self.0 & Self::HIGHEST)
    }

    /// Returns the live slots, as one bit each.
    #[inline(always)]
    pub(super) fn live_bits(self) -> u64 {
        let live = (self.0 & Self::HIGHEST) >> 15;
        // The product has the lowest bits of the lanes side by side, and no carries.
        live.wrapping_mul(1 << 32 | 1 << 17 | 1 << 2) >> 32 & ((1 << Self::SLOTS) - 1)
    }

    /// Returns the first live slot with this tag.
    #[inline(always)]
    #[cfg(target_arch = "x86_64")]
    pub(super) fn first_match(self, tag: Tag) -> Option<usize> {
        self.first_lane(tag.0)
    }

    /// Returns the first free slot. Vacated ones do not count.
    #[inline(always)]
    #[cfg(target_arch = "x86_64")]
    pub(super) fn first_free(self) -> Option<usize> {
        self.first_lane(0)
    }

    /// Returns the first vacated slot.
    #[inline(always)]
    #[cfg(target_arch = "x86_64")]
    fn first_vacated(self) -> Option<usize> {
        self.first_lane(Self::VACATED)
    }

    /// Returns the first slot whose lane has this value. Compares all lanes at once, in fewer
    /// instructions than with arithmetic.
    #[inline(always)]
    #[cfg(target_arch = "x86_64")]
    fn first_lane(self, value: u64) -> Option<usize> {
        use std::arch::x86_64::{_mm_cmpeq_epi16, _mm_cvtsi64_si128, _mm_movemask_epi8, _mm_set1_epi16};
        // SAFETY: all processors of this architecture have these instructions.
        let equal = unsafe {
            let lanes = _mm_cvtsi64_si128(self.0 as i64);
            _mm_movemask_epi8(_mm_cmpeq_epi16(lanes, _mm_set1_epi16(value as i16)))
        };
        // Two bits for each lane.
        let equal = equal & ((1 << (2 * Self::SLOTS)) - 1);
        (equal != 0).then(|| equal.trailing_zeros() as usize / 2)
    }

    /// Returns the first free slot. Vacated ones do not count.
    #[inline(always)]
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn first_free(self) -> Option<usize> {
        self.free().next()
    }

    /// Returns the first vacated slot.
    #[inline(always)]
    #[cfg(not(target_arch = "x86_64"))]
    fn first_vacated(self) -> Option<usize> {
        self.vacated().next()
    }

    /// Returns the first live slot with this tag.
    #[inline(always)]
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn first_match(self, tag: Tag) -> Option<usize> {
        let differences = self.0 ^ (tag.0 * Self::LANES);
        // Only the lowest lane found is certain to be zero: the subtraction borrows from the lanes
        // above it.
        let zeros = differences.wrapping_sub(Self::LANES) & !differences & Self::HIGHEST;
        (zeros != 0).then(|| zeros.trailing_zeros() as usize / 16)
    }

    /// Returns the live slots with this tag.
    #[inline(always)]
    pub(super) fn matches(self, tag: Tag) -> Slots {
        let differences = self.0 ^ (tag.0 * Self::LANES);
        // Exact, unlike the shorter way to find lanes that are zero: a vacated slot must not match.
        let nonzero = ((differences & Self::LOWER) + Self::LOWER) | differences;
        Slots(!nonzero & Self::HIGHEST)
    }

    /// Returns the free slots. Vacated ones do not count.
    #[inline(always)]
    fn free(self) -> Slots {
        Slots(!(self.0 | (self.0 & Self::LANES) << 15) & Self::HIGHEST)
    }

    #[cfg(any(test, not(target_arch = "x86_64")))]
    fn vacated(self) -> Slots {
        Slots((self.0 & Self::LANES) << 15 & !self.0)
    }

    /// Makes vacated slots free, if no reader can have references to their entries any more.
    fn reclaimed(self) -> Self {
        if self.first_vacated().is_none() || !self.has_aged(clock::ended()) {
            return self;
        }
        self.without_vacated()
    }

    /// Makes all vacated slots free.
    #[inline(always)]
    fn without_vacated(self) -> Self {
        let live_lanes = (self.0 & Self::HIGHEST) >> 15;
        let other_bits = !(Self::LANES * Self::LANE);
        Self(self.0 & ((live_lanes * Self::LANE) | other_bits))
    }

    /// Returns whether enough grace periods have ended since the stamp. `ended` is the latest one
    /// that has ended.
    fn has_aged(self, ended: u64) -> bool {
        let age = ended.wrapping_sub(self.0 >> Self::STAMP_SHIFT) & Self::STAMP_MASK;
        // The stamp may be newer than the latest grace period that has ended.
        (clock::GRACE_PERIODS..Self::STAMP_MASK / 2).contains(&age)
    }

    /// Returns the word and its free slots. If fewer than `wanted` are free, first makes vacated
    /// slots free, if that is possible.
    #[inline(always)]
    pub(super) fn with_free_slots(self, wanted: usize) -> (Self, Slots) {
        let free = self.free();
        if free.are_at_least(wanted) {
            return (self, free);
        }
        let word = self.reclaimed();
        (word, word.free())
    }

    /// Returns the word and a free slot. If none is free, first makes vacated slots free, if that
    /// is possible.
    #[inline(always)]
    pub(super) fn with_free_slot(self) -> Option<(Self, usize)> {
        if let Some(slot) = self.first_free() {
            return Some((self, slot));
        }
        let slot = self.first_vacated()?;
        self.has_aged(clock::ended()).then(|| (self.without_vacated(), slot))
    }

    /// Makes a free slot live.
    #[inline(always)]
    pub(super) fn with_tag(self, slot: usize, tag: Tag) -> Self {
        debug_assert_eq!(self.0 >> (slot * 16) & Self::LANE, 0, "the slot is free");
        Self(self.0 | tag.0 << (slot * 16))
    }

    /// Vacates a live slot. `begun` is the latest grace period that has begun. The caller has
    /// loaded it in a read section, after it had locked the bucket or loaded this word.
    #[inline(always)]
    pub(super) fn with_vacated(self, slot: usize, begun: u64) -> Self {
        // The new stamp also delays the reuse of slots that were vacated before. So those whose
        // grace periods have ended are made free first.
        let Self(word) = self.reclaimed();
        let lane = Self::LANE << (slot * 16) | Self::STAMP_MASK << Self::STAMP_SHIFT;
        Self(word & !lane | Self::VACATED << (slot * 16) | begun << Self::STAMP_SHIFT)
    }

    /// Vacates all live slots; see [`with_vacated`](Self::with_vacated).
    #[inline(always)]
    pub(super) fn with_all_vacated(self, begun: u64) -> Self {
        let Self(word) = self.reclaimed();
        let live = (word & Self::HIGHEST) >> 15;
        let cleared = (live * Self::LANE) | (Self::STAMP_MASK << Self::STAMP_SHIFT);
        Self(word & !cleared | (live * Self::VACATED) | (begun << Self::STAMP_SHIFT))
    }

    /// Returns the tag of a live slot.
    #[inline(always)]
    pub(super) fn tag(self, slot: usize) -> Tag {
        Tag(self.0 >> (slot * 16) & Self::LANE)
    }
}

/// A set of slots, and an iterator over it.
#[derive(Clone, Copy)]
pub(super) struct Slots(u64);

impl Slots {
    #[inline(always)]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether there are `n` or more, for `n` up to 2.
    #[inline(always)]
    pub(super) fn are_at_least(self, n: usize) -> bool {
        debug_assert!(n <= 2);
        self.0 != 0 && (n < 2 || self.0 & (self.0 - 1) != 0)
    }

    #[inline(always)]
    pub(super) fn len(self) -> usize {
        // The product has their number in the highest lane of the slots. In baseline x86-64,
        // counting ones takes more instructions.
        ((self.0 >> 15).wrapping_mul(Word::LANES) >> 32 & 3) as usize
    }
}

impl Iterator for Slots {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let slot = self.0.trailing_zeros() as usize / 16;
        self.0 &= self.0 - 1;
        Some(slot)
    }
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use super::*;

    fn tag(bits: u64) -> Tag {
        Tag::of(Hash::from_mixed(bits << 20))
    }

    /// Tests all combinations of some tags and states in the three slots, once with the other bits
    /// set and once with them clear.
    #[test]
    fn slots_are_found_by_their_state_and_tag() {
        let lanes = [0, Word::VACATED, tag(0).0, tag(1).0, tag(2).0, tag(0x7fff).0, tag(0x7ffe).0, tag(0x100).0];
        let pairs = || lanes.iter().flat_map(|&a| lanes.iter().map(move |&b| (a, b)));
        for ((a, b), &c) in pairs().flat_map(|pair| lanes.iter().map(move |c| (pair, c))) {
            for others in [0, !0 << 48] {
                let word = Word(a | b << 16 | c << 32 | others);
                let slots = |is: &dyn Fn(u64) -> bool| (0..3).filter(|&n| is([a, b, c][n])).collect::<Vec<_>>();
                let live = slots(&|lane| lane >= Tag::LIVE);
                assert_eq!(word.live_bits(), live.iter().map(|slot| 1 << slot).sum());
                assert_eq!(word.live().collect::<Vec<_>>(), live);
                assert_eq!(word.free().collect::<Vec<_>>(), slots(&|lane| lane == 0));
                assert_eq!(word.vacated().collect::<Vec<_>>(), slots(&|lane| lane == Word::VACATED));
                for &wanted in lanes.iter().filter(|&&lane| lane >= Tag::LIVE) {
                    let matching = slots(&|lane| lane == wanted);
                    assert_eq!(word.first_match(Tag(wanted)), matching.first().copied());
                    assert_eq!(word.matches(Tag(wanted)).collect::<Vec<_>>(), matching);
                }
            }
        }
    }

    /// A slot is reused when the second grace period after its stamp has ended, also where the
    /// stamp wraps.
    #[test]
    fn vacated_slots_age_by_grace_periods() {
        for begun in [1, 2, 1000, 0x3ffe, 0x3fff, 0x4000, 0x4001, 1 << 40] {
            let word = Word::EMPTY.with_tag(1, tag(7)).with_tag(2, tag(8)).with_vacated(1, begun);
            assert_eq!(word.vacated().collect::<Vec<_>>(), [1]);
            assert_eq!(word.tag(2).0, tag(8).0);
            for ended in [begun - 1, begun, begun + 1] {
                assert!(!word.has_aged(ended), "{begun} {ended}");
            }
            assert!(word.has_aged(begun + 2) && word.has_aged(begun + 1000), "{begun}");
        }
    }
}
