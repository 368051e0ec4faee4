//! Hashes as the table uses them.

/// A user's 64-bit hash, mixed by one multiplication.
///
/// The table takes buckets from the high bits of a hash and orders chains by it, so the high bits
/// have to depend on the low ones. Weak hashes (the identity on integers, FxHash) don't provide
/// that; a multiplication by an odd constant near 2^64 divided by the golden ratio does (Knuth's
/// multiplicative hashing; Lever, "Linux Kernel Hash Table Behavior", ALS 2000, section 5). It
/// spreads consecutive integers better than chance would; some strides come out worse, with some
/// seven times the walk of random hashes (identity-hashed multiples of 2^16, say): for such keys
/// take a real hash function. Multiplication by an odd number loses nothing: equal user hashes and
/// equal [`Hash`](struct@Hash)es are the same thing.
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

    /// The bucket.
    #[inline(always)]
    pub(super) const fn bucket(self, scale: Scale) -> usize {
        (self.0.wrapping_shr(scale.shift) >> 4) as usize
    }

    /// The four bits that follow those of the bucket: which bit of the chain's summary stands for
    /// this hash.
    #[inline(always)]
    pub(super) const fn summary_slot(self, scale: Scale) -> u32 {
        self.0.wrapping_shr(scale.shift) as u32 & 15
    }

    /// Whether both are in one bucket.
    #[inline]
    pub(super) const fn shares_bucket(self, other: Self, scale: Scale) -> bool {
        self.bucket(scale) == other.bucket(scale)
    }

    /// Whether both are in one bucket, and stand for the same bit of its summary.
    pub(super) const fn shares_summary_bit(self, other: Self, scale: Scale) -> bool {
        self.0 >> scale.shift == other.0 >> scale.shift
    }

    pub(super) const fn from_mixed(mixed: u64) -> Self {
        Self(mixed)
    }

    /// The first hash of a bucket.
    pub(super) const fn start_of_bucket(bucket: usize, scale: Scale) -> Self {
        Self((bucket as u64) << (scale.shift + 4))
    }

    /// The first hash after this one's bucket; `None` after the last bucket.
    pub(super) const fn end_of_bucket(self, scale: Scale) -> Option<u64> {
        let shift = scale.shift + 4;
        ((self.0 >> shift) + 1).checked_mul(1 << shift)
    }
}

/// How many buckets there are, in the form that lookups want it: by how much a hash is shifted to
/// leave the bits of the bucket and the four bits after them.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    shift: u32,
}

impl Scale {
    const MAX_BITS: u32 = u64::BITS - 4;

    /// 2^`bits` buckets.
    pub(super) const fn of_bits(bits: u32) -> Self {
        Self { shift: Self::MAX_BITS - bits }
    }

    pub(super) const fn bits(self) -> u32 {
        Self::MAX_BITS - self.shift
    }
}
