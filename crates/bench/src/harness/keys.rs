//! Keys: a fixed permutation of the 64-bit integers applied to indices, and streams that draw
//! indices at random.
//!
//! Key number `i` is `scramble(i)`, so that any set of indices gives distinct, random-looking keys
//! without an array of keys that would compete with the measured table for the caches.
//!
//! Drawing a key costs ten instructions that do not depend on the lookup before. Their number
//! matters more than their latency, because a processor overlaps as many lookups as fit into its
//! reorder buffer, and the harness's instructions use part of that buffer. Hence the simple
//! generator, the short permutation, and streams that are copied into local variables for a batch.
//! `relativist-bench compare` shows the remaining cost in a separate row.

use std::ops::Range;

/// First index of keys that no table ever holds.
pub const ABSENT: u64 = 1 << 48;

/// Returns the key with index `index`. This is a bijection, because each of its three steps is.
#[inline(always)]
pub const fn scramble(index: u64) -> u64 {
    let mixed = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// Returns the seed for one thread of one round. It is the same in every run of the program.
pub fn seed(round: usize, thread: usize) -> u64 {
    scramble(((round as u64) << 16) + thread as u64 + 1)
}

/// Indices drawn uniformly from a range by the high bits of a linear congruential generator
/// (Knuth's for MMIX).
#[derive(Clone, Copy, Debug)]
pub struct Indices {
    state: u64,
    first: u64,
    width: u64,
}

impl Indices {
    /// Draws from `range` (not empty), reproducibly for `seed`.
    pub fn new(range: Range<u64>, seed: u64) -> Self {
        assert!(range.start < range.end, "no keys to draw from");
        Self { state: seed, first: range.start, width: range.end - range.start }
    }

    #[inline(always)]
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The high half of a product with the width: uniform to within width / 2^64, without a
        // division or a retry.
        self.first + ((u128::from(self.state) * u128::from(self.width)) >> 64) as u64
    }

    /// Draws an index, and 16 random bits that are independent of the index for ranges up to 2^32.
    #[inline(always)]
    pub fn draw_with_coin(&mut self) -> (u64, u16) {
        let index = self.draw();
        (index, (self.state >> 16) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_distinct() {
        let present = 0..1u64 << 14;
        let absent = ABSENT..ABSENT + (1 << 14);
        let keys: HashSet<u64> = present.chain(absent).map(scramble).collect();
        assert_eq!(keys.len(), 2 << 14);
    }

    #[test]
    fn indices_cover_their_range_and_stay_inside() {
        let mut indices = Indices::new(100..110, 7);
        let drawn: HashSet<u64> = (0..1000).map(|_| indices.draw()).collect();
        assert_eq!(drawn, (100..110).collect());
    }

    #[test]
    fn a_seed_reproduces_its_stream_and_threads_differ() {
        let stream = |seed| {
            let mut indices = Indices::new(0..1 << 20, seed);
            (0..64).map(|_| indices.draw()).collect::<Vec<_>>()
        };
        assert_eq!(stream(seed(3, 1)), stream(seed(3, 1)));
        assert_ne!(stream(seed(3, 0)), stream(seed(3, 1)));
        assert_ne!(stream(seed(3, 0)), stream(seed(4, 0)));
    }
}
