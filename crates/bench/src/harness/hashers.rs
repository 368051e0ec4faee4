//! The hash functions of the tables. All tables of a run use the same one.

use std::hash::{BuildHasherDefault, Hasher};

/// foldhash with a fixed seed, so that runs can be compared.
pub type Foldhash = foldhash::fast::FixedState;

/// `FxHash`, from rustc's own crate.
pub type Fx = rustc_hash::FxBuildHasher;

/// Hashes a 64-bit key to itself.
pub type Identity = BuildHasherDefault<IdentityHasher>;

/// The hasher of [`Identity`].
#[derive(Clone, Copy, Debug, Default)]
pub struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("the workbench hashes u64 keys only");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    #[test]
    fn identity_is_one() {
        assert_eq!(Identity::default().hash_one(0x1234_5678_9abc_def0u64), 0x1234_5678_9abc_def0);
    }

    #[test]
    fn seeds_are_fixed() {
        assert_eq!(Foldhash::default().hash_one(7u64), Foldhash::default().hash_one(7u64));
    }
}
