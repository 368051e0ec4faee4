//! The workbench: measurements of the relativistic hash table, of its RCU, of the server, and of
//! what they compete with.
//!
//! Every measurement is a number of *rounds*. A round measures every candidate once, each for the
//! same time, in an order that changes from round to round, so that whatever drifts on the machine
//! (clock frequency, neighbours, page placement) touches all of them alike. Medians are taken over
//! rounds, and ratios round by round: two numbers are divided only when they were measured within
//! the same second or so.
//!
//! | Module | Holds |
//! |---|---|
//! | [`harness`] | how things are measured: rounds, threads, samples, reports |
//! | [`tables`] | the concurrent maps that are compared, each behind an adapter |
//! | [`memcached`] | load on memcached servers |
//! | [`hashing`] | hash functions, keys, and keys counted into buckets |
//! | [`tools`] | subcommands for performance engineers |
//! | [`papers`] | subcommands that reproduce papers |
//! | [`cli`] | the command line |
//!
//! Modules use only modules that stand above them in this table.

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
