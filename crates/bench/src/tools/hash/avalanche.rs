//! Avalanche: which bits of the bucket number change when one bit of the key changes.

use serde::Serialize;

use crate::hashing::functions::HashFunction;
use crate::hashing::keys::{Key, Keys};

/// How a bucket number depends on single bits of the key. Only the bits in which the keys differ
/// are tested.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Avalanche {
    /// The share of the bucket's bits that change, on average: 1/2 for a random function.
    pub mean: f64,
    /// The share of the key's bits that never change the bucket.
    pub dead: f64,
    /// For each bit of the key and each bit of the bucket there is a probability that changing the
    /// first changes the second. This is the largest deviation of these probabilities from 1/2.
    pub bias: f64,
    /// The minimum number of keys from which each probability is estimated.
    pub keys: usize,
}

impl Avalanche {
    /// Returns whether each tested bit of the key changes each bit of the bucket with a probability
    /// near 1/2. The tolerance is the random deviation plus a tenth.
    pub fn is_thorough(&self) -> bool {
        let deviation = 0.5 / (self.keys as f64).sqrt();
        self.bias < 0.1 + 5.0 * deviation
    }
}

const KEYS: usize = 512;
/// The maximum number of bits tested per key; in long strings, only the first ones.
const BITS: usize = 256;

/// Measures the avalanche of a function on some keys; `None` if the keys do not differ in any bit.
pub fn measure(function: &dyn HashFunction, keys: &Keys, bits: u32) -> Option<Avalanche> {
    let varying = varying_bits(keys);
    let step = keys.len().div_ceil(KEYS).max(1);
    // For each tested bit, the number of keys in which it was changed, and how often each bit of
    // the bucket changed.
    let mut trials = vec![0u32; varying.len()];
    let mut flips = vec![[0u32; u32::BITS as usize]; varying.len()];
    let mut alive = vec![false; varying.len()];
    for key in keys.iter().step_by(step) {
        let bucket = function.bucket(&key, bits);
        for (place, bit) in varying.iter().enumerate() {
            let Some(other) = with_flipped(&key, *bit, |key| function.bucket(key, bits)) else { continue };
            trials[place] += 1;
            alive[place] |= bucket != other;
            for (out, flips) in flips[place].iter_mut().enumerate() {
                *flips += ((bucket ^ other) >> out & 1) as u32;
            }
        }
    }
    // Bits that only a few long keys have are left out, because the estimate would be poor.
    let enough = (trials.iter().copied().max()? / 2).max(1);
    let common = flips.iter().zip(&trials).filter(|(_, trials)| **trials >= enough);
    let chances: Vec<f64> = common
        .flat_map(|(flips, trials)| flips[..bits as usize].iter().map(|flips| f64::from(*flips) / f64::from(*trials)))
        .collect();
    let dead = alive.iter().filter(|alive| !**alive).count();
    Some(Avalanche {
        mean: chances.iter().sum::<f64>() / chances.len() as f64,
        dead: dead as f64 / alive.len() as f64,
        bias: chances.iter().map(|chance| (chance - 0.5).abs()).fold(0.0, f64::max),
        keys: enough as usize,
    })
}

/// Returns the bits in which some key differs from the first key.
fn varying_bits(keys: &Keys) -> Vec<usize> {
    let mut first = Vec::new();
    let mut differences = [0u8; BITS / 8];
    for (number, key) in keys.iter().enumerate() {
        key.with_bytes(|bytes| match number {
            0 => first = bytes.to_vec(),
            _ => {
                for ((difference, byte), first) in differences.iter_mut().zip(bytes).zip(&first) {
                    *difference |= byte ^ first;
                }
            }
        });
    }
    (0..BITS).filter(|bit| differences[bit / 8] >> (bit % 8) & 1 == 1).collect()
}

/// Calls `f` with the key after one bit of its bytes (see [`Key::with_bytes`]) is changed; `None`
/// if the key has no such bit.
fn with_flipped<R>(key: &Key<'_>, bit: usize, f: impl FnOnce(&Key<'_>) -> R) -> Option<R> {
    let changed = |bytes: &[u8], bit: usize| {
        let mut bytes = bytes.to_vec();
        *bytes.get_mut(bit / 8)? ^= 1 << (bit % 8);
        Some(bytes)
    };
    match *key {
        Key::Number(number) => (bit < 64).then(|| f(&Key::Number(number ^ 1 << bit))),
        Key::Pair(first, second) if bit < 64 => Some(f(&Key::Pair(first ^ 1 << bit, second))),
        Key::Pair(first, second) => (bit < 128).then(|| f(&Key::Pair(first, second ^ 1 << (bit - 64)))),
        Key::Name(parent, name) if bit < 64 => Some(f(&Key::Name(parent ^ 1 << bit, name))),
        Key::Name(parent, name) => changed(name, bit - 64).map(|name| f(&Key::Name(parent, &name))),
        Key::Bytes(bytes) => changed(bytes, bit).map(|bytes| f(&Key::Bytes(&bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashing::functions::lever::BufferCache;
    use crate::hashing::functions::modern::Fold;
    use crate::hashing::functions::{
        all,
        textbook::{Fibonacci, Untransformed},
    };

    #[test]
    fn the_key_itself_changes_one_bit_or_none() {
        // Numbers below 2^8 differ in eight bits. Four of these are the bits of the bucket.
        let keys: Keys = (0..256).map(Key::Number).collect();
        let avalanche = measure(&Untransformed, &keys, 4).unwrap();
        assert_eq!(avalanche, Avalanche { mean: 0.125, dead: 0.5, bias: 0.5, keys: 128 });
    }

    #[test]
    fn what_a_function_ignores_is_dead() {
        let keys: Keys = (0..16).map(|n| Key::Pair(n, n)).collect();
        let avalanche = measure(&BufferCache::Multiplicative { shift: 18 }, &keys, 14).unwrap();
        assert_eq!(avalanche.dead, 0.5, "the device");
    }

    #[test]
    fn a_strong_function_changes_half_of_the_bits() {
        let functions = all(&[Fold::Low]);
        let siphash = functions.iter().find(|function| function.name() == "siphash").unwrap();
        let texts: Vec<String> = (0..1000).map(|n| format!("key-{n}")).collect();
        for keys in [
            (0..1000).map(|n| Key::Pair(n, n * n)).collect::<Keys>(),
            texts.iter().map(|text| Key::Bytes(text.as_bytes())).collect(),
            texts.iter().map(|text| Key::Name(7, text.as_bytes())).collect(),
        ] {
            let avalanche = measure(siphash.as_ref(), &keys, 16).unwrap();
            assert!((avalanche.mean - 0.5).abs() < 0.03 && avalanche.dead == 0.0, "{avalanche:?}");
            assert!(avalanche.is_thorough(), "{avalanche:?}");
        }
    }

    /// Half of the bits change on average, but which ones depends on the changed bit of the key.
    #[test]
    fn a_multiplication_is_not_thorough() {
        let keys: Keys = (0..5000).map(Key::Number).collect();
        let avalanche = measure(&Fibonacci, &keys, 12).unwrap();
        assert!(avalanche.mean > 0.4 && !avalanche.is_thorough(), "{avalanche:?}");
    }

    #[test]
    fn one_key_differs_in_nothing() {
        assert_eq!(measure(&Untransformed, &[Key::Number(1)].into_iter().collect(), 4), None);
    }
}
