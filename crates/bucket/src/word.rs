//! The word of a segment: what its slots hold, and the state of its bucket.
//!
//! ```text
//!  63       62      61      56 55     48         7      0
//! +--------+-------+----------+--------+-- ... -+--------+
//! | locked | moved | filter   | slot 6 |        | slot 0 |
//! +--------+-------+----------+--------+-- ... -+--------+
//! ```
//!
//! * *slot n:* 0 if the slot is free. The highest bit and seven bits of the hash, the *tag*, if it
//!   is live. 1 to 64 if it is *vacated*: readers may have references to the entry that it held.
//!   The value minus 1 is the grace period in which the entry was removed, modulo 64. Only inline
//!   slots are vacated.
//! * *filter:* a bit for each class of tags of which a later segment may have an entry. If no bit
//!   is set, the bucket has no later segment. Only in first segments, like the other two.
//! * *moved:* the entries of the bucket are in the next array. No slot is live, and all bits of the
//!   filter are set: so a lookup finds nothing in the slots, and looks further.
//! * *locked:* an update or a resize holds the lock of the bucket.

use relativist_core::prefetch::prefetch;

/// The hash of a key, mixed by [`Hash::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash(u64);

impl Hash {
    /// The lowest hash.
    pub const MIN: Self = Self(0);
    /// The highest hash.
    pub const MAX: Self = Self(u64::MAX);

    /// Mixes the hash that a hasher has computed, which may be weak: the product of 128 bits with
    /// an odd number, folded. Its high bits choose the bucket, and its low bits are the tag.
    #[inline(always)]
    pub const fn new(hash: u64) -> Self {
        // 2^64 divided by the golden ratio.
        let product = hash as u128 * 0x9E37_79B9_7F4A_7C15;
        Self((product >> 64) as u64 ^ product as u64)
    }

    /// Returns the hash with these bits, which models choose.
    #[cfg(relativist_loom)]
    pub const fn exactly(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the lowest hash of a bucket, if the bits above `shift` choose it.
    pub(crate) const fn lowest(bucket: usize, shift: u32) -> Self {
        Self((bucket as u64) << shift)
    }

    /// Returns the highest hash of a bucket.
    pub(crate) const fn highest(bucket: usize, shift: u32) -> Self {
        Self((bucket as u64) << shift | !(u64::MAX << shift))
    }

    /// Returns the hash in the middle between two.
    pub const fn middle(low: Self, high: Self) -> Self {
        Self(low.0 + (high.0 - low.0) / 2)
    }

    /// Returns the next higher hash.
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(next) => Some(Self(next)),
            None => None,
        }
    }

    /// Returns the bits of the hash.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the tag that slots of entries with this hash have.
    #[inline(always)]
    pub const fn tag(self) -> Tag {
        Tag(self.0 as u8 | Tag::LIVE)
    }
}

/// The byte of a live slot: part of the hash of its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tag(u8);

impl Tag {
    const LIVE: u8 = 1 << 7;

    /// Returns the filter's bit for the class of this tag.
    #[inline(always)]
    const fn filter_bit(self) -> u64 {
        1 << (Word::FILTER_SHIFT + (self.0 & !Self::LIVE) as u32 * Word::CLASSES / 128)
    }
}

