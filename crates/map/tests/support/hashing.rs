//! Hashers that are the same in every run.
#![allow(dead_code, reason = "each test takes those that it needs")]

use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;

use relativist_testing::random::mix;

/// Hashes an integer by applying a function to it.
#[derive(Debug, Clone, Copy)]
pub struct Hashing(pub fn(u64) -> u64);

/// Spreads keys as well as random hashes would.
pub const MIXED: Hashing = Hashing(mix);

/// The worst hash function without collisions: the table gets the keys themselves.
pub const IDENTITY: Hashing = Hashing(|n| n);

/// All keys have the same hash.
pub const EQUAL: Hashing = Hashing(|_| 7);

/// Keys below 64 share a bucket as long as there are at most 4096, and have different hashes.
pub const TOGETHER: Hashing = Hashing(|n| {
    static HASHES: LazyLock<Vec<u64>> = LazyLock::new(|| (0..).filter(|&n| in_table(n) >> 52 == 7).take(64).collect());
    HASHES[n as usize % 64]
});

/// Returns the hash that the table makes of what a hasher returns.
fn in_table(hash: u64) -> u64 {
    let product = u128::from(hash) * 0x9E37_79B9_7F4A_7C15;
    (product >> 64) as u64 ^ product as u64
}

pub struct Applied {
    apply: fn(u64) -> u64,
    number: u64,
}

impl BuildHasher for Hashing {
    type Hasher = Applied;

    fn build_hasher(&self) -> Applied {
        Applied { apply: self.0, number: 0 }
    }
}

impl Hasher for Applied {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.number = self.number << 8 | u64::from(byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.number = number;
    }

    fn finish(&self) -> u64 {
        (self.apply)(self.number)
    }
}
