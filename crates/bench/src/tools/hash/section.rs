//! The results for one set of keys.

use indicatif::ProgressBar;
use serde::Serialize;

use super::advice::{self, Advice};
use super::cost;
use crate::hashing::functions::HashFunction;
use crate::hashing::histogram::{Fit, Histogram};
use crate::hashing::study::{Studied, Table};

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
    /// The estimated number of distinct keys.
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
    pub source: &'static str,
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
    /// Returns whether the function is likely to suit other keys too, because it treats these keys as
    /// a random function does. A function whose buckets are more even profits from a pattern.
    pub fn is_robust(&self) -> bool {
        let deviation = (2.0 / self.histogram.buckets as f64).sqrt();
        (self.dispersion - 1.0).abs() < 0.1 + 5.0 * deviation
    }
}

impl Section {
    /// Measures costs, and gives advice.
    pub fn new(
        title: String,
        studied: &Studied<'_>,
        functions: &[Box<dyn HashFunction>],
        weights: Weights,
        bar: &ProgressBar,
    ) -> Self {
        bar.set_message("measuring costs");
        let bits = studied.tables.first().map_or(1, |table| table.bits);
        let hash_ns = cost::of_hashing(functions, &studied.sample, bits);
        let probe = |entries| weights.probe_ns.unwrap_or_else(|| cost::of_probing(entries));
        let probe_ns = probe(studied.keys);
        /// The number of buckets, which are 8-byte pointers, in a cache line.
        const ON_A_LINE: u64 = 8;
        let mut sizes: Vec<u32> = studied.tables.iter().map(|table| table.bits).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let heads: Vec<(u32, f64)> = sizes.iter().map(|bits| (*bits, probe((1 << bits) / ON_A_LINE))).collect();
        let head_ns = |bits| heads.iter().find(|(size, _)| *size == bits).map_or(0.0, |(_, ns)| *ns);
        let number = |table: &Table<'_>| functions.iter().position(|function| function.name() == table.function.name());
        let mut rows: Vec<Row> = studied
            .tables
            .iter()
            .map(|table| {
                let hash_ns = number(table).and_then(|number| hash_ns.get(number).copied()).unwrap_or(0.0);
                let histogram = table.histogram.clone();
                let probes = histogram.probes(weights.hit_rate);
                Row {
                    function: table.function.name(),
                    source: table.function.source(),
                    bits: table.bits,
                    empty: histogram.empty(),
                    largest: histogram.largest(),
                    probes_per_hit: histogram.probes_per_hit(),
                    probes_per_miss: histogram.probes_per_miss(),
                    probes_per_thousand: probes * 1000.0,
                    dispersion: histogram.dispersion(),
                    fit: histogram.fit(),
                    hash_ns,
                    lookup_ns: hash_ns + head_ns(table.bits) + probes * probe_ns,
                    histogram,
                }
            })
            .collect();
        rows.sort_by(|one, other| one.bits.cmp(&other.bits).then(one.lookup_ns.total_cmp(&other.lookup_ns)));
        let Studied { keys, distinct, .. } = *studied;
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
        // A tenth is tolerated, because the estimate may be wrong by a few per cent.
        (self.distinct as f64) < 0.9 * self.keys as f64
    }
}
