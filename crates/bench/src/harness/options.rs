//! Options that several subcommands share, and the syntax of their values.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// The maximum number of entries of a table.
const MAX_ENTRIES: u64 = 1 << 32;

/// Parses a number of entries: `65536`, `65_536` or `2^16`.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let number = match digits.split_once('^') {
        Some(("2", exponent)) => exponent.parse().ok().and_then(|exponent| 1u64.checked_shl(exponent)),
        Some(_) => None,
        None => digits.parse().ok(),
    };
    let expected = "expected a number such as 65536 or 2^16";
    match number {
        None => Err(expected.into()),
        Some(0) => Err(format!("{expected}, at least 1")),
        Some(number) if number > MAX_ENTRIES => Err(format!("{expected}, at most 2^32")),
        Some(number) => Ok(number),
    }
}

/// Returns the spelling of a value on the command line.
pub fn spell(value: &impl ValueEnum) -> String {
    value.to_possible_value().expect("a value that can be given").get_name().to_owned()
}

#[derive(Clone, Debug, Args)]
pub struct Output {
    /// Write every sample, the command line, versions, machine and parameters to this file; -
    /// writes to stdout, and moves the tables to stderr
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The hash function of every table in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HashFunction {
    /// foldhash's fast variant with a fixed seed: what hashbrown uses by default
    Foldhash,
    /// FxHash: one multiplication, weak low bits
    Fx,
    /// The key itself, for keys that are hashes already
    Identity,
}

impl fmt::Display for HashFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foldhash => "foldhash",
            Self::Fx => "FxHash",
            Self::Identity => "identity",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_in_decimal_and_as_powers_of_two() {
        assert_eq!(parse_count("65536"), Ok(65536));
        assert_eq!(parse_count("65_536"), Ok(65536));
        assert_eq!(parse_count("2^23"), Ok(1 << 23));
        assert_eq!(parse_count("2^32"), Ok(MAX_ENTRIES));
    }

    #[test]
    fn other_counts_are_refused_with_an_explanation() {
        for text in ["", "0", "-1", "3^4", "2^", "2^33", "2^64", "2^999", "1e6", "64k", "4294967297"] {
            let error = parse_count(text).expect_err(text);
            assert!(error.contains("such as 65536 or 2^16"), "{text}: {error}");
        }
    }
}
