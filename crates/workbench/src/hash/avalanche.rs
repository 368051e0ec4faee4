//! Avalanche: how far a change of one bit of the key reaches into the number of the bucket.

use serde::Serialize;

use super::functions::HashFunction;
use super::keys::{Key, Keys};

/// What changing single bits of keys does. Only those bits are changed in which the keys differ from each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Avalanche {
    /// Which part of the bucket's bits changes, on average. A random function changes half.
    pub mean: f64,
    /// Which part of the key's bits never changes the bucket.
    pub dead: f64,
}

/// Keys whose bits are changed.
const KEYS: usize = 64;
/// Bits that are changed of each key at most: the first of strings.
const BITS: usize = 256;

/// Changes the bits of some keys; `None` when the keys don't differ in any.
#[must_use]
pub fn measure(function: &dyn HashFunction, keys: &Keys, bits: u32) -> Option<Avalanche> {
    let varying = varying_bits(keys);
    let step = keys.len().div_ceil(KEYS).max(1);
    let (mut flipped, mut trials) = (0, 0u64);
    let mut alive = vec![false; varying.len()];
    for key in keys.iter().step_by(step) {
        let bucket = function.bucket(&key, bits);
        for (bit, alive) in varying.iter().zip(&mut alive) {
            let Some(other) = with_flipped(&key, *bit, |key| function.bucket(key, bits)) else { continue };
            flipped += u64::from((bucket ^ other).count_ones());
            trials += u64::from(bits);
            *alive |= bucket != other;
        }
    }
    let dead = alive.iter().filter(|alive| !**alive).count();
    (trials > 0).then(|| Avalanche { mean: flipped as f64 / trials as f64, dead: dead as f64 / alive.len() as f64 })
}

/// The bits in which some key differs from the first.
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

/// Calls `f` with the key in which a bit (of its bytes, as [`Key::with_bytes`] gives them) is changed; `None` when it has no such bit.
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
    use crate::hash::functions::lever::BufferCache;
    use crate::hash::functions::modern::Fold;
    use crate::hash::functions::{all, textbook::Untransformed};

    #[test]
    fn the_key_itself_changes_one_bit_or_none() {
        // Numbers below 2^8 differ in eight bits, of which four are those of the bucket.
        let keys: Keys = (0..256).map(Key::Number).collect();
        let avalanche = measure(&Untransformed, &keys, 4).unwrap();
        assert_eq!(avalanche, Avalanche { mean: 0.125, dead: 0.5 });
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
        }
    }

    #[test]
    fn one_key_differs_in_nothing() {
        assert_eq!(measure(&Untransformed, &[Key::Number(1)].into_iter().collect(), 4), None);
    }
}
