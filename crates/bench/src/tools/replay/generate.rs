//! Generated traces, for what no published trace has or shows alone. A kind, a number of requests
//! and a seed determine a trace.

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng};
use serde::Serialize;

use super::trace::Trace;
use crate::harness::sampling::Ranks;

/// What is requested. The sizes are those of Facebook's ETC pool in all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Zipf's distribution with exponent 0.99, over a quarter as many keys as requests
    Etc,
    /// The same; but after each 15,000 requests, 5,000 keys are requested in sequence. The
    /// sequences repeat from the start after an eighth as many keys as there are requests
    Scans,
    /// The same; but every second request is for a key that is never requested again
    OneHit,
    /// The same; but with each hundredth of the requests a tenth of the keys exchange their
    /// popularity with other keys
    Shifting,
}

/// Requests from Zipf's distribution between two scans, and requests of a scan.
const BETWEEN_SCANS: u64 = 15_000;
const SCAN: u64 = 5_000;

/// The number of times that the popularity shifts in a trace.
const SHIFTS: usize = 100;

/// Generates a trace.
pub fn generate(kind: Kind, requests: u64, seed: u64) -> Trace {
    let keys = (requests / 4).max(1);
    let mut generator = Generator::new(keys, seed);
    match kind {
        Kind::Etc => (0..requests).for_each(|_| generator.popular()),
        Kind::Scans => {
            let scanned = (requests / 8).max(1);
            let mut position = 0;
            for time in 0..requests {
                if time % (BETWEEN_SCANS + SCAN) < BETWEEN_SCANS {
                    generator.popular();
                } else {
                    generator.request(keys + position % scanned);
                    position += 1;
                }
            }
        }
        Kind::OneHit => {
            for time in 0..requests {
                if time % 2 == 0 {
                    generator.popular();
                } else {
                    generator.request(keys + time / 2);
                }
            }
        }
        Kind::Shifting => {
            let period = (requests / SHIFTS as u64).max(1);
            for time in 0..requests {
                if time % period == period - 1 {
                    generator.shift();
                }
                generator.popular();
            }
        }
    }
    generator.trace
}

struct Generator {
    trace: Trace,
    ranks: Ranks,
    /// The key of each rank.
    keys: Vec<u32>,
    /// The number of each requested key in the trace.
    numbers: Vec<Option<u32>>,
    random: SmallRng,
}

impl Generator {
    fn new(keys: u64, seed: u64) -> Self {
        let random = SmallRng::seed_from_u64(seed ^ 0x5eed_0f51_2e5a_11d5);
        let ranks = Ranks::new(keys, seed);
        Self { trace: Trace::default(), ranks, keys: (0..keys as u32).collect(), numbers: Vec::new(), random }
    }

    fn request(&mut self, key: u64) {
        let key = key as usize;
        if self.numbers.len() <= key {
            self.numbers.resize(key + 1, None);
        }
        let number = match self.numbers[key] {
            Some(number) => number,
            None => {
                let number = self.trace.sizes.len() as u32;
                let size = key_size(self.random.random()) + value_size(self.random.random());
                self.trace.sizes.push(size);
                self.trace.unique_bytes += size;
                self.numbers[key] = Some(number);
                number
            }
        };
        self.trace.requests.push(number);
    }

    fn popular(&mut self) {
        let rank = self.ranks.draw();
        self.request(self.keys[rank as usize].into());
    }

    /// Exchanges the popularity of a tenth of the keys with that of random others.
    fn shift(&mut self) {
        for _ in 0..self.keys.len() / 20 {
            let [a, b] = [(); 2].map(|()| self.random.random_range(0..self.keys.len()));
            self.keys.swap(a, b);
        }
    }
}

/// Returns the size of a key of Facebook's ETC pool, for a number `u` in 0..1: a generalized
/// extreme value distribution (Atikoglu et al., SIGMETRICS 2012, section 5), within memcached's
/// limits.
fn key_size(u: f64) -> u64 {
    const LOCATION: f64 = 30.7984;
    const SCALE: f64 = 8.20449;
    const SHAPE: f64 = 0.078688;
    let size = LOCATION + SCALE * ((-u.ln()).powf(-SHAPE) - 1.0) / SHAPE;
    size.clamp(1.0, 250.0) as u64
}

/// The shares of the values of 0 to 14 bytes in the same paper, in 100,000ths.
const SMALL_VALUES: [u32; 15] = [536, 47, 17_820, 9_239, 18, 2_740, 65, 606, 23, 837, 837, 8_989, 92, 326, 1_980];

