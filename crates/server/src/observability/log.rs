//! Messages to the operator, by `tracing`: the application decides where they go. The program
//! writes them to stderr ([`to_stderr`]). A library without a subscriber is silent.

use clap::ValueEnum;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use tracing_subscriber::filter::LevelFilter;

/// The format of messages on stderr.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Format {
    /// One line of text per message
    #[default]
    Text,
    /// One JSON object per message
    Json,
}

/// Writes the messages of this process to stderr from now on. A closed stderr does not stop the
/// server.
pub fn to_stderr(format: Format) {
    let builder = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(false)
        .log_internal_errors(false);
    // A subscriber set before stays.
    let _ = match format {
        // The journal records the time of text lines itself.
        Format::Text => builder.without_time().try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// The verbosity (the number of `-v`) from which on a message is logged.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Level {
    /// Always: the server cannot do what it was asked to, or cannot continue.
    Warning = 0,
    /// `-v`: refused and lost connections.
    Trouble = 1,
    /// `-vv`: connections, requests and replies.
    Connection = 2,
    /// `-vvv`: internal events.
    Internal = 3,
}

impl Level {
    fn trace(self, message: fmt::Arguments<'_>) {
        match self {
            Level::Warning => tracing::warn!(target: TARGET, "{message}"),
            Level::Trouble => tracing::info!(target: TARGET, "{message}"),
            Level::Connection => tracing::debug!(target: TARGET, "{message}"),
            Level::Internal => tracing::trace!(target: TARGET, "{message}"),
        }
    }
}

/// The target of all messages.
const TARGET: &str = "relativistd";

/// Logs why the process ends.
pub fn fatal(error: &dyn std::error::Error) {
    tracing::error!(target: TARGET, "{error}");
}

/// Logs a message that does not report a problem, at any verbosity.
pub fn notice(message: &str) {
    tracing::info!(target: TARGET, "{message}");
}

/// The message for a graceful stop.
pub const STOPPING: &str = "Gracefully stopping";

/// Logs messages up to a level that can be changed at any time.
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
        // Relaxed: no other data depends on it. A message concurrent with a change may be logged or
        // not.
        self.verbosity.load(Ordering::Relaxed)
    }

    /// Changes the verbosity.
    pub fn set_verbosity(&self, verbosity: u8) {
        // Relaxed: as above.
        self.verbosity.store(verbosity, Ordering::Relaxed);
    }

    /// Whether messages of this level are logged.
    pub fn wants(&self, level: Level) -> bool {
        level as u8 <= self.verbosity()
    }

    /// Logs a message if its level is enabled.
    pub fn write(&self, level: Level, message: fmt::Arguments<'_>) {
        if self.wants(level) {
            level.trace(message);
        }
    }
}