/// The value of a segment's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    /// The number of slots of a segment. Models use fewer, so that later segments come early.
    pub const SLOTS: usize = if cfg!(relativist_loom) { 3 } else { 7 };
    /// All slots are free.
    pub const EMPTY: Self = Self(0);
    /// The word of a bucket that has moved.
    pub(crate) const MOVED_AWAY: Self = Self(Self::MOVED | Self::FILTER);

    const TAGS: u64 = (1 << (8 * Self::SLOTS)) - 1;
    /// The lowest and the highest bit of each slot.
    const ONES: u64 = Self::TAGS / 0xff;
    const HIGHEST: u64 = Self::ONES << 7;
    const LOCKED: u64 = 1 << 63;
    const MOVED: u64 = 1 << 62;
    const FILTER_SHIFT: u32 = 56;
    const CLASSES: u32 = 6;
    const FILTER: u64 = ((1 << Self::CLASSES) - 1) << Self::FILTER_SHIFT;
    /// Vacated slots hold one of as many values.
    const STAMPS: u64 = 64;

    /// Makes a word of its bits.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the bits.
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) const fn is_moved(self) -> bool {
        self.0 & Self::MOVED != 0
    }

    #[inline(always)]
    pub(crate) const fn is_locked(self) -> bool {
        self.0 & Self::LOCKED != 0
    }

    #[inline(always)]
    pub(crate) const fn locked(self) -> Self {
        Self(self.0 | Self::LOCKED)
    }

    /// Returns the live slots with this tag. Above the first one there may be a slot with another
    /// tag, which differs in the lowest bit.
    #[inline(always)]
    pub fn matches(self, tag: Tag) -> Slots {
        let differences = self.0 ^ (Self::ONES * tag.0 as u64);
        // The usual trick to find a byte that is zero. A borrow may make a byte above it that is 1
        // look like zero, too. Tags differ in that case, and all have the highest bit: so the slot
        // is live.
        Slots(differences.wrapping_sub(Self::ONES) & !differences & Self::HIGHEST)
    }

    /// Returns whether a lookup of this tag has to look further than at the slots.
    #[inline(always)]
    pub const fn leads_on(self, tag: Tag) -> bool {
        self.0 & tag.filter_bit() != 0
    }

    /// Returns whether the bucket has later segments (or has moved).
    #[inline(always)]
    pub const fn has_later(self) -> bool {
        self.0 & Self::FILTER != 0
    }

    /// Returns the live slots.
    #[inline(always)]
    pub fn live(self) -> Slots {
        Slots(self.0 & Self::HIGHEST)
    }

    /// Returns the tags, without the state of the bucket.
    pub(crate) const fn tags(self) -> u64 {
        self.0 & Self::TAGS
    }

    /// Returns the free slots. Vacated ones do not count.
    #[inline(always)]
    pub fn free(self) -> Slots {
        // Exact: no carry leaves a byte.
        let lower = Self::TAGS & !Self::HIGHEST;
        Slots(!(((self.0 & lower) + lower) | self.0) & Self::HIGHEST)
    }

    /// Returns the tag of a live slot.
    #[inline(always)]
    pub const fn tag(self, slot: usize) -> Tag {
        Tag((self.0 >> (8 * slot)) as u8)
    }

    /// Makes a free slot live.
    #[inline(always)]
    pub const fn with_tag(self, slot: usize, tag: Tag) -> Self {
        debug_assert!(self.0 >> (8 * slot) & 0xff == 0, "the slot is free");
        Self(self.0 | (tag.0 as u64) << (8 * slot))
    }

    /// Makes a live slot free.
    #[inline(always)]
    pub const fn without_tag(self, slot: usize) -> Self {
        Self(self.0 & !(0xff << (8 * slot)))
    }

    /// Vacates a live slot. `begun` is the latest grace period that has begun. The caller has
    /// loaded it in its read section.
    #[inline(always)]
    pub(crate) const fn with_vacated(self, slot: usize, begun: u64) -> Self {
        Self(self.without_tag(slot).0 | (begun % Self::STAMPS + 1) << (8 * slot))
    }

    /// Makes those vacated slots free to which no reader can have references any more. `ended` is
    /// the latest grace period that has ended.
    pub(crate) fn reclaimed(self, ended: u64) -> Self {
        let stamp_of = |slot: usize| self.0 >> (8 * slot) & 0xff;
        let is_vacated = |slot: &usize| (1..=Self::STAMPS).contains(&stamp_of(*slot));
        // A grace period that has begun may be newer than the latest one that has ended, by two at
        // most: then the difference is 62 or 63. (A thread that finds a stamp sees the end of the
        // grace period before it: bucket-stamp.) When the numbers repeat, a slot looks younger than
        // it is, which only delays its use.
        let is_old = |slot: &usize| {
            let age = ended.wrapping_sub(stamp_of(*slot) - 1) % Self::STAMPS;
            (relativist_rcu::clock::GRACE_PERIODS..Self::STAMPS - 2).contains(&age)
        };
        (0..Self::SLOTS).filter(is_vacated).filter(is_old).fold(self, Self::without_tag)
    }

    /// Sets the filter's bit for the class of this tag.
    #[inline(always)]
    pub const fn with_filter_of(self, tag: Tag) -> Self {
        Self(self.0 | tag.filter_bit())
    }

    /// Clears the filter.
    pub const fn without_filter(self) -> Self {
        Self(self.0 & !Self::FILTER)
    }
}

