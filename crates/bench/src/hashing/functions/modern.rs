//! Hash functions of today's crates. Seeds are fixed, so that runs can be compared.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use clap::ValueEnum;
use serde::Serialize;

use super::{HashFunction, computed, mask};
use crate::harness::options::spell;
use crate::hashing::keys::Key;

/// How a bucket is selected by a 64-bit hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fold {
    /// The low bits, as most tables do
    Low,
    /// The high bits
    High,
    /// The high bits of the hash times 2^64 / golden ratio, as relativist does
    Mixed,
}

impl Fold {
    #[inline(always)]
    fn bucket(self, hash: u64, bits: u32) -> u64 {
        match self {
            Self::Low => hash & mask(bits),
            Self::High => hash >> (u64::BITS - bits),
            Self::Mixed => relativist_table::Hash::new(hash).get() >> (u64::BITS - bits),
        }
    }
}

/// Returns all functions of this module; `fold` selects the bucket.
pub(super) fn all(fold: Fold) -> Vec<Box<dyn HashFunction>> {
    type Boxed = Box<dyn HashFunction>;
    fn boxed(name: &str, fold: Fold, hash: impl Fn(&Key<'_>) -> u64 + Send + Sync + 'static) -> Boxed {
        let suffix = if fold == Fold::Low { String::new() } else { format!("+{}", spell(&fold)) };
        computed(format!("{name}{suffix}"), move |key, bits| fold.bucket(hash(key), bits))
    }
    fn hashed<S: BuildHasher + Send + Sync + 'static>(name: &str, fold: Fold, state: S) -> Boxed {
        boxed(name, fold, move |key| state.hash_one(key))
    }
    vec![
        hashed("fnv-1a", fold, fnv::FnvBuildHasher::default()),
        hashed("fxhash", fold, rustc_hash::FxBuildHasher),
        hashed("rapidhash", fold, rapidhash::fast::SeedableState::fixed()),
        hashed("foldhash", fold, foldhash::fast::FixedState::default()),
        hashed("foldhash-q", fold, foldhash::quality::FixedState::default()),
        hashed("ahash", fold, ahash::RandomState::with_seeds(1, 2, 3, 4)),
        // SipHash-1-3, std's default.
        hashed("siphash", fold, BuildHasherDefault::<DefaultHasher>::default()),
        boxed("xxh3", fold, |key| key.with_bytes(xxhash_rust::xxh3::xxh3_64)),
        // Half of its 128 bits.
        boxed("murmur3", fold, |key| key.with_bytes(|bytes| fastmurmur3::murmur3_x64_128(bytes, 0) as u64)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_take_the_bits_they_say() {
        let hash = 0xfedc_0000_0000_1234;
        assert_eq!(Fold::Low.bucket(hash, 12), 0x234);
        assert_eq!(Fold::High.bucket(hash, 12), 0xfed);
        assert_eq!(Fold::Mixed.bucket(1, 8), 0x9e);
    }

    #[test]
    fn known_hashes_are_given() {
        let functions = all(Fold::Low);
        let bucket = |name: &str, key: &[u8]| {
            let function = functions.iter().find(|function| function.name() == name).unwrap();
            function.bucket(&Key::Bytes(key), 30) as u64
        };
        // The published values of the empty input.
        assert_eq!(bucket("xxh3", b""), 0x2d06_8005_38d3_94c2 & mask(30));
        assert_eq!(bucket("murmur3", b""), 0);
        // FNV-1a of the single byte 0xff, which ends byte strings here as in `str`'s implementation
        // of `Hash`.
        assert_eq!(bucket("fnv-1a", b""), (0xcbf2_9ce4_8422_2325 ^ 0xff_u64).wrapping_mul(0x100_0000_01b3) & mask(30));
    }
}
