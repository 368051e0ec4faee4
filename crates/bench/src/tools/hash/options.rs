//! The command line of `relativist-bench hash`.

use std::path::PathBuf;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::value_parser;
use serde::Serialize;

use crate::harness::options::{parse_count, spell};
use crate::hashing::functions::modern::Fold;
use crate::hashing::functions::{BITS, HashFunction, all};
use crate::hashing::keys::files::{Cache, Files};
use crate::hashing::keys::patterns::Pattern;
use crate::hashing::keys::text::{Form, Text};
use crate::hashing::keys::{Keys, Source, server};

/// Find the hash function and table size that suit your keys
///
/// Counts all keys into buckets, with every function and several table sizes. Reports how many
/// buckets stay empty, how large the others get, how many entries a lookup visits, how far this
/// deviates from random placement, and the cost of hashing. Ends with a recommendation. The
/// functions are those of Lever, "Linux Kernel Hash Table Behavior" (ALS 2000), textbook functions,
/// and those of current crates. To test your own, implement the trait in the library.
///
/// Keys are the lines of FILE, unless another source is given. Repeated keys count as different
/// entries, so give each key once. Memory use depends on the tables (4 bytes per bucket, function
/// and size), not on the number of keys.
#[derive(Debug, clap::Args, Serialize)]
pub struct Options {
    /// File of keys, one per line; - reads stdin
    #[arg(value_name = "FILE", default_value = "-", conflicts_with_all = ["files", "pattern", "server"])]
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

    /// Use the keys that a kernel would have for the files below this directory, for each of the
    /// paper's caches
    #[arg(long, value_name = "DIR", conflicts_with_all = ["pattern", "server"])]
    files: Option<PathBuf>,

    /// Caches whose keys --files uses
    #[arg(long = "cache", value_enum, value_delimiter = ',',
          default_values_t = [Cache::Dentry, Cache::Inode, Cache::Page, Cache::Buffer])]
    caches: Vec<Cache>,

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

    /// Functions to test [default: all; with --files, all but those of the paper for other caches]
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

/// A set of keys to study, and the functions for these keys, if they differ from the selected ones.
pub(super) struct Input {
    pub(super) title: String,
    pub(super) source: Box<dyn Source>,
    pub(super) functions: Option<Vec<Box<dyn HashFunction>>>,
}

impl Options {
    /// Returns the selected functions.
    pub(super) fn functions(&self) -> Result<Vec<Box<dyn HashFunction>>> {
        let mut functions = all(&self.fold);
        if !self.chosen.is_empty() {
            functions.retain(|function| self.chosen.iter().any(|chosen| *chosen == base(&function.name())));
        }
        Ok(functions)
    }

    /// Returns the selected sets of keys.
    pub(super) fn inputs(&self) -> Result<Vec<Input>> {
        if let Some(directory) = &self.files {
            let input = |cache: &Cache| -> Result<Input> {
                // The directory is walked twice: the number of keys determines the table sizes, and
                // the second walk is fast.
                let keys = count(&mut Files::below(directory, *cache)?)?;
                let source = limited(Box::new(Files::below(directory, *cache)?), keys);
                let title = format!("{} cache of {}", spell(cache), directory.display());
                let functions = self.chosen.is_empty().then(|| self.functions_of(*cache)).transpose()?;
                Ok(Input { title, source, functions })
            };
            return self.caches.iter().map(input).collect();
        }
        if !self.pattern.is_empty() {
            let input = |pattern: &Pattern| Input {
                title: pattern.to_string(),
                source: Box::new(pattern.source()),
                functions: None,
            };
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
        Ok(vec![Input { title, source, functions: None }])
    }

    /// Returns the paper's functions for this cache, and the functions for any keys.
    fn functions_of(&self, cache: Cache) -> Result<Vec<Box<dyn HashFunction>>> {
        let prefix = |cache: &Cache| format!("{}-", spell(cache));
        let others =
            [Cache::Page, Cache::Buffer, Cache::Dentry, Cache::Inode].into_iter().filter(|other| *other != cache);
        let others: Vec<String> = others.map(|other| prefix(&other)).collect();
        let mut functions = self.functions()?;
        functions.retain(|function| !others.iter().any(|other| function.name().starts_with(other)));
        Ok(functions)
    }

    /// Limits `source` to the maximum number of keys.
    pub(super) fn limited(&self, source: Box<dyn Source>) -> Box<dyn Source> {
        match self.max_keys {
            Some(max_keys) => limited(source, max_keys),
            None => source,
        }
    }
}

fn limited(source: Box<dyn Source>, max_keys: u64) -> Box<dyn Source> {
    Box::new(Limited { source, max_keys, left: max_keys })
}

fn count(source: &mut dyn Source) -> Result<u64> {
    const AT_A_TIME: usize = 1 << 12;
    let (mut count, mut keys, mut more) = (0, Keys::default(), true);
    while more {
        more = source.fill(&mut keys, AT_A_TIME)?;
        count += keys.len() as u64;
        keys.clear();
    }
    Ok(count)
}

struct Limited {
    source: Box<dyn Source>,
    max_keys: u64,
    left: u64,
}

impl Source for Limited {
    fn next(&mut self, keys: &mut Keys) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        self.source.next(keys)
    }

    fn share(&self) -> Option<f64> {
        let own = (self.max_keys - self.left) as f64 / self.max_keys.max(1) as f64;
        Some(self.source.share().map_or(own, |share| share.max(own)))
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