/// A set of slots, and an iterator over it. The highest bit of the slot's byte stands for the slot.
#[derive(Clone, Copy, Default)]
pub struct Slots(u64);

impl Slots {
    /// Returns whether there is none.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Iterator for Slots {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let slot = self.0.trailing_zeros() / 8;
        self.0 &= self.0 - 1;
        Some(slot as usize)
    }
}

/// Prefetches up to two cache lines.
#[inline(always)]
pub(crate) fn prefetch_lines(address: *const u8, bytes: usize) {
    prefetch(address);
    if bytes > 64 {
        prefetch(address.wrapping_add(64));
    }
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use super::*;

    fn tag(n: u8) -> Tag {
        Hash(n.into()).tag()
    }

    #[test]
    fn each_slot_is_found_by_its_tag() {
        for slot in 0..Word::SLOTS {
            for n in [0, 1, 63, 64, 127] {
                let word = Word::EMPTY.with_tag(slot, tag(n)).locked();
                assert_eq!(word.matches(tag(n)).collect::<Vec<_>>(), [slot]);
                assert_eq!(word.live().collect::<Vec<_>>(), [slot]);
                assert!(word.matches(tag(n ^ 1)).is_empty() && word.matches(tag(n ^ 64)).is_empty());
                assert_eq!(word.free().next(), Some(usize::from(slot == 0)));
                assert!(word.without_tag(slot) == Word::EMPTY.locked());
            }
        }
    }

    #[test]
    fn the_state_of_a_bucket_is_no_tag() {
        let word = Word::MOVED_AWAY.locked();
        assert!(word.live().is_empty() && word.is_moved() && word.is_locked());
        for n in 0..128 {
            assert!(word.matches(tag(n)).is_empty());
            assert!(word.leads_on(tag(n)) && !Word::EMPTY.leads_on(tag(n)));
            let filtered = Word::EMPTY.with_filter_of(tag(n));
            assert!(filtered.leads_on(tag(n)) && !filtered.is_moved() && filtered.without_filter() == Word::EMPTY);
        }
    }

    /// A vacated slot is free again when two grace periods have ended, and not while the number of
    /// the one that has begun is ahead of those that have ended, whatever the numbers are modulo
    /// 64.
    #[test]
    fn vacated_slots_age() {
        for begun in 0..200 {
            let word = Word::EMPTY.with_tag(2, tag(5)).with_tag(4, tag(6)).with_vacated(2, begun);
            assert!(word.live().eq([4]) && word.free().next() == Some(0));
            for ended in begun.saturating_sub(2)..begun + 62 {
                let is_free = word.reclaimed(ended) != word;
                assert_eq!(is_free, ended >= begun + 2, "{begun} {ended}");
                if is_free {
                    assert!(word.reclaimed(ended) == Word::EMPTY.with_tag(4, tag(6)));
                }
            }
        }
    }

    #[test]
    fn equal_low_or_high_bits_are_mixed() {
        let high = |n: u64| Hash::new(n).get() >> 57;
        let spread = |hashes: &dyn Fn(u64) -> u64| {
            let mut seen: Vec<u64> = (0..1024).map(hashes).collect();
            seen.sort_unstable();
            seen.dedup();
            seen.len()
        };
        assert_eq!(spread(&high), 128);
        assert_eq!(spread(&|n| high(n << 40)), 128);
        assert_eq!(spread(&|n| Hash::new(n << 40).get() & 127), 128);
    }
}
