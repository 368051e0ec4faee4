//! Entries with a key of which the hash can be chosen.

use relativist_bucket::{Hash, Keys, Relocatable};

/// Miri is slow, so tests do this part of what they do otherwise.
pub const PART: u64 = if cfg!(miri) { 100 } else { 1 };

/// An entry. The value says how often the key was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: u64,
    pub value: u64,
    /// Makes the entry need a drop, and fails under sanitizers if it is dropped twice.
    pub boxed: Box<u64>,
}

// SAFETY: no field changes through a shared reference.
unsafe impl Relocatable for Entry {}

impl Entry {
    pub fn new(key: u64, value: u64) -> Self {
        Self { key, value, boxed: Box::new(value) }
    }
}

/// Hashes of keys: the high bits of each hash are those of the key divided by `shared`, so that as
/// many keys have the same hash.
#[derive(Clone, Copy)]
pub struct Chosen {
    pub shared: u64,
}

impl Chosen {
    pub fn hash_of(self, key: u64) -> Hash {
        Hash::new(key / self.shared)
    }
}

impl Keys<Entry> for Chosen {
    fn hash(&self, entry: &Entry) -> Hash {
        self.hash_of(entry.key)
    }

    fn same(&self, one: &Entry, other: &Entry) -> bool {
        one.key == other.key
    }
}

/// A generator of numbers: SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % end
    }
}
