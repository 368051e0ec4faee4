//! Hashers that are the same in every run.
#![allow(dead_code, reason = "each test takes those that it needs")]

use std::hash::{BuildHasher, Hasher};

use crate::random::mix;

/// Hashes an integer by applying a function to it.
#[derive(Debug, Clone, Copy)]
pub struct Hashing(pub fn(u64) -> u64);

/// As good as it gets.
pub const MIXED: Hashing = Hashing(mix);

/// As bad as it gets without losing anything.
pub const IDENTITY: Hashing = Hashing(|n| n);

/// The inverse of what maps do to hashes: keys are in the table in their own order, the highest
/// bits in the lead.
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
