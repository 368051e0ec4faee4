//! The workbench: measurements of the relativistic hash table, of its RCU, of the server, and of what they compete with.
//!
//! Every measurement is a number of *rounds*. A round measures every contender once, each for the same time, in an order
//! that changes from round to round, so that whatever drifts on the machine (clock frequency, neighbours, page placement)
//! touches all of them alike. Medians are taken over rounds, and ratios round by round: two numbers are divided only when
//! they were measured within the same second or so.
//!
//! | Module | Holds |
//! |---|---|
//! | [`compare`], [`resize`], [`figures`], [`instructions`], [`rcu`], [`hash`], [`replay`], [`xkernel`], `load`, `serving`, `echo`, `soak` | one subcommand each |
//! | [`tables`] | the tables, each an adapter in a file of its own |
//! | [`entries`] | what tables hold |
//! | [`workers`] | pinned threads that run batches until the time is up |
//! | [`contest`], [`rounds`], [`stats`] | contenders measured in turns, medians and ratios |
//! | [`keys`] | the keys and the order in which they are looked up |
//! | [`latency`] | how long single operations take |
//! | [`machine`], [`report`], [`chart`], [`fonts`] | what was measured on, tables on stdout, samples in JSON, lines as pictures |
//! | [`options`] | options shared by subcommands |

#[cfg(test)]
use relativist_testing as _;

#[cfg(doctest)]
mod book;
pub mod chart;
pub mod compare;
pub mod contest;
#[cfg(target_os = "linux")]
pub mod echo;
pub mod entries;
pub mod figures;
pub mod fonts;
pub mod hash;
pub mod instructions;
pub mod interruption;
pub mod keys;
pub mod latency;
#[cfg(target_os = "linux")]
pub mod load;
pub mod machine;
pub mod options;
pub mod rcu;
pub mod replay;
pub mod report;
pub mod resize;
pub mod rounds;
#[cfg(target_os = "linux")]
pub mod serving;
#[cfg(target_os = "linux")]
pub mod soak;
pub mod stats;
pub mod tables;
pub mod workers;
pub mod xkernel;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::interruption::Ending;

/// Measures the relativistic hash table, its RCU and the server made of it, and what they compete with.
///
/// All contenders of a run live in one process (but servers), use one allocator and one hash function, and are measured in interleaved
/// rounds in a changing order; medians are over rounds, ratios are taken within a round. Tables on stdout are Markdown;
/// --json keeps every sample with the command line, the versions and the machine. Progress and warnings go to stderr.
///
/// On Ctrl-C or SIGTERM, figures, load, serving and soak finish the measurement under way, report
/// what they have, and exit. A second signal ends them at once. If an option that takes one value
/// is given twice, the last one counts.
///
/// For numbers worth keeping: build with --release, leave the machine alone, and keep threads at or below the number of
/// cores. Threads are pinned, thread i to the i-th allowed CPU, as long as there are enough CPUs. scc asks for AVX2 on
/// x86-64: build with RUSTFLAGS='-C target-feature=+avx2' where the CPU has it.
#[derive(Debug, Parser)]
#[command(name = "relativist-bench", version, max_term_width = 100, args_override_self = true, after_help = EXIT_STATUS)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_STATUS: &str = "\
Exit status:
  0    the run is complete
  1    an error or a wrong answer, or serving is complete and a target was missed
  2    wrong options
  130  SIGINT (Ctrl-C) ended the run early; figures, load, serving and soak report what they have
  143  SIGTERM did";

#[derive(Debug, Subcommand)]
enum Command {
    Compare(compare::Args),
    Resize(resize::Args),
    Figures(figures::Args),
    Instructions(instructions::Args),
    Rcu(rcu::Args),
    Hash(hash::Args),
    Replay(replay::Args),
    Xkernel(xkernel::Args),
    #[cfg(target_os = "linux")]
    Load(load::Args),
    #[cfg(target_os = "linux")]
    Echo(echo::Args),
    #[cfg(target_os = "linux")]
    Serving(serving::Args),
    #[cfg(target_os = "linux")]
    Soak(soak::Args),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Supervise(load::supervisor::Args),
    #[command(hide = true)]
    CompareChild(compare::children::Args),
    #[command(hide = true)]
    InstructionsChild(instructions::ChildArgs),
    #[command(hide = true)]
    HashChild(hash::instructions::ChildArgs),
}

/// Runs the subcommand.
///
/// # Errors
/// A lookup that missed, a table that misbehaved otherwise, an option that asks for the impossible, or a file that could
/// not be written.
pub fn run(cli: Cli) -> anyhow::Result<Ending> {
    match cli.command {
        Command::Figures(args) => return figures::run(&args),
        #[cfg(target_os = "linux")]
        Command::Load(args) => return load::run(&args),
        #[cfg(target_os = "linux")]
        Command::Serving(args) => return serving::run(&args),
        #[cfg(target_os = "linux")]
        Command::Soak(args) => return soak::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Resize(args) => resize::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Rcu(args) => rcu::run(&args),
        Command::Hash(args) => hash::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Xkernel(args) => xkernel::run(&args),
        #[cfg(target_os = "linux")]
        Command::Echo(args) => echo::run(&args),
        #[cfg(target_os = "linux")]
        Command::Supervise(args) => load::supervisor::run(&args),
        Command::CompareChild(args) => compare::children::run(&args),
        Command::InstructionsChild(args) => instructions::run_child(&args),
        Command::HashChild(args) => hash::instructions::run_child(&args),
    }?;
    Ok(Ending::Complete)
}

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
