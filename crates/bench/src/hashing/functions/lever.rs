//! The hash functions of Lever, "Linux Kernel Hash Table Behavior: Analysis and Improvements" (ALS
//! 2000), as printed.
//!
//! They are written for ia32, where `unsigned long` has 32 bits: products wrap at 2^32, and wider
//! arguments are truncated to 32 bits. A shift by 32 or more, which C leaves undefined, gives 0
//! here. The two arguments are the key's two words ([`Key::words`]).
//!
//! Tables 4 and 5 of the paper seem to be swapped. By the surrounding text, the rows of table 4
//! ("12 bit", "mult") belong to the inode cache, and those of table 5 ("shrink", "shrink + mult")
//! to the dentry cache.

use super::{HashFunction, mask};
use crate::hashing::keys::Key;

/// The multiplier of section 5.1: a prime whose ratio to 2^32 is close to the golden ratio.
pub const GOLDEN_PRIME: u32 = 2_654_435_761;

/// The size of `struct inode`. The page cache's function uses only its lowest set bit. The paper
/// does not give the size; an odd multiple of 8 is assumed.
pub const INODE_SIZE: u32 = 392;

/// Bits of the word for which the functions were written.
const WORD: u32 = u32::BITS;

/// The page cache's functions. The arguments are an inode's address and an offset in its file
/// (section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCache {
    /// The function of Linux 2.2.5, `s(i+o)`.
    ShiftAdd,
    /// `s(i+o+offset)`: the "offset" kernel, after Stephen Tweedie.
    Offset,
    /// The "mult" kernel.
    Multiplicative,
}

/// The buffer cache's functions. The arguments are a device and a block number on it (section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferCache {
    /// The function of Linux 2.2.5, the exclusive or of device and block.
    OneToOne,
    /// The block number times the multiplier, shifted to the right by 11, 16, 17 or 18 (table 3).
    Multiplicative {
        /// The number of bits.
        shift: u32,
    },
    /// Peter Steiner's function: a multiplication by the Mersenne prime 127, done with a shift and
    /// a subtraction.
    ShiftAdd,
}

/// The dentry cache's functions. The arguments are a parent's address and the hash of a name
/// (section 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DentryCache {
    /// The function of Linux 2.2.5.
    Xor,
    /// The function of Linux 2.2.5 with additions instead of exclusive or: the "14-bit" kernel, and
    /// those of section 4.
    Additive,
    /// The sum of both arguments, times the multiplier, shifted to the right by 11 or 17.
    Multiplicative {
        /// The number of bits.
        shift: u32,
    },
}

/// The inode cache's functions. The arguments are a superblock's address and an inode number
/// (section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeCache {
    /// The function of Linux 2.2.5.
    ShiftAdd,
    /// The "mult" kernel. The paper does not print it, but refers to the other functions. Here the
    /// words are combined as in the shift-add function, and the shift is the one that section 5.1
    /// calls best.
    Multiplicative,
}

impl HashFunction for PageCache {
    fn name(&self) -> String {
        match self {
            Self::ShiftAdd => "page-shift-add".into(),
            Self::Offset => "page-offset".into(),
            Self::Multiplicative => "page-mult".into(),
        }
    }

    #[inline]
    fn bucket(&self, key: &Key<'_>, bits: u32) -> usize {
        const PAGE_SHIFT: u32 = 12;
        let (inode, offset) = arguments(key);
        let i = inode / (INODE_SIZE & !(INODE_SIZE - 1));
        let o = offset >> PAGE_SHIFT;
        let s = |x: u32| x.wrapping_add(shifted(x, bits));
        let hash = match self {
            Self::ShiftAdd => s(i.wrapping_add(o)),
            Self::Offset => s(i.wrapping_add(o).wrapping_add(offset)),
            Self::Multiplicative => multiplied(inode.wrapping_add(offset), WORD - bits),
        };
        masked(hash, bits)
    }
}

impl HashFunction for BufferCache {
    fn name(&self) -> String {
        match self {
            Self::OneToOne => "buffer-one-to-one".into(),
            Self::Multiplicative { shift } => format!("buffer-mult-{shift}"),
            Self::ShiftAdd => "buffer-shift-add".into(),
        }
    }

    #[inline]
    fn bucket(&self, key: &Key<'_>, bits: u32) -> usize {
        let (device, block) = arguments(key);
        let hash = match self {
            Self::OneToOne => device ^ block,
            Self::Multiplicative { shift } => multiplied(block, *shift),
            Self::ShiftAdd => (block << 7).wrapping_sub(block).wrapping_add(block >> 10).wrapping_add(block >> 18),
        };
        masked(hash, bits)
    }
}

impl HashFunction for DentryCache {
    fn name(&self) -> String {
        match self {
            Self::Xor => "dentry-xor".into(),
            Self::Additive => "dentry-add".into(),
            Self::Multiplicative { shift } => format!("dentry-mult-{shift}"),
        }
    }

    #[inline]
    fn bucket(&self, key: &Key<'_>, bits: u32) -> usize {
        let (parent, name) = arguments(key);
        let hash = name.wrapping_add(parent);
        let (once, twice) = (shifted(hash, bits), shifted(hash, bits * 2));
        let hash = match self {
            Self::Xor => hash ^ once ^ twice,
            Self::Additive => hash.wrapping_add(once).wrapping_add(twice),
            Self::Multiplicative { shift } => multiplied(hash, *shift),
        };
        masked(hash, bits)
    }
}

