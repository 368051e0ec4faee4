//! The command line.

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::interruption::Ending;
use crate::{soak, supervisor};

/// Sends random requests to a memcached server, and compares every reply with a model.
///
/// Clients speak the classic, the meta and the binary protocol on the same keys. They use all
/// commands that store, count, touch, delete, lease and invalidate, with and without CAS values
/// and expiry. Writes end at arbitrary points of requests; clients read slowly, or disconnect in
/// the middle of a value. Each client has keys of its own; the model knows the exact state of these
/// items. All clients also share some keys. For these the model checks that each value was once
/// written, that CAS values differ, and that no increment is lost. From time to time all clients
/// wait while one of them flushes everything.
///
/// An item may be missing only if the server reports its eviction to `watch evictions`. If the
/// server refuses this command or drops lines of the log, the number of missing items must not
/// exceed the number of evictions. A server started by --exec must also keep its memory below 1.05
/// times its limit plus 16 MiB plus the buffers of its connections. During the run, a second
/// process with clients is repeatedly stopped and continued.
///
/// With --hand-over, the started relativistd is replaced again and again by a successor. No
/// connection may be refused, only a server that is replaced may close connections, the successor
/// must have all items as they were, and CAS values must be larger than all before. Both processes
/// must keep to their memory.
///
/// All data on the server is lost. The server has to support CAS and all three protocols, accept
/// about fifty connections, and require no authentication. If it runs with options such as -B, -C,
/// -S, -Y or a small -c, this program reports faults.
///
/// On Ctrl-C or SIGTERM, the run finishes the current batches, and reports what it has done. A
/// second signal ends it at once. If an option that takes one value is given twice, the last one
/// counts.
#[derive(Debug, Parser)]
#[command(name = "relativist-check", version, max_term_width = 100, after_help = EXIT_STATUS)]
#[command(args_override_self = true, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Cli {
    #[command(flatten)]
    soak: Option<soak::Args>,

    #[command(subcommand)]
    internal: Option<Internal>,
}

const EXIT_STATUS: &str = "\
Exit status:
  0    no reply was wrong
  1    a wrong reply, or an error
  2    wrong options
  130  SIGINT (Ctrl-C) ended the run early; no reply until then was wrong
  143  SIGTERM ended the run early, in the same way";

#[derive(Debug, Subcommand)]
enum Internal {
    #[command(hide = true)]
    Supervise(supervisor::Args),
}

/// Runs the command.
///
/// # Errors
/// A wrong reply, impossible options, or a server that cannot be reached.
pub fn run(cli: &Cli) -> Result<Ending> {
    match (&cli.internal, &cli.soak) {
        (Some(Internal::Supervise(args)), _) => supervisor::run(args).map(|()| Ending::Complete),
        (None, Some(args)) => soak::run(args),
        (None, None) => unreachable!("clap requires the options of a run"),
    }
}
