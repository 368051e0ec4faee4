//! Histograms of bucket sizes, and the statistics computed from them.

use std::fmt;

use serde::Serialize;
use statrs::distribution::{ChiSquared, ContinuousCDF, Discrete, Poisson};

use super::functions::HashFunction;
use super::keys::Keys;

/// The number of buckets of each size, on which the quality of a chained table depends.
///
/// `Display` prints the format of the paper: a row per size up to 15, one for all larger sizes, and
/// the cumulative percentage of the objects, rounded down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// At index *n*, the number of buckets with *n* entries.
    pub sizes: Vec<u64>,
    /// The number of buckets.
    pub buckets: u64,
    /// The number of entries in all buckets.
    pub entries: u64,
}

/// The result of Pearson's chi-square test against the Poisson distribution: how far a histogram is
/// from that of a random function.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// The chi-square statistic.
    pub chi_square: f64,
    /// The degrees of freedom of the test.
    pub degrees: u32,
    /// The probability that a random function deviates at least as much.
    pub p_value: f64,
}

impl Histogram {
    /// Hashes `keys` into a table of 2^`bits` buckets.
    #[must_use]
    pub fn of(function: &dyn HashFunction, keys: &Keys, bits: u32) -> Self {
        let mut counts = vec![0; function.buckets(bits)];
        function.count(keys, bits, &mut counts);
        Self::from_counts(&counts)
    }

    /// Makes the histogram of buckets that have these numbers of entries.
    #[must_use]
    pub fn from_counts(counts: &[u32]) -> Self {
        let largest = counts.iter().copied().max().unwrap_or(0);
        let mut sizes = vec![0; largest as usize + 1];
        for count in counts {
            sizes[*count as usize] += 1;
        }
        Self::from_sizes(sizes)
    }

    /// Makes a histogram with `sizes[n]` buckets of *n* entries.
    #[must_use]
    pub fn from_sizes(sizes: Vec<u64>) -> Self {
        let buckets = sizes.iter().sum();
        let entries = (0..).zip(&sizes).map(|(size, buckets): (u64, _)| size * buckets).sum();
        Self { sizes, buckets, entries }
    }

    /// Returns the number of empty buckets.
    #[must_use]
    pub fn empty(&self) -> u64 {
        self.sizes.first().copied().unwrap_or(0)
    }

    /// Returns the size of the largest bucket.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.sizes.iter().rposition(|buckets| *buckets > 0).unwrap_or(0)
    }

    /// Returns the mean number of entries per bucket.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.entries as f64 / self.buckets as f64
    }

    /// Returns the mean number of entries that a miss visits, if missing keys are distributed over
    /// the buckets like the present keys. It is computed as if each entry in turn were removed and
    /// then looked up. For a random function it is equal to the load.
    #[must_use]
    pub fn probes_per_miss(&self) -> f64 {
        if self.entries == 0 {
            return 0.0;
        }
        let met = |(size, buckets): (usize, &u64)| size as f64 * size.saturating_sub(1) as f64 * *buckets as f64;
        self.sizes.iter().enumerate().map(met).sum::<f64>() / self.entries as f64
    }

    /// Returns the mean number of entries that a hit visits: the entry found, and half of the
    /// others in its bucket.
    #[must_use]
    pub fn probes_per_hit(&self) -> f64 {
        1.0 + self.probes_per_miss() / 2.0
    }

    /// Returns the mean number of entries that a lookup visits, if this share of lookups hits.
    #[must_use]
    pub fn probes(&self, hit_rate: f64) -> f64 {
        hit_rate * self.probes_per_hit() + (1.0 - hit_rate) * self.probes_per_miss()
    }

    /// Returns the variance of the bucket sizes divided by their mean: 1 for a random function,
    /// less if keys are spread more evenly, more if they cluster.
    #[must_use]
    pub fn dispersion(&self) -> f64 {
        if self.entries == 0 {
            return 0.0;
        }
        // The second moment follows from the probes per miss and the load.
        self.probes_per_miss() + 1.0 - self.load()
    }

    /// Returns the expected number of buckets with `size` entries, for a random function.
    ///
    /// # Panics
    /// When the histogram has no entries.
    #[must_use]
    pub fn expected(&self, size: u64) -> f64 {
        let poisson = Poisson::new(self.load()).expect("a load above zero");
        self.buckets as f64 * poisson.pmf(size)
    }

    /// Tests the sizes against those of a random function; `None` if there are too few entries or
    /// buckets for a test.
    ///
    /// Neighbouring sizes are merged until each class has an expectation of at least five buckets.
    /// The numbers of buckets and of entries take two degrees of freedom.
    #[must_use]
    pub fn fit(&self) -> Option<Fit> {
        const ENOUGH: f64 = 5.0;
        if self.entries == 0 {
            return None;
        }
        // The expected number of buckets outside of this range is negligible.
        let reach = 12.0 * self.load().sqrt() + 12.0;
        let (from, to) = ((self.load() - reach).max(0.0) as u64, (self.load() + reach) as u64);
        let observed = |size: u64| self.sizes.get(size as usize).copied().unwrap_or(0) as f64;
        let (mut classes, mut class) = (Vec::new(), (0.0, 0.0));
        let (mut expected_so_far, mut observed_so_far) = (0.0, 0.0);
        class.1 += (0..from).map(observed).sum::<f64>();
        for size in from..=to {
            class.0 += self.expected(size);
            class.1 += observed(size);
            let rest = self.buckets as f64 - expected_so_far - class.0;
            if class.0 >= ENOUGH && rest >= ENOUGH {
                expected_so_far += class.0;
                observed_so_far += class.1;
                classes.push(std::mem::take(&mut class));
            }
        }
        // The last class has all remaining sizes.
        classes.push((self.buckets as f64 - expected_so_far, self.buckets as f64 - observed_so_far));
        let degrees = u32::try_from(classes.len().checked_sub(2)?).ok().filter(|degrees| *degrees > 0)?;
        let chi_square = classes.iter().map(|(expected, observed)| (observed - expected).powi(2) / expected).sum();
        let distribution = ChiSquared::new(degrees.into()).expect("degrees above zero");
        Some(Fit { chi_square, degrees, p_value: distribution.sf(chi_square) })
    }
}

