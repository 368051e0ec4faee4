//! Hashes as the table uses them.

/// A user's 64-bit hash, mixed by one multiplication.
///
/// The table takes buckets from the high bits of a hash and orders chains by it, so the high bits have to depend on
/// everything. Weak hashes (the identity on integers, FxHash) don't provide that; a multiplication by an odd constant near
/// 2^64 divided by the golden ratio does (Knuth's multiplicative hashing; Lever, "Linux Kernel Hash Table Behavior", ALS 2000,
/// section 5, who found it as good as any). Multiplication by an odd number loses nothing: equal user hashes and equal
/// [`Hash`]es are the same thing.
///
/// ```
/// use relativist::raw::Hash;
/// assert_eq!(Hash::new(1), Hash::new(1));
/// assert_ne!(Hash::new(1).get() >> 56, Hash::new(2).get() >> 56); // neighbours part in the highest byte already
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(u64);

impl Hash {
    /// The odd number nearest to 2^64 divided by the golden ratio.
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

    /// Mixes a user's hash.
    #[inline(always)]
    pub const fn new(user_hash: u64) -> Self {
        Self(user_hash.wrapping_mul(Self::GOLDEN))
    }

    /// The mixed hash: the place of an entry in the order of the table.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The bucket in a table of 2^`bits`.
    #[inline(always)]
    pub(super) const fn bucket(self, bits: u32) -> usize {
        (self.0 >> (u64::BITS - bits)) as usize
    }

    /// The four bits that follow those of the bucket: which bit of the chain's summary stands for this hash.
    #[inline(always)]
    pub(super) const fn nibble(self, bits: u32) -> u32 {
        ((self.0 << bits) >> (u64::BITS - 4)) as u32
    }

    /// Whether both are in one bucket of a table of 2^`bits`.
    #[inline]
    pub(super) const fn shares_bucket(self, other: Self, bits: u32) -> bool {
        self.bucket(bits) == other.bucket(bits)
    }
}

impl Hash {
    pub(super) const fn from_mixed(mixed: u64) -> Self {
        Self(mixed)
    }

    /// The first hash after this one's bucket in a table of 2^`bits`; `None` after the last bucket.
    pub(super) const fn end_of_bucket(self, bits: u32) -> Option<u64> {
        let shift = u64::BITS - bits;
        ((self.0 >> shift) + 1).checked_mul(1 << shift)
    }
}
