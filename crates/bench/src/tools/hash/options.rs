//! The command line of `relativist-bench hash`.

use std::path::PathBuf;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::value_parser;
use serde::Serialize;

use crate::harness::options::parse_count;
use crate::hashing::functions::modern::Fold;
use crate::hashing::functions::{BITS, HashFunction, all};
use crate::hashing::keys::patterns::Pattern;
use crate::hashing::keys::text::{Form, Text};
use crate::hashing::keys::{Source, server};

/// Find the hash function and table size that suit your keys
///
/// Counts all keys into buckets, with every function and several table sizes. Reports how many
/// buckets stay empty, how large the others get, how many entries a lookup visits, how far this
/// deviates from random placement, and the cost of hashing. Ends with a recommendation. The
/// functions are those of Lever, "Linux Kernel Hash Table Behavior" (ALS 2000), textbook functions,
/// and those of current crates. To test your own, implement the trait in the library.
///
/// Keys are the lines of FILE, unless another source is given. Repeated keys count as different
/// entries, so give each key once. All keys are in memory, in 16 bytes and those of their text.
#[derive(Debug, clap::Args, Serialize)]
pub struct Options {
    /// File of keys, one per line; - reads stdin
    #[arg(value_name = "FILE", default_value = "-", conflicts_with_all = ["pattern", "server"])]
    file: PathBuf,

    /// Read keys from a column of a CSV file: its number, from 1, or its name in the first row
    #[arg(long, value_name = "COLUMN", conflicts_with = "record")]
    column: Option<String>,

    /// Read keys from binary records of this number of bytes
    #[arg(long, value_name = "BYTES", value_parser = value_parser!(u32).range(1..=1 << 20))]
    record: Option<u32>,

    /// Parse keys as numbers or pairs of numbers: in decimal, or in hexadecimal after 0x. Records
    /// hold little-endian numbers; 16 bytes are a pair
    #[arg(long)]
    numbers: bool,

    /// Generate N keys: sequential:N, stride:N:STEP, powers:N, pointers:N:ALIGNMENT, random:N, or
    /// those of a kernel's caches: pages:N, inodes:N, or blocks:N:SHORTEST, where at least SHORTEST
    /// blocks of each block group are cached
    #[arg(long, value_delimiter = ',', conflicts_with = "server")]
    pattern: Vec<Pattern>,

    /// Read the keys of a running memcached server
    #[arg(long, value_name = "HOST:PORT")]
    server: Option<String>,

    /// Read at most this number of keys
    #[arg(long, value_name = "KEYS", value_parser = parse_count)]
    max_keys: Option<u64>,

    /// Functions to test [default: all]
    #[arg(long = "function", value_name = "FUNCTION", value_delimiter = ',', value_parser = PossibleValuesParser::new(names()))]
    chosen: Vec<String>,

    /// How a 64-bit hash selects the bucket
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Fold::Low])]
    fold: Vec<Fold>,

    /// Table sizes, powers of two such as 16384 or 2^14 [default: about as many buckets as keys,
    /// half and twice that]
    #[arg(long, value_delimiter = ',', value_parser = parse_bits)]
    pub(super) sizes: Vec<u32>,

    /// Share of lookups that hit
    #[arg(long, default_value_t = 0.9, value_parser = parse_share)]
    pub(super) hit_rate: f64,

    /// Nanoseconds to access an entry [default: measured by a random walk through memory of the
    /// table's size]
    #[arg(long, value_name = "NS", value_parser = parse_nanoseconds)]
    pub(super) probe_ns: Option<f64>,

    /// Write all results, the command line, versions, machine and parameters to this file; - writes
    /// to stdout, and moves the tables to stderr
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(super) json: Option<PathBuf>,
}

/// A set of keys to study.
pub(super) struct Input {
    pub(super) title: String,
    pub(super) source: Box<dyn Source>,
}

impl Options {
    /// Returns the selected functions.
    pub(super) fn functions(&self) -> Vec<Box<dyn HashFunction>> {
        let mut functions = all(&self.fold);
        if !self.chosen.is_empty() {
            functions.retain(|function| self.chosen.iter().any(|chosen| *chosen == base(&function.name())));
        }
        functions
    }

    /// Returns the selected sets of keys.
    pub(super) fn inputs(&self) -> Result<Vec<Input>> {
        if !self.pattern.is_empty() {
            let input = |pattern: &Pattern| Input { title: pattern.to_string(), source: Box::new(pattern.source()) };
            return Ok(self.pattern.iter().map(input).collect());
        }
        let (title, source): (String, Box<dyn Source>) = match &self.server {
            Some(address) => (format!("server at {address}"), Box::new(server::dump(address)?)),
            None => {
                let form = match (&self.column, self.record) {
                    (Some(column), _) => Form::Column(column.clone()),
                    (None, Some(width)) => Form::Records(width as usize),
                    (None, None) => Form::Lines,
                };
                (self.file.display().to_string(), Box::new(Text::open(&self.file, &form, self.numbers)?))
            }
        };
        Ok(vec![Input { title, source }])
    }

    pub(super) fn max_keys(&self) -> usize {
        self.max_keys.map_or(usize::MAX, |keys| keys as usize)
    }
}

/// Returns the names of all functions, without their suffixes for the selection of buckets.
fn names() -> Vec<String> {
    all(&[Fold::Low]).iter().map(|function| function.name()).collect()
}

fn base(name: &str) -> &str {
    name.split_once('+').map_or(name, |(base, _)| base)
}

fn parse_bits(text: &str) -> Result<u32, String> {
    let size = parse_count(text)?;
    let bits = size.trailing_zeros();
    if size.is_power_of_two() && BITS.contains(&bits) {
        Ok(bits)
    } else {
        Err(format!("expected a power of two from 2^{} to 2^{}", BITS.start(), BITS.end()))
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a number between 0 and 1".into())
}

fn parse_nanoseconds(text: &str) -> Result<f64, String> {
    let nanoseconds = text.parse().ok().filter(|nanoseconds| (0.0..=1e6).contains(nanoseconds));
    nanoseconds.ok_or_else(|| "expected nanoseconds between 0 and 1000000".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(parse_bits("2^14"), Ok(14));
        assert_eq!(parse_bits("16_384"), Ok(14));
        for text in ["1", "3", "2^31", "0", "x"] {
            assert!(parse_bits(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_lie_between_nothing_and_all() {
        assert_eq!(parse_share("0.5"), Ok(0.5));
        assert!(["-0.1", "1.1", "nan", ""].iter().all(|text| parse_share(text).is_err()));
    }
}
