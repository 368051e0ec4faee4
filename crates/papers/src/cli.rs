//! The command line: which module runs which subcommand.

use clap::{Parser, Subcommand};
use relativist_check::interruption::Ending;
#[cfg(target_os = "linux")]
use relativist_check::supervisor;

use crate::{caches, figures, instructions, lever, resize, xkernel};

/// Repeats the measurements of three papers on hash tables, and compares the results with theirs.
///
/// All tables of a run live in one process and use one allocator. They are measured in turns, in an
/// order that changes from round to round. Medians are over rounds; ratios are taken within a
/// round. Tables on stdout are Markdown. --json keeps every sample with the command line, the
/// versions and the machine. Progress and warnings go to stderr.
///
/// On Ctrl-C or SIGTERM, figures finishes the current measurement, reports the results so far, and
/// exits. A second signal ends it at once. If an option that takes one value is given twice, the
/// last one counts.
///
/// For reliable numbers, build with --release, run nothing else on the machine, and use at most as
/// many threads as cores. Thread i is pinned to the i-th allowed CPU if there are enough CPUs.
#[derive(Debug, Parser)]
#[command(name = "relativist-papers", version, max_term_width = 100, args_override_self = true, after_help = EXIT_STATUS)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_STATUS: &str = "\
Exit status:
  0    the run is complete
  1    an error or a wrong result
  2    wrong options
  130  SIGINT (Ctrl-C) ended the run early; figures reports what it has
  143  SIGTERM ended the run early, in the same way";

#[derive(Debug, Subcommand)]
enum Command {
    Figures(figures::Args),
    Resize(resize::Args),
    Instructions(instructions::Args),
    /// Compare the histograms of Lever's paper with those of generated keys of the same kind and
    /// number
    Lever,
    Caches(Box<caches::Args>),
    Xkernel(xkernel::Args),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Supervise(supervisor::Args),
    #[command(hide = true)]
    InstructionsChild(instructions::ChildArgs),
}

/// Runs the subcommand.
///
/// # Errors
/// A wrong result, impossible options, or a file that cannot be read or written.
pub fn run(cli: Cli) -> anyhow::Result<Ending> {
    match cli.command {
        Command::Figures(args) => return figures::run(&args),
        Command::Resize(args) => resize::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Lever => {
            lever::run();
            Ok(())
        }
        Command::Caches(args) => caches::run(&args),
        Command::Xkernel(args) => xkernel::run(&args),
        #[cfg(target_os = "linux")]
        Command::Supervise(args) => supervisor::run(&args),
        Command::InstructionsChild(args) => instructions::run_child(&args),
    }?;
    Ok(Ending::Complete)
}
