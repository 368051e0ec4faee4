//! Hashers that are the same in every run.
#![allow(dead_code, reason = "each test takes those that it needs")]

use std::hash::{BuildHasher, Hasher};

use relativist_testing::random::mix;

/// Hashes an integer by applying a function to it.
#[derive(Debug, Clone, Copy)]
pub struct Hashing(pub fn(u64) -> u64);

/// Spreads keys as well as random hashes would.
pub const MIXED: Hashing = Hashing(mix);

/// The worst hash function without collisions: the table gets the keys themselves.
pub const IDENTITY: Hashing = Hashing(|n| n);

/// The inverse of what maps do to hashes: keys are in the table in numerical order.
pub const UNMIXED: Hashing = Hashing(|n| n.wrapping_mul(0xF1DE_83E1_9937_733D));

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
