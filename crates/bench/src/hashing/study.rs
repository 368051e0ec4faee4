//! Counts keys into tables, with every function and every size, in one pass over the keys.

use anyhow::Result;
use cardinality_estimator::CardinalityEstimator;
use indicatif::ProgressBar;
use rayon::prelude::*;

use super::functions::{BITS, HashFunction};
use super::histogram::Histogram;
use super::keys::{Keys, Source};

/// Keys that are read before any is counted. If the stream ends within these, the number of keys is
/// known when the table sizes are chosen.
const HEAD: usize = if cfg!(test) { 1 << 13 } else { 1 << 20 };
/// Keys that are counted at a time.
const BATCH: usize = if cfg!(test) { 1 << 10 } else { 1 << 16 };
/// Keys on which costs are measured.
const SAMPLE: usize = 4096;

/// The results of a stream of keys.
pub struct Studied<'f> {
    /// The number of keys.
    pub keys: u64,
    /// The estimated number of distinct keys.
    pub distinct: u64,
    /// A sample of the first million keys, evenly spaced.
    pub sample: Keys,
    /// The results for each function and size.
    pub tables: Vec<Table<'f>>,
}

/// A function with a size.
pub struct Table<'f> {
    /// The hash function.
    pub function: &'f dyn HashFunction,
    /// The binary logarithm of the number of buckets.
    pub bits: u32,
    /// The sizes of the buckets.
    pub histogram: Histogram,
}

/// The counters of a table, while keys are counted.
struct Counts<'f> {
    function: &'f dyn HashFunction,
    bits: u32,
    counts: Vec<u32>,
}

/// Counts all keys of `source` into tables of 2^`bits` buckets, for each function and each of
/// `sizes`. If `sizes` is empty, the sizes are about the number of keys, half of it, and twice it.
///
/// The counters need four bytes per bucket, function and size. At most a million keys are in memory
/// at a time. The tables are divided among all CPUs, which count while the next keys are read.
/// Returns `None` if there are no keys.
///
/// # Errors
/// When the keys can't be read, or when a size must be chosen and the number of keys is unknown.
pub fn study<'f>(
    source: &mut dyn Source,
    functions: &'f [Box<dyn HashFunction>],
    sizes: &[u32],
    bar: &ProgressBar,
) -> Result<Option<Studied<'f>>> {
    let mut present = Keys::default();
    let mut more = source.fill(&mut present, HEAD)?;
    if present.is_empty() {
        return Ok(None);
    }
    let sizes = if sizes.is_empty() { usual_sizes(expected(source, present.len(), more)?) } else { sizes.to_vec() };
    let mut tables: Vec<Counts<'_>> =
        functions.iter().flat_map(|function| sizes.iter().map(|bits| Counts::new(function.as_ref(), *bits))).collect();
    let step = present.len().div_ceil(SAMPLE);
    let sample = present.iter().step_by(step).collect();
    let mut distinct = CardinalityEstimator::<u64>::new();
    let (mut keys, mut next) = (0, Keys::default());
    while !present.is_empty() {
        keys += present.len() as u64;
        let (present_keys, next_keys) = (&present, &mut next);
        let (_, read) = rayon::join(
            || tables.par_iter_mut().for_each(|table| table.count(present_keys)),
            || {
                estimate(&mut distinct, present_keys);
                if more { source.fill(next_keys, BATCH) } else { Ok(false) }
            },
        );
        more = read?;
        std::mem::swap(&mut present, &mut next);
        next.clear();
        bar.set_message(format!("{keys} keys"));
        if let Some(share) = source.share() {
            bar.set_position((share * bar.length().unwrap_or(0) as f64) as u64);
        }
    }
    let tables = tables.into_par_iter().map(Counts::finish).collect();
    Ok(Some(Studied { keys, distinct: distinct.estimate() as u64, sample, tables }))
}

fn estimate(distinct: &mut CardinalityEstimator<u64>, keys: &Keys) {
    use std::hash::BuildHasher;
    let state = foldhash::quality::FixedState::default();
    keys.iter().for_each(|key| distinct.insert_hash(state.hash_one(key)));
}

