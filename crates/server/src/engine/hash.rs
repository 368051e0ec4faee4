//! The hash of keys.
//!
//! Clients choose the keys, so the function must be keyed: whoever does not know the seed cannot prepare keys that share a
//! bucket. It is foldhash in its thorough variant, the family that is `hashbrown`'s default, because it is several times faster
//! on usual keys than SipHash-1-3, the cryptographically argued choice, and every command pays for it. What makes the weaker
//! claim acceptable: hashes are never shown to clients, the seed is drawn for each process from the system's random numbers,
//! and a flood that succeeded all the same would cost time in one bucket, not memory or correctness.

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// Hashes keys under the secret of this process.
#[derive(Clone, Debug)]
pub(super) struct KeyHasher(SeedableRandomState);

impl KeyHasher {
    /// A hasher with the secret of the process and a random number of its own.
    pub(super) fn new() -> KeyHasher {
        static SECRET: OnceLock<SharedSeed> = OnceLock::new();
        let secret = SECRET.get_or_init(|| SharedSeed::from_u64(random()));
        KeyHasher(SeedableRandomState::with_seed(random(), secret))
    }

    /// The hash of `key`.
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        hasher.finish()
    }
}

/// A number from the system's source of randomness, by way of the standard library's SipHash keys.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_hash_alike_and_seeds_differ() {
        let (one, other) = (KeyHasher::new(), KeyHasher::new());
        assert_eq!(one.hash(b"key"), one.clone().hash(b"key"));
        assert_ne!(one.hash(b"key"), one.hash(b"kex"));
        assert_ne!(one.hash(b"key"), other.hash(b"key"));
    }
}
