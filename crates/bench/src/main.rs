//! `relativist-bench`: measures the relativistic hash table and its RCU against their competitors.

use std::process::ExitCode;

use clap::Parser;
use relativist_bench::{Cli, run};
use relativist_check::interruption::conclude;

/// One allocator for every table and every reclamation scheme.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    conclude(run(Cli::parse()))
}
