//! The results for one set of keys.

use std::collections::HashSet;
use std::hash::BuildHasher;

use rayon::prelude::*;
use serde::Serialize;

use super::advice::{self, Advice};
use super::cost;
use crate::hashing::functions::{BITS, HashFunction};
use crate::hashing::histogram::{Fit, Histogram};
use crate::hashing::keys::Keys;

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Weights {
    /// The share of lookups that hit.
    pub hit_rate: f64,
    /// Nanoseconds to access an entry. Measured if not given.
    pub probe_ns: Option<f64>,
}

/// A set of keys, and the results of each function.
#[derive(Debug, Serialize)]
pub struct Section {
    pub title: String,
    pub keys: u64,
    /// The number of distinct keys.
    pub distinct: u64,
    /// The share of lookups that hit.
    pub hit_rate: f64,
    /// Nanoseconds to access an entry.
    pub probe_ns: f64,
    pub advice: Option<Advice>,
    /// A row for each function and size, sorted by size and by the cost of a lookup.
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub function: String,
    pub bits: u32,
    pub histogram: Histogram,
    pub empty: u64,
    /// The size of the largest bucket.
    pub largest: usize,
    /// See [`Histogram::probes_per_hit`].
    pub probes_per_hit: f64,
    /// See [`Histogram::probes_per_miss`].
    pub probes_per_miss: f64,
    /// Entries visited per thousand lookups, hits and misses together: the paper's
    /// "iterations/lookup".
    pub probes_per_thousand: f64,
    /// See [`Histogram::dispersion`].
    pub dispersion: f64,
    /// See [`Histogram::fit`].
    pub fit: Option<Fit>,
    /// Nanoseconds to hash a key.
    pub hash_ns: f64,
    /// The expected time of a lookup in nanoseconds: hashing, accessing the bucket, and visiting
    /// entries.
    pub lookup_ns: f64,
}

impl Row {
    /// Returns whether the function is likely to suit other keys too, because it treats these keys
    /// as a random function does. A function whose buckets are more even profits from a pattern.
    pub fn is_robust(&self) -> bool {
        let deviation = (2.0 / self.histogram.buckets as f64).sqrt();
        (self.dispersion - 1.0).abs() < 0.1 + 5.0 * deviation
    }
}

impl Section {
    /// Counts the keys into tables of 2^`sizes` buckets (if none is given, of about as many buckets
    /// as keys, half and twice that), measures costs, and gives advice.
    pub fn new(
        title: String,
        keys: &Keys,
        functions: &[Box<dyn HashFunction>],
        sizes: &[u32],
        weights: Weights,
    ) -> Self {
        /// The number of buckets, which are 8-byte pointers, in a cache line.
        const ON_A_LINE: u64 = 8;
        let sizes = if sizes.is_empty() { usual_sizes(keys.len()) } else { sizes.to_vec() };
        let sample: Keys = keys.iter().step_by(keys.len().div_ceil(SAMPLE)).collect();
        let hash_ns = cost::of_hashing(functions, &sample, sizes[0]);
        let probe = |entries| weights.probe_ns.unwrap_or_else(|| cost::of_probing(entries));
        let probe_ns = probe(keys.len() as u64);
        let heads: Vec<(u32, f64)> = sizes.iter().map(|bits| (*bits, probe((1 << bits) / ON_A_LINE))).collect();
        let tables: Vec<_> = functions
            .iter()
            .map(Box::as_ref)
            .zip(hash_ns)
            .flat_map(|(function, hash_ns)| {
                heads.iter().map(move |&(bits, head_ns)| (function, hash_ns, bits, head_ns))
            })
            .collect();
        let row = |(function, hash_ns, bits, head_ns): (&dyn HashFunction, f64, u32, f64)| {
            let histogram = Histogram::of(function, keys, bits);
            let probes = histogram.probes(weights.hit_rate);
            Row {
                function: function.name(),
                bits,
                empty: histogram.empty(),
                largest: histogram.largest(),
                probes_per_hit: histogram.probes_per_hit(),
                probes_per_miss: histogram.probes_per_miss(),
                probes_per_thousand: probes * 1000.0,
                dispersion: histogram.dispersion(),
                fit: histogram.fit(),
                hash_ns,
                lookup_ns: hash_ns + head_ns + probes * probe_ns,
                histogram,
            }
        };
        let mut rows: Vec<Row> = tables.into_par_iter().map(row).collect();
        rows.sort_by(|one, other| one.bits.cmp(&other.bits).then(one.lookup_ns.total_cmp(&other.lookup_ns)));
        let hasher = foldhash::quality::FixedState::default();
        let distinct: HashSet<u64> = keys.iter().map(|key| hasher.hash_one(key)).collect();
        let (keys, distinct) = (keys.len() as u64, distinct.len() as u64);
        let advice = advice::advise(&rows);
        Self { title, keys, distinct, hit_rate: weights.hit_rate, probe_ns, advice, rows }
    }

    pub fn sizes(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunk_by(|one, other| one.bits == other.bits)
    }

    pub fn advised(&self) -> Option<&Row> {
        let advice = self.advice.as_ref()?;
        self.row(&advice.function, advice.bits)
    }

    /// Returns the row of the recommended size whose lookups visit the most entries.
    pub fn worst(&self) -> Option<&Row> {
        let bits = self.advice.as_ref()?.bits;
        let rows = self.rows.iter().filter(|row| row.bits == bits);
        rows.max_by(|one, other| one.probes_per_miss.total_cmp(&other.probes_per_miss))
    }

    fn row(&self, function: &str, bits: u32) -> Option<&Row> {
        self.rows.iter().find(|row| row.bits == bits && row.function == function)
    }

    /// Returns whether many keys are repeated. Histograms then show repetitions rather than the
    /// quality of functions.
    pub fn has_repeated_keys(&self) -> bool {
        (self.distinct as f64) < 0.9 * self.keys as f64
    }
}

/// Keys on which costs are measured.
const SAMPLE: usize = 4096;

fn usual_sizes(keys: usize) -> Vec<u32> {
    let nearest = (keys as f64).log2().round() as u32;
    let (least, most) = BITS.into_inner();
    let middle = nearest.clamp(least + 1, most - 1);
    vec![middle - 1, middle, middle + 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashing::functions::named;
    use crate::hashing::keys::Key;

    const WEIGHTS: Weights = Weights { hit_rate: 0.9, probe_ns: Some(5.0) };

    #[test]
    fn sizes_are_chosen_by_the_number_of_keys() {
        for (keys, sizes) in [(1, [1, 2, 3]), (1000, [9, 10, 11]), (1 << 14, [13, 14, 15])] {
            let keys: Keys = (0..keys).map(Key::Number).collect();
            let section = Section::new("keys".into(), &keys, &[named("buffer-shift-add")], &[], WEIGHTS);
            assert_eq!(section.rows.iter().map(|row| row.bits).collect::<Vec<_>>(), sizes);
            assert!(section.rows.iter().all(|row| row.histogram.entries == keys.len() as u64));
            assert!(!section.has_repeated_keys());
        }
    }

    #[test]
    fn repeated_keys_are_noticed() {
        let keys: Keys = (0..1000).map(|n| Key::Number(n / 2)).collect();
        let section = Section::new("keys".into(), &keys, &[named("buffer-one-to-one")], &[10], WEIGHTS);
        assert_eq!((section.keys, section.distinct, section.has_repeated_keys()), (1000, 500, true));
    }
}
