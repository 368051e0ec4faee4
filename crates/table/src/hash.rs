//! Hashes as the table uses them.

/// A user's 64-bit hash, mixed by a multiplication.
///
/// The table takes buckets from the high bits of a hash and orders chains by it, so the high bits
/// have to depend on the low ones. Weak hashes (the identity on integers, FxHash) do not have this
/// property. After a multiplication by an odd constant near 2^64 divided by the golden ratio they
/// do (Knuth's multiplicative hashing; Lever, "Linux Kernel Hash Table Behavior", ALS 2000, section
/// 5). It spreads consecutive integers better than random hashes would. Some strides come out
/// worse: lookups of identity-hashed multiples of 2^16, for example, walk about seven times as far
/// as with random hashes. For such keys use a real hash function. Multiplication by an odd number
/// is invertible: two [`Hash`](struct@Hash)es are equal if and only if the user hashes are.
///
/// ```
/// use relativist_table::Hash;
/// assert_eq!(Hash::new(1), Hash::new(1));
/// assert_ne!(Hash::new(1).get() >> 56, Hash::new(2).get() >> 56); // differ in the highest byte
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

    /// Returns the mixed hash: the position of an entry in the order of the table.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the bucket of this hash.
    #[inline(always)]
    pub(super) const fn bucket(self, scale: Scale) -> usize {
        (self.0.wrapping_shr(scale.shift) >> 4) as usize
    }

    /// Returns the four bits that follow those of the bucket: the index of the summary bit that
    /// stands for this hash.
    #[inline(always)]
    pub(super) const fn summary_slot(self, scale: Scale) -> u32 {
        self.0.wrapping_shr(scale.shift) as u32 & 15
    }

    /// Returns whether both hashes are in the same bucket.
    #[inline]
    pub(super) const fn shares_bucket(self, other: Self, scale: Scale) -> bool {
        self.bucket(scale) == other.bucket(scale)
    }

    /// Returns whether both hashes are in the same bucket and have the same summary bit.
    pub(super) const fn shares_summary_bit(self, other: Self, scale: Scale) -> bool {
        self.0 >> scale.shift == other.0 >> scale.shift
    }

    /// Returns the hash with this mixed value, as [`Hash::get`] returns it.
    pub const fn from_mixed(mixed: u64) -> Self {
        Self(mixed)
    }

    /// Returns the first hash of a bucket.
    pub(super) const fn start_of_bucket(bucket: usize, scale: Scale) -> Self {
        Self((bucket as u64) << (scale.shift + 4))
    }

    /// Returns the first hash after this one's bucket; `None` after the last bucket.
    pub(super) const fn end_of_bucket(self, scale: Scale) -> Option<u64> {
        let shift = scale.shift + 4;
        ((self.0 >> shift) + 1).checked_mul(1 << shift)
    }
}

/// The number of buckets, in the form that is fast for lookups: the shift of a hash that leaves the
/// bits of the bucket and the four bits after them.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    shift: u32,
}

impl Scale {
    const MAX_BITS: u32 = u64::BITS - 4;

    /// Returns the scale of a table of 2^`bits` buckets.
    pub(super) const fn of_bits(bits: u32) -> Self {
        Self { shift: Self::MAX_BITS - bits }
    }

    pub(super) const fn bits(self) -> u32 {
        Self::MAX_BITS - self.shift
    }
}
