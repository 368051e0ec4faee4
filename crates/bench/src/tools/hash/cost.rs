//! The cost of hashing a key, and of accessing an entry.

use std::hint::black_box;
use std::time::Instant;

use crate::harness::keys::Indices;
use crate::harness::rounds::order;
use crate::harness::stats::Summary;
use crate::hashing::functions::HashFunction;
use crate::hashing::keys::{Key, Keys};

/// The number of rounds. Each round times every function once.
const ROUNDS: usize = 15;
/// The minimum number of keys hashed per measurement, which takes a few tenths of a millisecond.
/// (Timings of debug builds are meaningless, so these hash fewer.)
const KEYS: usize = if cfg!(debug_assertions) { 1 << 8 } else { 1 << 15 };

/// A function that hashes nothing, to time the loop over keys.
struct Harness;

impl HashFunction for Harness {
    fn name(&self) -> String {
        "harness".into()
    }

    #[inline]
    fn bucket(&self, key: &Key<'_>, _: u32) -> usize {
        let _ = black_box(key);
        0
    }
}

/// Measures the nanoseconds per key of each function: medians over interleaved rounds, without the
/// time of the loop.
pub fn of_hashing(functions: &[Box<dyn HashFunction>], keys: &Keys, bits: u32) -> Vec<f64> {
    let candidates: Vec<&dyn HashFunction> =
        functions.iter().map(Box::as_ref).chain([&Harness as &dyn HashFunction]).collect();
    let mut samples = vec![Vec::with_capacity(ROUNDS); candidates.len()];
    let passes = KEYS.div_ceil(keys.len());
    for round in 0..ROUNDS {
        for candidate in order(round, candidates.len()) {
            let start = Instant::now();
            for _ in 0..passes {
                black_box(candidates[candidate].exercise(black_box(keys), bits));
            }
            samples[candidate].push(start.elapsed().as_secs_f64() * 1e9 / (passes * keys.len()) as f64);
        }
    }
    let mut medians: Vec<f64> =
        samples.into_iter().map(|samples| Summary::of(samples).map_or(0.0, |summary| summary.median)).collect();
    let harness = medians.pop().unwrap_or(0.0);
    medians.iter_mut().for_each(|median| *median = (*median - harness).max(0.0));
    medians
}

/// An entry of the size of a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Entry {
    next: u32,
}

/// Measures the nanoseconds to access the next entry of a chain, by a walk through `entries`
/// entries in random order.
pub fn of_probing(entries: u64) -> f64 {
    /// 256 MiB. A larger table would not change the effect of the caches.
    const MAX_ENTRIES: u64 = 1 << 22;
    const STEPS: usize = 1 << 16;
    let entries = entries.clamp(2, MAX_ENTRIES) as usize;
    let mut walk: Vec<Entry> = (0..entries as u32).map(|next| Entry { next }).collect();
    // Links all entries in one cycle (Sattolo's algorithm).
    let mut random = Indices::new(0..1 << 32, 1);
    for last in (1..entries).rev() {
        walk.swap(last, ((random.draw() * last as u64) >> 32) as usize);
    }
    let mut at = 0;
    let mut pass = || {
        let start = Instant::now();
        for _ in 0..STEPS {
            at = walk[at as usize].next;
        }
        black_box(at);
        start.elapsed().as_secs_f64() * 1e9 / STEPS as f64
    };
    Summary::of((0..5).map(|_| pass())).map_or(0.0, |summary| summary.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashing::functions::{all, modern::Fold};

    #[test]
    fn every_function_has_a_cost() {
        let functions = all(&[Fold::Low]);
        let keys: Keys = (0..64).map(Key::Number).collect();
        let costs = of_hashing(&functions, &keys, 10);
        assert_eq!(costs.len(), functions.len());
        assert!(costs.iter().all(|cost| cost.is_finite() && *cost >= 0.0));
        assert!(of_probing(1000) > 0.0);
    }
}