/// Returns the size of a value of the same pool: small values by a table, others from a generalized
/// Pareto distribution, at most memcached's 1 MiB.
fn value_size(u: f64) -> u64 {
    const LOCATION: f64 = 15.0;
    const SCALE: f64 = 214.476;
    const SHAPE: f64 = 0.348238;
    let mut rest = u * 100_000.0;
    for (size, &share) in (0..).zip(&SMALL_VALUES) {
        if rest < f64::from(share) {
            return size;
        }
        rest -= f64::from(share);
    }
    let small: u32 = SMALL_VALUES.iter().sum();
    let u = rest / f64::from(100_000 - small);
    let size = LOCATION + SCALE * ((1.0 - u).powf(-SHAPE) - 1.0) / SHAPE;
    size.min(1_048_576.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: u64 = 200_000;

    fn counts(trace: &Trace) -> Vec<u32> {
        let mut counts = vec![0; trace.sizes.len()];
        trace.requests.iter().for_each(|&object| counts[object as usize] += 1);
        counts
    }

    fn is_popular_throughout(trace: &Trace) -> bool {
        let mut counts = [[0; 2]; 2];
        let half = trace.requests.len() / 2;
        let top = |requests: &[u32]| {
            let mut counts = vec![0_u32; trace.sizes.len()];
            requests.iter().for_each(|&object| counts[object as usize] += 1);
            counts
        };
        for (row, requests) in counts.iter_mut().zip([&trace.requests[..half], &trace.requests[half..]]) {
            let counts = top(requests);
            let popular = (0..counts.len()).max_by_key(|&object| counts[object]).unwrap();
            *row = [popular as u32, counts[popular]];
        }
        counts[0][0] == counts[1][0]
    }

    #[test]
    fn a_seed_determines_a_trace() {
        for &kind in Kind::value_variants() {
            let [a, b, c] = [1, 1, 2].map(|seed| generate(kind, 5000, seed));
            assert_eq!((&a.requests, &a.sizes), (&b.requests, &b.sizes), "{kind:?}");
            assert_ne!(a.requests, c.requests, "{kind:?}");
            assert_eq!(a.requests.len(), 5000);
            assert_eq!(a.unique_bytes, a.sizes.iter().sum::<u64>());
            assert!(a.requests.iter().all(|&object| (object as usize) < a.sizes.len()));
        }
        assert_eq!(generate(Kind::Shifting, 1, 1).requests, [0]);
    }

    /// The most popular key has its share, and the most popular hundred have theirs.
    #[test]
    fn popularity_follows_zipf() {
        let mut counts = counts(&generate(Kind::Etc, REQUESTS, 1));
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let weights: Vec<f64> = (1..=REQUESTS / 4).map(|rank| (rank as f64).powf(-0.99)).collect();
        let all: f64 = weights.iter().sum();
        for top in [1, 100] {
            let expected = weights[..top].iter().sum::<f64>() / all;
            let share = f64::from(counts[..top].iter().sum::<u32>()) / REQUESTS as f64;
            assert!((share / expected - 1.0).abs() < 0.03, "{top}: {share}, expected {expected}");
        }
    }

    /// Means and medians of the distributions, by integrating them numerically.
    #[test]
    fn sizes_are_those_of_the_etc_pool() {
        let all = |size: fn(f64) -> u64| (0..1_000_000).map(move |i| size((f64::from(i) + 0.5) / 1e6));
        let mean = |size| all(size).sum::<u64>() as f64 / 1e6;
        assert!((mean(key_size) - 35.6).abs() < 0.5, "{}", mean(key_size));
        assert_eq!(all(value_size).filter(|&size| size < 15).count(), 441_550);
        assert_eq!([0.1, 0.5, 0.9].map(value_size), [2, 39, 520]);
        // The mean of the Pareto distribution is 15 + 214.476 / (1 - 0.348238).
        assert!((mean(value_size) - (0.55845 * 343.6 + 2.7)).abs() < 2.0, "{}", mean(value_size));
        assert_eq!((key_size(0.0), key_size(1.0 - f64::EPSILON)), (1, 250));
        assert_eq!((value_size(0.0), value_size(1.0 - f64::EPSILON)), (0, 1_048_576));
    }

    #[test]
    fn scans_return_to_their_keys() {
        let trace = generate(Kind::Scans, REQUESTS, 1);
        let scan = |time: usize| &trace.requests[time..time + SCAN as usize];
        let [first, second] = [scan(15_000), scan(35_000)];
        assert!(first.windows(2).all(|pair| pair[1] == pair[0] + 1), "new keys in sequence");
        assert!(first.iter().all(|object| !second.contains(object)));
        // 25,000 keys are scanned in five scans.
        assert_eq!(first, scan(115_000));
    }

    #[test]
    fn half_of_the_requests_are_for_one_hit_wonders() {
        let trace = generate(Kind::OneHit, REQUESTS, 1);
        let counts = counts(&trace);
        assert!(trace.requests.iter().skip(1).step_by(2).all(|&object| counts[object as usize] == 1));
        assert!(counts.iter().any(|&count| count > 1000));
    }

    #[test]
    fn popularity_shifts() {
        assert!(is_popular_throughout(&generate(Kind::Etc, REQUESTS, 1)));
        assert!(!is_popular_throughout(&generate(Kind::Shifting, REQUESTS, 1)));
    }
}