impl HashFunction for InodeCache {
    fn name(&self) -> String {
        match self {
            Self::ShiftAdd => "inode-shift-add".into(),
            Self::Multiplicative => "inode-mult".into(),
        }
    }

    #[inline]
    fn bucket(&self, key: &Key<'_>, bits: u32) -> usize {
        let (superblock, number) = arguments(key);
        let both = number | superblock;
        let hash = match self {
            Self::ShiftAdd => both.wrapping_add(shifted(both, bits)).wrapping_add(shifted(both, bits * 2)),
            Self::Multiplicative => multiplied(both, WORD - bits),
        };
        masked(hash, bits)
    }
}

/// Returns the functions of the paper, in its order.
pub(super) fn all() -> Vec<Box<dyn HashFunction>> {
    let mut functions: Vec<Box<dyn HashFunction>> = Vec::new();
    for function in [PageCache::ShiftAdd, PageCache::Offset, PageCache::Multiplicative] {
        functions.push(Box::new(function));
    }
    functions.push(Box::new(BufferCache::OneToOne));
    for shift in [11, 16, 17, 18] {
        functions.push(Box::new(BufferCache::Multiplicative { shift }));
    }
    functions.push(Box::new(BufferCache::ShiftAdd));
    for function in [DentryCache::Xor, DentryCache::Additive] {
        functions.push(Box::new(function));
    }
    for shift in [11, 17] {
        functions.push(Box::new(DentryCache::Multiplicative { shift }));
    }
    for function in [InodeCache::ShiftAdd, InodeCache::Multiplicative] {
        functions.push(Box::new(function));
    }
    functions
}

/// Hashes a name for the dentry cache, by the "simplified CRC" of Linux 2.2 that the paper
/// mentions.
#[must_use]
pub fn name_hash(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |hash, byte| hash.rotate_left(4) ^ u32::from(*byte))
}

fn arguments(key: &Key<'_>) -> (u32, u32) {
    let (first, second) = key.words();
    (first as u32, second as u32)
}

fn shifted(word: u32, by: u32) -> u32 {
    word.checked_shr(by).unwrap_or(0)
}

fn multiplied(word: u32, shift: u32) -> u32 {
    shifted(word.wrapping_mul(GOLDEN_PRIME), shift)
}

fn masked(hash: u32, bits: u32) -> usize {
    (u64::from(hash) & mask(bits)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values come from a C compiler, for the definitions in the paper with a 32-bit
    /// `unsigned long`.
    #[test]
    fn functions_are_as_printed() {
        let key = Key::Pair(0xc123_4560, 0x0004_2010);
        assert_eq!(PageCache::ShiftAdd.bucket(&key, 11), 1403);
        assert_eq!(PageCache::Offset.bucket(&key, 14), 10656);
        assert_eq!(PageCache::Multiplicative.bucket(&key, 14), 1423);

        // Device 0x0301 is hda1.
        let key = Key::Pair(0x0301, 1_234_567);
        assert_eq!(BufferCache::OneToOne.bucket(&key, 14), 5510);
        let multiplicative = |shift| BufferCache::Multiplicative { shift }.bucket(&key, 14);
        assert_eq!([11, 16, 17, 18].map(multiplicative), [11684, 7533, 11958, 5979]);
        assert_eq!(BufferCache::ShiftAdd.bucket(&key, 14), 12722);

        let key = Key::Pair(0xc0de_0010, 0x1234_5678);
        assert_eq!(DentryCache::Xor.bucket(&key, 10), 812);
        assert_eq!(DentryCache::Additive.bucket(&key, 10), 78);
        assert_eq!([11, 17].map(|shift| DentryCache::Multiplicative { shift }.bucket(&key, 10)), [387, 230]);

        let key = Key::Pair(0xc0de_0010, 0x1f00);
        assert_eq!(InodeCache::ShiftAdd.bucket(&key, 8), 13);
        assert_eq!(InodeCache::Multiplicative.bucket(&key, 12), 3627);
    }

    /// Section 5.1.
    #[test]
    fn the_multiplier_is_a_prime_near_the_golden_ratio() {
        assert_eq!(GOLDEN_PRIME, 2_654_435_761);
        assert!(
            (3..)
                .step_by(2)
                .take_while(|n| n * n <= GOLDEN_PRIME as u64)
                .all(|n| !(GOLDEN_PRIME as u64).is_multiple_of(n))
        );
        let golden = (5f64.sqrt() - 1.0) / 2.0;
        assert!((f64::from(GOLDEN_PRIME) / 4_294_967_296.0 - golden).abs() < 2.1e-9);
    }

    #[test]
    fn names_are_hashed_by_turning_and_exclusive_or() {
        assert_eq!(name_hash(b""), 0);
        assert_eq!(name_hash(b"a"), 0x61);
        assert_eq!(name_hash(b"ab"), 0x610 ^ 0x62);
        assert_eq!(name_hash(b"aaaaaaaaa"), (0..9).fold(0u32, |h, _| h.rotate_left(4) ^ 0x61));
    }
}