/// Estimates the number of keys from the first ones.
fn expected(source: &dyn Source, so_far: usize, more: bool) -> Result<f64> {
    match source.share().filter(|share| *share > 0.0) {
        _ if !more => Ok(so_far as f64),
        Some(share) => Ok(so_far as f64 / share.min(1.0)),
        None => anyhow::bail!("the number of keys is unknown, but above {so_far}: give --sizes"),
    }
}

fn usual_sizes(keys: f64) -> Vec<u32> {
    let nearest = keys.log2().round() as u32;
    let (least, most) = BITS.into_inner();
    let middle = nearest.clamp(least + 1, most - 1);
    vec![middle - 1, middle, middle + 1]
}

impl<'f> Counts<'f> {
    fn new(function: &'f dyn HashFunction, bits: u32) -> Self {
        Self { function, bits, counts: vec![0; function.buckets(bits)] }
    }

    fn count(&mut self, keys: &Keys) {
        self.function.count(keys, self.bits, &mut self.counts);
    }

    fn finish(self) -> Table<'f> {
        Table { function: self.function, bits: self.bits, histogram: Histogram::from_counts(&self.counts) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashing::functions::lever::BufferCache;
    use crate::hashing::keys::patterns::Pattern;

    fn functions() -> Vec<Box<dyn HashFunction>> {
        vec![Box::new(BufferCache::OneToOne), Box::new(BufferCache::ShiftAdd)]
    }

    fn studied<'f>(pattern: Pattern, functions: &'f [Box<dyn HashFunction>], sizes: &[u32]) -> Studied<'f> {
        study(&mut pattern.source(), functions, sizes, &ProgressBar::hidden()).unwrap().unwrap()
    }

    #[test]
    fn every_key_is_in_every_table() {
        let functions = functions();
        // More keys than `HEAD`, and not a multiple of `BATCH`.
        let keys = (HEAD + 3 * BATCH + 7) as u64;
        let studied = studied(Pattern::blocks(keys, 12), &functions, &[10, 16]);
        assert_eq!((studied.keys, studied.tables.len(), studied.sample.len()), (keys, 4, SAMPLE));
        for table in &studied.tables {
            assert_eq!((table.histogram.entries, table.histogram.buckets), (keys, 1 << table.bits));
        }
    }

    #[test]
    fn counting_in_pieces_is_counting_at_once() {
        let functions = functions();
        let pattern = Pattern::pages((HEAD + BATCH) as u64);
        let studied = studied(pattern, &functions, &[12]);
        let mut keys = Keys::default();
        pattern.source().fill(&mut keys, usize::MAX).unwrap();
        for table in &studied.tables {
            assert_eq!(table.histogram, Histogram::of(table.function, &keys, 12));
        }
    }

    #[test]
    fn sizes_are_chosen_by_the_number_of_keys() {
        let functions = functions();
        for (keys, sizes) in [(1, [1, 2, 3]), (1000, [9, 10, 11]), ((HEAD * 2) as u64, [13, 14, 15])] {
            let studied = studied(Pattern::sequential(keys), &functions[..1], &[]);
            assert_eq!(studied.tables.iter().map(|table| table.bits).collect::<Vec<_>>(), sizes, "{keys} keys");
        }
    }

    #[test]
    fn repeated_keys_are_noticed() {
        struct Twice(u64);
        impl Source for Twice {
            fn next(&mut self, keys: &mut Keys) -> Result<bool> {
                self.0 += 1;
                keys.push(crate::hashing::keys::Key::Number(self.0 / 2));
                Ok(self.0 < 100_000)
            }
        }
        let functions = functions();
        let studied = study(&mut Twice(0), &functions, &[10], &ProgressBar::hidden()).unwrap().unwrap();
        assert_eq!(studied.keys, 100_000);
        assert!((47_000..53_000).contains(&studied.distinct), "{}", studied.distinct);
    }
}
