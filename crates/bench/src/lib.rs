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
//! | `shortener` | a program with dashmap, and moved to `LockMap` |
//! | `memcached` | load on memcached servers |
//! | [`hashing`] | hash functions, keys, and keys counted into buckets |
//! | `tools` | the subcommands |
//! | `cli` | the command line |
//!
//! Modules use only modules above them in this table. `relativist-papers` uses the hidden modules,
//! too.

#[cfg(test)]
use relativist_testing as _;

#[cfg(doctest)]
mod book;
mod cli;
#[doc(hidden)]
pub mod harness;
pub mod hashing;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub mod memcached;
mod shortener;
mod tables;
mod tools;

pub use cli::{Cli, run};
