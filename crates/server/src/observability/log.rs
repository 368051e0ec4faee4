//! Messages to the operator, by `tracing`: whoever runs the server decides where they go. The program has them written to
//! stderr ([`to_stderr`]); a library that nobody listens to is silent.

use clap::ValueEnum;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use tracing_subscriber::filter::LevelFilter;

/// The form of messages on stderr.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Format {
    /// A line of text
    #[default]
    Text,
    /// An object of JSON in a line
    Json,
}

/// Has the messages of this process written to stderr from now on. A stderr that is gone is no reason to stop serving.
pub fn to_stderr(format: Format) {
    let builder = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(false)
        .log_internal_errors(false);
    // Who has set another destination before keeps it.
    let _ = match format {
        // Whoever keeps lines of text keeps the time with them: the journal, for one.
        Format::Text => builder.without_time().try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// From which verbosity (the number of `-v`) on a message is wanted.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Level {
    /// Always: the server does something else than it was told, or cannot go on.
    Warning = 0,
    /// `-v`: a client was refused or lost.
    Trouble = 1,
    /// `-vv`: connections come and go, and what is said on them.
    Connection = 2,
    /// `-vvv`: what the server itself does.
    Internal = 3,
}

impl Level {
    fn tell(self, message: fmt::Arguments<'_>) {
        match self {
            Level::Warning => tracing::warn!(target: TARGET, "{message}"),
            Level::Trouble => tracing::info!(target: TARGET, "{message}"),
            Level::Connection => tracing::debug!(target: TARGET, "{message}"),
            Level::Internal => tracing::trace!(target: TARGET, "{message}"),
        }
    }
}

/// Where messages come from.
const TARGET: &str = "relativistd";

/// Tells why the process ends.
pub fn fatal(error: &dyn std::error::Error) {
    tracing::error!(target: TARGET, "{error}");
}

/// Tells what is not wrong, and wanted at any verbosity.
pub fn notice(message: &str) {
    tracing::info!(target: TARGET, "{message}");
}

/// Said when the server was asked to stop gracefully.
pub const STOPPING: &str = "Gracefully stopping";

/// Tells messages up to a level that can be changed at any time.
#[derive(Debug)]
pub struct Log {
    verbosity: AtomicU8,
}

impl Log {
    /// A log of messages up to `verbosity`.
    pub fn new(verbosity: u8) -> Log {
        Log { verbosity: AtomicU8::new(verbosity) }
    }

    /// The current verbosity.
    pub fn verbosity(&self) -> u8 {
        // Relaxed: stands for itself; a message more or less around a change is fine.
        self.verbosity.load(Ordering::Relaxed)
    }

    /// Changes the verbosity.
    pub fn set_verbosity(&self, verbosity: u8) {
        // Relaxed: as above.
        self.verbosity.store(verbosity, Ordering::Relaxed);
    }

    /// Whether messages of a level are wanted.
    pub fn wants(&self, level: Level) -> bool {
        level as u8 <= self.verbosity()
    }

    /// Tells a message if it is wanted.
    pub fn say(&self, level: Level, message: fmt::Arguments<'_>) {
        if self.wants(level) {
            level.tell(message);
        }
    }
}