/// The largest size with a separate row.
const MAX_ROW: usize = 15;

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "size  buckets  objects  sum-pct")?;
        let mut cumulated = 0;
        for size in 0..=MAX_ROW {
            let buckets = self.sizes.get(size).copied().unwrap_or(0);
            let objects = buckets * size as u64;
            cumulated += objects;
            row(f, &size.to_string(), buckets, objects, self.percent(cumulated))?;
        }
        let buckets = self.sizes.iter().skip(MAX_ROW + 1).sum();
        row(f, &format!(">{MAX_ROW}"), buckets, self.entries - cumulated, self.percent(self.entries))
    }
}

fn row(f: &mut fmt::Formatter<'_>, size: &str, buckets: u64, objects: u64, percent: u64) -> fmt::Result {
    writeln!(f, "{size:>4}{buckets:>9}{objects:>9}{percent:>9}")
}

impl Histogram {
    fn percent(&self, entries: u64) -> u64 {
        (u128::from(entries) * 100).checked_div(self.entries.into()).unwrap_or(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashing::functions::named;
    use crate::hashing::keys::Key;

    #[test]
    fn probes_are_those_of_walking_the_chains() {
        // Four buckets have 3, 0, 1 and 0 entries. Hits visit 1, 2, 3 and 1 entries. If each entry
        // is removed and looked up, the misses visit 2, 2, 2 and 0.
        let histogram = Histogram::from_counts(&[3, 0, 1, 0]);
        assert_eq!(histogram.sizes, [2, 1, 0, 1]);
        assert_eq!((histogram.empty(), histogram.largest(), histogram.entries), (2, 3, 4));
        assert_eq!(histogram.probes_per_hit(), 7.0 / 4.0);
        assert_eq!(histogram.probes_per_miss(), 6.0 / 4.0);
        assert_eq!(histogram.probes(0.5), 13.0 / 8.0);
        // The mean is 1, and the variance (4 + 1 + 0 + 1) / 4.
        assert_eq!(histogram.dispersion(), 1.5);
    }

    #[test]
    fn nothing_is_no_distribution() {
        let histogram = Histogram::from_counts(&[0; 8]);
        assert_eq!((histogram.largest(), histogram.probes_per_miss(), histogram.fit()), (0, 0.0, None));
        assert!(histogram.to_string().contains("   0        8        0        0\n"), "{histogram}");
    }

    #[test]
    fn the_p_value_separates_random_from_clustered_and_even_sizes() {
        let keys: Keys = (0..40_000).map(Key::Number).collect();
        let random = Histogram::of(&*named("siphash"), &keys, 14);
        let fit = random.fit().unwrap();
        assert!(fit.p_value > 0.001 && fit.p_value < 0.999, "{fit:?}");
        assert!((random.dispersion() - 1.0).abs() < 0.05, "{}", random.dispersion());
        let even = Histogram::of(&*named("untransformed"), &keys, 14);
        assert!(even.fit().unwrap().p_value < 1e-9 && even.dispersion() < 0.2);
        let clustered = Histogram::from_sizes(vec![12_000, 0, 0, 0, 0, 0, 0, 0, 0, 4_384]);
        assert!(clustered.fit().unwrap().p_value < 1e-9 && clustered.dispersion() > 5.0);
    }

    /// Over many random tables, the share of p-values below a bound is the bound: this defines
    /// p-values.
    #[test]
    fn p_values_are_uniform_for_random_tables() {
        let random = named("siphash");
        let p_values: Vec<f64> = (0..200)
            .map(|table| {
                let keys: Keys = (0..3000).map(|n| Key::Pair(table, n)).collect();
                Histogram::of(random.as_ref(), &keys, 10).fit().unwrap().p_value
            })
            .collect();
        for bound in [0.1, 0.5, 0.9] {
            let share = p_values.iter().filter(|p| **p < bound).count() as f64 / 200.0;
            assert!((share - bound).abs() < 0.12, "{share} below {bound}");
        }
    }
}
