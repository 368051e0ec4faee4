//! The hash of keys.
//!
//! Clients choose the keys, so the hash function is keyed: a client that does not know the seed
//! cannot prepare keys that share a bucket. The function is foldhash in its `quality` variant, from
//! the family that is the default of `hashbrown`. It is several times faster on usual keys than
//! SipHash-1-3, and every command hashes. Its security claim is weaker than that of SipHash. That
//! is acceptable, because hashes are never shown to clients, each process draws its seed from the
//! system's random numbers, and a successful flood would only cost time in one bucket, not memory
//! or correctness.

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// Hashes keys under the secret of this process.
#[derive(Clone, Debug)]
pub(crate) struct KeyHasher(SeedableRandomState);

impl KeyHasher {
    /// A hasher with the secret of the process and a random number of its own.
    pub(crate) fn new() -> KeyHasher {
        static SECRET: OnceLock<SharedSeed> = OnceLock::new();
        let secret = SECRET.get_or_init(|| SharedSeed::from_u64(random()));
        KeyHasher(SeedableRandomState::with_seed(random(), secret))
    }

    /// The hash of `key`.
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        hasher.finish()
    }
}

/// A number from the system's source of randomness, obtained through the standard library's SipHash
/// keys.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use relativist_table as raw;

    /// The bucket of a key in a table of 2^`bits`.
    fn bucket(hasher: &KeyHasher, bits: u32, key: &[u8]) -> usize {
        (raw::Hash::new(hasher.hash(key)).get() >> (u64::BITS - bits)) as usize
    }

    /// The number of keys in the fullest of 2^`bits` buckets.
    fn longest_chain(hasher: &KeyHasher, bits: u32, keys: &[Vec<u8>]) -> usize {
        let mut chains = vec![0; 1 << bits];
        keys.iter().for_each(|key| chains[bucket(hasher, bits, key)] += 1);
        chains.into_iter().max().expect("a bucket")
    }

    #[test]
    fn equal_keys_hash_alike_and_seeds_differ() {
        let (one, other) = (KeyHasher::new(), KeyHasher::new());
        assert_eq!(one.hash(b"key"), one.clone().hash(b"key"));
        assert_ne!(one.hash(b"key"), one.hash(b"kex"));
        assert_ne!(one.hash(b"key"), other.hash(b"key"));
    }

    /// An attacker that knows the code and a table's seed can fill a bucket of that table, but of
    /// no other, not even in the same process.
    #[test]
    fn keys_prepared_against_one_table_spread_in_another() {
        let (known, attacked) = (KeyHasher::new(), KeyHasher::new());
        let numbers = (0_u64..).map(|n| n.to_string().into_bytes());
        let keys: Vec<_> = numbers.filter(|key| bucket(&known, 6, key) == 0).take(64).collect();
        assert_eq!(longest_chain(&known, 6, &keys), 64);
        assert!(longest_chain(&attacked, 6, &keys) < 16);
    }

    /// A weak function maps some keys to few values, whatever its seed: keys that differ in one
    /// place, that repeat or swap their halves, or that consist of zeros. (At half a key per
    /// bucket, 14 keys share one with a probability below 10^-11.)
    #[test]
    fn regular_keys_spread() {
        let hasher = KeyHasher::new();
        let family = |key: fn(u16) -> Vec<u8>| (0..1 << 12).map(key).collect::<Vec<_>>();
        for (name, keys) in [
            ("numbers", family(|n| n.to_string().into_bytes())),
            ("long, differing at the end", family(|n| format!("{}{n:04}", "x".repeat(240)).into_bytes())),
            ("long, differing at the beginning", family(|n| format!("{n:04}{}", "x".repeat(240)).into_bytes())),
            ("halves repeated", family(|n| format!("{n:08}{n:08}").into_bytes())),
            ("halves swapped", family(|n| format!("{:08}{:08}", n / 2 + n % 2, n / 2 + 1 - n % 2).into_bytes())),
            ("high bits", family(|n| (u64::from(n) << 52).to_be_bytes().to_vec())),
            ("high bits at the other end", family(|n| (u64::from(n) << 52).to_le_bytes().to_vec())),
            ("a bit in zeros", family(|n| (0..512).map(|at| if at == n / 8 { 1 << (n % 8) } else { 0 }).collect())),
        ] {
            let longest = longest_chain(&hasher, 13, &keys);
            assert!(longest < 14, "{name}: {longest}");
        }
    }
}
