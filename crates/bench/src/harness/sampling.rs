//! Random operations and key indices for the matrix of ParlayHash, uniform or with Zipf's
//! distribution.

use std::ops::Range;

use clap::ValueEnum;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution as _, Zipf};
use serde::{Deserialize, Serialize};

use crate::harness::keys::Indices;

/// The exponent of Zipf's distribution, as in YCSB and ParlayHash.
const EXPONENT: f64 = 0.99;

/// The number of samples of Zipf's distribution drawn beforehand, a power of two: about the number
/// of operations that a thread does in a tenth of a second on a large table.
const SAMPLES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// All keys equally often
    Uniform,
    /// The k-th most frequent key with a probability proportional to 1 / k^0.99
    Zipf,
}

impl Distribution {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "Zipf 0.99",
        }
    }
}

/// Samples of Zipf's distribution over a range of indices, drawn before anything is measured,
/// because drawing one takes as long as a lookup. Threads read them in sequence, which the
/// processor prefetches.
#[derive(Debug)]
pub struct Samples(Vec<u32>);

impl Samples {
    /// Draws from `0..width`.
    pub fn zipf(width: u64) -> Self {
        assert!(u32::try_from(width).is_ok(), "indices do not fit 32 bits");
        let mut ranks = Ranks::new(width, width);
        Self((0..SAMPLES).map(|_| ranks.draw() as u32).collect())
    }
}

/// Zipf's distribution over a range of indices, drawn one at a time: for callers whose operations
/// take much longer than a draw. The index is the rank, because keys are scrambled anyway.
#[derive(Debug)]
pub struct Ranks {
    zipf: Zipf<f64>,
    random: SmallRng,
}

impl Ranks {
    /// Draws from `0..width`, reproducibly for `seed`.
    pub fn new(width: u64, seed: u64) -> Self {
        let zipf = Zipf::new(width as f64, EXPONENT).expect("a positive number and exponent");
        Self { zipf, random: SmallRng::seed_from_u64(seed) }
    }

    pub fn draw(&mut self) -> u64 {
        self.zipf.sample(&mut self.random) as u64 - 1
    }
}

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Get,
    /// Inserts the key if it is absent.
    Insert,
    /// Removes the key if it is present.
    Remove,
}

#[derive(Clone, Copy, Debug)]
pub struct Draws<'s> {
    indices: Indices,
    /// If given, indices are read from here instead of drawn from `indices`.
    samples: Option<&'s [u32]>,
    position: usize,
    /// An operation is an update when its 16 random bits are below this.
    updates_below: u32,
}

impl<'s> Draws<'s> {
    /// Draws from `range`, or from `samples` if there are some, reproducibly for `seed`. Half of
    /// the updates insert, half remove.
    pub fn new(range: Range<u64>, samples: Option<&'s Samples>, updates_percent: u8, seed: u64) -> Self {
        let updates_below = (u32::from(updates_percent) << 16) / 100;
        let samples = samples.map(|samples| samples.0.as_slice());
        Self { indices: Indices::new(range, seed), samples, position: seed as usize % SAMPLES, updates_below }
    }

    /// Draws the next operation and the index of its key.
    #[inline(always)]
    pub fn draw(&mut self) -> (Operation, u64) {
        let (mut index, coin) = self.indices.draw_with_coin();
        if let Some(samples) = self.samples {
            index = samples[self.position].into();
            self.position = (self.position + 1) % SAMPLES;
        }
        let operation = if u32::from(coin) >= self.updates_below {
            Operation::Get
        } else if coin % 2 == 0 {
            Operation::Insert
        } else {
            Operation::Remove
        };
        (operation, index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_gives_each_rank_its_share() {
        let width = 1000;
        let samples = Samples::zipf(width);
        let weight = |rank: u64| (rank as f64 + 1.0).powf(-EXPONENT);
        let total: f64 = (0..width).map(weight).sum();
        let mut counts = vec![0u32; width as usize];
        samples.0.iter().for_each(|&index| counts[index as usize] += 1);
        for rank in [0, 1, 2, 9, 99, 999] {
            let expected = weight(rank) / total * SAMPLES as f64;
            let counted = f64::from(counts[rank as usize]);
            // Six standard deviations of a Poisson distribution.
            assert!((counted - expected).abs() < 6.0 * expected.sqrt(), "rank {rank}: {counted}, expected {expected}");
        }
    }

    #[test]
    fn ranks_go_on_beyond_32_bits() {
        let stream = |seed| {
            let mut ranks = Ranks::new(1 << 33, seed);
            (0..4096).map(|_| ranks.draw()).collect::<Vec<_>>()
        };
        assert!(stream(1).iter().any(|&rank| rank > u32::MAX.into()) && stream(1).iter().all(|&rank| rank < 1 << 33));
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
    }

    #[test]
    fn operations_come_in_the_shares_asked_for() {
        for percent in [0u8, 1, 10, 50, 100] {
            let mut draws = Draws::new(0..100, None, percent, 1);
            let mut counts = [0usize; 3];
            for _ in 0..100_000 {
                counts[draws.draw().0 as usize] += 1;
            }
            let [_, inserts, removes] = counts;
            let expected = usize::from(percent) * 1000;
            assert!((inserts + removes).abs_diff(expected) < 600, "{counts:?} at {percent} %");
            assert!(inserts.abs_diff(removes) < 1200, "{counts:?} at {percent} %");
        }
    }

    #[test]
    fn a_seed_reproduces_its_stream() {
        let samples = Samples::zipf(50);
        for samples in [None, Some(&samples)] {
            let stream = |seed| {
                let mut draws = Draws::new(0..50, samples, 50, seed);
                (0..64).map(|_| draws.draw().1).collect::<Vec<_>>()
            };
            assert_eq!(stream(3), stream(3));
            assert_ne!(stream(3), stream(4));
            assert!(stream(3).iter().all(|&index| index < 50));
        }
    }
}
