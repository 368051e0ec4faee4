//! The hash functions of Lever, "Linux Kernel Hash Table Behavior: Analysis and Improvements" (ALS
//! 2000), as printed.
//!
//! They are written for ia32, where `unsigned long` has 32 bits: products wrap at 2^32, and wider
//! arguments are truncated to 32 bits. A shift by 32 or more, which C leaves undefined, gives 0
//! here. The two arguments are the key's two words ([`words`](crate::hashing::keys::Key::words)).
//!
//! Tables 4 and 5 of the paper seem to be swapped. By the surrounding text, the rows of table 4
//! ("12 bit", "mult") belong to the inode cache, and those of table 5 ("shrink", "shrink + mult")
//! to the dentry cache.

use super::{HashFunction, computed};

/// The multiplier of section 5.1: a prime whose ratio to 2^32 is close to the golden ratio.
pub const GOLDEN_PRIME: u32 = 2_654_435_761;

/// The size of `struct inode`. The page cache's function uses only its lowest set bit. The paper
/// does not give the size; an odd multiple of 8 is assumed.
pub const INODE_SIZE: u32 = 392;

/// Bits of the word for which the functions were written.
const WORD: u32 = u32::BITS;

/// Returns the functions of the paper, in its order.
pub(super) fn all() -> Vec<Box<dyn HashFunction>> {
    [page_cache(), buffer_cache(), dentry_cache(), inode_cache()].into_iter().flatten().collect()
}

/// Returns the page cache's functions. The arguments are an inode's address and an offset in its
/// file (section 3.1).
fn page_cache() -> Vec<Box<dyn HashFunction>> {
    const PAGE_SHIFT: u32 = 12;
    fn i_plus_o(inode: u32, offset: u32) -> u32 {
        (inode / (INODE_SIZE & !(INODE_SIZE - 1))).wrapping_add(offset >> PAGE_SHIFT)
    }
    fn s(x: u32, bits: u32) -> u32 {
        x.wrapping_add(shifted(x, bits))
    }
    vec![
        // The function of Linux 2.2.5, `s(i+o)`.
        printed("page-shift-add", |inode, offset, bits| s(i_plus_o(inode, offset), bits)),
        // `s(i+o+offset)`: the "offset" kernel, after Stephen Tweedie.
        printed("page-offset", |inode, offset, bits| s(i_plus_o(inode, offset).wrapping_add(offset), bits)),
        // The "mult" kernel.
        printed("page-mult", |inode, offset, bits| multiplied(inode.wrapping_add(offset), WORD - bits)),
    ]
}

/// Returns the buffer cache's functions. The arguments are a device and a block number on it
/// (section 3.2).
fn buffer_cache() -> Vec<Box<dyn HashFunction>> {
    // The function of Linux 2.2.5, the exclusive or of device and block.
    let mut functions = vec![printed("buffer-one-to-one", |device, block, _| device ^ block)];
    // The block number times the multiplier, shifted to the right (table 3).
    for shift in [11, 16, 17, 18] {
        functions.push(printed(format!("buffer-mult-{shift}"), move |_, block, _| multiplied(block, shift)));
    }
    // Peter Steiner's function: a multiplication by the Mersenne prime 127, done with a shift and a
    // subtraction.
    functions.push(printed("buffer-shift-add", |_, block, _| {
        (block << 7).wrapping_sub(block).wrapping_add(block >> 10).wrapping_add(block >> 18)
    }));
    functions
}

/// Returns the dentry cache's functions. The arguments are a parent's address and the hash of a
/// name (section 3.3).
fn dentry_cache() -> Vec<Box<dyn HashFunction>> {
    let mut functions = vec![
        // The function of Linux 2.2.5.
        printed("dentry-xor", |parent, name, bits| {
            let hash = name.wrapping_add(parent);
            hash ^ shifted(hash, bits) ^ shifted(hash, bits * 2)
        }),
        // The function of Linux 2.2.5 with additions instead of exclusive or: the "14-bit" kernel,
        // and those of section 4.
        printed("dentry-add", |parent, name, bits| {
            let hash = name.wrapping_add(parent);
            hash.wrapping_add(shifted(hash, bits)).wrapping_add(shifted(hash, bits * 2))
        }),
    ];
    // The sum of both arguments, times the multiplier, shifted to the right.
    for shift in [11, 17] {
        let hash = move |parent: u32, name, _| multiplied(parent.wrapping_add(name), shift);
        functions.push(printed(format!("dentry-mult-{shift}"), hash));
    }
    functions
}

/// Returns the inode cache's functions. The arguments are a superblock's address and an inode
/// number (section 3.4).
fn inode_cache() -> Vec<Box<dyn HashFunction>> {
    vec![
        // The function of Linux 2.2.5.
        printed("inode-shift-add", |superblock, number, bits| {
            let both = number | superblock;
            both.wrapping_add(shifted(both, bits)).wrapping_add(shifted(both, bits * 2))
        }),
        // The "mult" kernel. The paper does not print it, but refers to the other functions. Here
        // the words are combined as in the shift-add function, and the shift is the one that
        // section 5.1 calls best.
        printed("inode-mult", |superblock, number, bits| multiplied(number | superblock, WORD - bits)),
    ]
}

/// Makes a function of two words of 32 bits, and of the binary logarithm of the number of buckets.
fn printed(
    name: impl Into<String>,
    hash: impl Fn(u32, u32, u32) -> u32 + Send + Sync + 'static,
) -> Box<dyn HashFunction> {
    computed(name, move |key, bits| {
        let (first, second) = key.words();
        hash(first as u32, second as u32, bits).into()
    })
}

/// Hashes a name for the dentry cache, by the "simplified CRC" of Linux 2.2 that the paper
/// mentions.
#[must_use]
pub fn name_hash(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |hash, byte| hash.rotate_left(4) ^ u32::from(*byte))
}

fn shifted(word: u32, by: u32) -> u32 {
    word.checked_shr(by).unwrap_or(0)
}

fn multiplied(word: u32, shift: u32) -> u32 {
    shifted(word.wrapping_mul(GOLDEN_PRIME), shift)
}

#[cfg(test)]
mod tests {
    use super::super::named;
    use super::*;
    use crate::hashing::keys::Key;

    /// The expected values come from a C compiler, for the definitions in the paper with a 32-bit
    /// `unsigned long`.
    #[test]
    fn functions_are_as_printed() {
        // Device 0x0301 is hda1.
        let [page, buffer] = [Key::Pair(0xc123_4560, 0x0004_2010), Key::Pair(0x0301, 1_234_567)];
        let [dentry, inode] = [0x1234_5678, 0x1f00].map(|second| Key::Pair(0xc0de_0010, second));
        for (name, key, bits, bucket) in [
            ("page-shift-add", page, 11, 1403),
            ("page-offset", page, 14, 10656),
            ("page-mult", page, 14, 1423),
            ("buffer-one-to-one", buffer, 14, 5510),
            ("buffer-mult-11", buffer, 14, 11684),
            ("buffer-mult-16", buffer, 14, 7533),
            ("buffer-mult-17", buffer, 14, 11958),
            ("buffer-mult-18", buffer, 14, 5979),
            ("buffer-shift-add", buffer, 14, 12722),
            ("dentry-xor", dentry, 10, 812),
            ("dentry-add", dentry, 10, 78),
            ("dentry-mult-11", dentry, 10, 387),
            ("dentry-mult-17", dentry, 10, 230),
            ("inode-shift-add", inode, 8, 13),
            ("inode-mult", inode, 12, 3627),
        ] {
            assert_eq!(named(name).bucket(&key, bits), bucket, "{name}");
        }
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
