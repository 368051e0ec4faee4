//! Numbers that look random and are the same in every run.

/// Computes a bijection that leaves no pattern (the finalizer of SplitMix64).
pub fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ n >> 31
}

/// SplitMix64.
pub struct Random(u64);

impl Random {
    /// Creates a generator; the same seed leads to the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0) % bound
    }
}
