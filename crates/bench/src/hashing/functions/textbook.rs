//! The alternatives that section 5 of Lever's paper lists, and the 64-bit multiplier that section 6
//! names as future work.

use super::{HashFunction, computed};
use crate::harness::keys::scramble;
use crate::hashing::keys::Key;

/// The remainder after division by the largest prime that is not above the size of the table.
struct PrimeModulus;

/// At index n, the difference between 2^n and the largest prime that is not above 2^n.
const BELOW: [u64; 31] =
    [0, 0, 1, 1, 3, 1, 3, 1, 5, 3, 3, 9, 3, 1, 3, 19, 15, 1, 5, 1, 3, 9, 3, 15, 3, 39, 5, 39, 57, 3, 35];

impl HashFunction for PrimeModulus {
    fn name(&self) -> String {
        "modulus-prime".into()
    }

    #[inline]
    fn bucket(&self, key: &Key<'_>, bits: u32) -> usize {
        (key.sum() % self.buckets(bits) as u64) as usize
    }

    #[inline]
    fn buckets(&self, bits: u32) -> usize {
        (1 << bits) - BELOW[bits as usize] as usize
    }
}

static TABLE: [u64; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        // Twice, because after one step neighbours still have similar low bits.
        table[byte] = scramble(scramble(byte as u64 + 1));
        byte += 1;
    }
    table
};

/// Returns all functions of this module.
pub(super) fn all() -> Vec<Box<dyn HashFunction>> {
    // A rotation by an odd number of bits repeats only after 64 bytes, so equal bytes at different
    // places rarely cancel out.
    let step = |hash: u64, byte: &u8| hash.rotate_left(11) ^ TABLE[usize::from(*byte)];
    vec![
        // The low bits of the key itself.
        computed("untransformed", |key, _| key.sum()),
        Box::new(PrimeModulus),
        // Knuth's multiplicative hashing on 64 bits: the high bits of the key times 2^64 / golden
        // ratio.
        computed("fibonacci-64", |key, bits| key.sum().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - bits)),
        // One table of random words, one load per byte of the key, as appendix A discusses it.
        computed("table-driven", move |key, _| key.with_bytes(|bytes| bytes.iter().fold(0, step))),
        // Computed by the processor's instruction where there is one.
        computed("crc32c", |key, _| key.with_bytes(crc32c::crc32c).into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{mask, named};
    use super::*;

    #[test]
    fn the_moduli_are_the_largest_primes_that_fit() {
        let is_prime = |n: u64| n > 1 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
        for bits in super::super::BITS {
            let modulus = PrimeModulus.buckets(bits) as u64;
            assert!(is_prime(modulus), "2^{bits}");
            assert!(!(modulus + 1..=1 << bits).any(is_prime), "2^{bits}");
        }
    }

    #[test]
    fn crc32c_is_the_standards() {
        // The check value of CRC-32C (RFC 3720).
        let expected = 0xe306_9283_u64 & mask(30);
        assert_eq!(named("crc32c").bucket(&Key::Bytes(b"123456789"), 30), expected as usize);
    }

    #[test]
    fn fibonaccis_multiplier_parts_neighbours_best() {
        // Knuth, section 6.4: each multiple of the golden ratio falls into one of the largest gaps
        // between the previous ones.
        let fibonacci = named("fibonacci-64");
        let buckets: std::collections::HashSet<_> = (0..987).map(|n| fibonacci.bucket(&Key::Number(n), 10)).collect();
        assert!(buckets.len() > 800, "{}", buckets.len());
    }
}
