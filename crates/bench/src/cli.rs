//! The command line: which module runs which subcommand.

use clap::{Parser, Subcommand};

use crate::tools;
use relativist_check::interruption::Ending;
#[cfg(target_os = "linux")]
use relativist_check::supervisor;

/// Measures the relativistic hash table, its RCU, the server built on it, and their competitors.
///
/// Except for servers, all candidates of a run live in one process and use one allocator and one
/// hash function. They are measured in interleaved rounds, in an order that changes from round to
/// round. Medians are over rounds; ratios are taken within a round. Tables on stdout are Markdown.
/// --json keeps every sample with the command line, the versions and the machine. Progress and
/// warnings go to stderr.
///
/// On Ctrl-C or SIGTERM, load and serving finish the current measurement, report the
/// results so far, and exit. mirror, which runs until then, reports its results. A second signal
/// ends them at once. If an option that takes one value is given twice, the last one counts.
///
/// For reliable numbers, build with --release, run nothing else on the machine, and use at most as
/// many threads as cores. Thread i is pinned to the i-th allowed CPU if there are enough CPUs. scc
/// recommends AVX2 on x86-64: build with RUSTFLAGS='-C target-feature=+avx2' if the CPU has it.
#[derive(Debug, Parser)]
#[command(name = "relativist-bench", version, max_term_width = 100, args_override_self = true, after_help = EXIT_STATUS)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_STATUS: &str = "\
Exit status:
  0    the run is complete
  1    an error or a wrong result, or serving is complete and a target was missed,
       or mirror has found differences
  2    wrong options
  130  SIGINT (Ctrl-C) ended the run early; load and serving report what they have
  143  SIGTERM ended the run early, in the same way";

#[derive(Debug, Subcommand)]
enum Command {
    Compare(Box<tools::compare::Args>),
    Plot(tools::compare::plot::Args),
    Hash(tools::hash::Options),
    Replay(tools::replay::Args),
    #[cfg(target_os = "linux")]
    Load(tools::load::Args),
    #[cfg(target_os = "linux")]
    Serving(tools::serving::Args),
    #[cfg(target_os = "linux")]
    Mirror(tools::mirror::Args),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Supervise(supervisor::Args),
    #[command(hide = true)]
    CompareChild(tools::compare::memory::ChildArgs),
}

/// Runs the subcommand.
///
/// # Errors
/// A wrong result, impossible options, or a file that cannot be read or written.
pub fn run(cli: Cli) -> anyhow::Result<Ending> {
    match cli.command {
        #[cfg(target_os = "linux")]
        Command::Load(args) => return tools::load::run(&args),
        #[cfg(target_os = "linux")]
        Command::Serving(args) => return tools::serving::run(&args),
        #[cfg(target_os = "linux")]
        Command::Mirror(args) => return tools::mirror::run(&args),
        Command::Compare(args) => tools::compare::run(&args),
        Command::Plot(args) => tools::compare::plot::run(&args),
        Command::Hash(args) => tools::hash::run(&args),
        Command::Replay(args) => tools::replay::run(&args),
        #[cfg(target_os = "linux")]
        Command::Supervise(args) => supervisor::run(&args),
        Command::CompareChild(args) => tools::compare::memory::run_child(&args),
    }?;
    Ok(Ending::Complete)
}
