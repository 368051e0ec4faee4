//! The workbench: measures the relativistic hash table, its RCU, the server, and their competitors.
//!
//! Every measurement is a number of *rounds*. A round measures every candidate once, each for the
//! same time, in an order that changes from round to round. So drifts of the machine (clock
//! frequency, other load, page placement) affect all candidates alike. Medians are taken over
//! rounds. Ratios are taken round by round, of numbers measured within about a second.
//!
//! | Module | Holds |
//! |---|---|
//! | `harness` | how things are measured: rounds, threads, samples, reports |
//! | `tables` | the concurrent maps that are compared, each behind an adapter |
//! | `memcached` | load on memcached servers |
//! | [`hashing`] | hash functions, keys, and keys counted into buckets |
//! | `tools` | subcommands for performance engineers |
//! | `papers` | subcommands that reproduce papers |
//! | `cli` | the command line |
//!
//! Modules use only modules above them in this table; `tools` and `papers` do not use each other.

#[cfg(test)]
use relativist_testing as _;

#[cfg(doctest)]
mod book;
mod cli;
mod harness;
pub mod hashing;
#[cfg(target_os = "linux")]
mod memcached;
mod papers;
mod tables;
mod tools;

use std::process::ExitCode;

pub use cli::{Cli, run};

use crate::harness::interruption::Ending;

/// Converts the outcome to the exit status. Writes an error to stderr.
#[must_use]
pub fn conclude(outcome: anyhow::Result<Ending>) -> ExitCode {
    match outcome {
        Ok(ending) => ending.code(),
        Err(error) => {
            eprintln!("relativist-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
