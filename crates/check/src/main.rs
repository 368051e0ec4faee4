//! `relativist-check`: sends random requests to a memcached server, and compares every reply with a
//! model.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    use clap::Parser;
    use relativist_check::{Cli, interruption, run};

    interruption::conclude(run(&Cli::parse()))
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("relativist-check: this program needs Linux");
    ExitCode::FAILURE
}
