//! `relativist-papers`: repeats the measurements of three papers on hash tables.

use std::process::ExitCode;

use clap::Parser;
use relativist_check::interruption::conclude;
use relativist_papers::{Cli, run};

/// One allocator for every table.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    conclude(run(Cli::parse()))
}
