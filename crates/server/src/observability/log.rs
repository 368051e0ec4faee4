//! Messages to the operator, by `tracing`: the application decides where they go. The program
//! writes them to stderr ([`to_stderr`]), by a thread of its own as soon as there are clients
//! ([`in_background`]). A library without a subscriber is silent.

mod queue;

use clap::ValueEnum;
use queue::Queue;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;
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

/// The messages that wait to be written to stderr.
static QUEUE: Queue = Queue::new();

/// How long [`flush`] waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes the messages of this process to stderr from now on. A closed stderr does not stop the
/// server.
pub fn to_stderr(format: Format) {
    let builder = tracing_subscriber::fmt()
        .with_writer(|| Stderr)
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

/// Writes messages by a thread of its own from now on, so that no other thread waits for those who
/// read stderr. A fork or the sandbox must come before: they concern only the calling thread.
///
/// # Errors
/// When the operating system refuses a thread.
pub fn in_background() -> io::Result<()> {
    let write = || loop {
        match QUEUE.write_next(&mut io::stderr()) {
            0 => (),
            dropped => Level::Warning.trace(format_args!("{dropped} log messages were lost: stderr was not read")),
        }
    };
    thread::Builder::new().name("log".into()).spawn(write)?;
    QUEUE.open();
    Ok(())
}

/// Waits until all messages were written, or until it is clear that stderr is not read.
pub fn flush() {
    QUEUE.flush(PATIENCE);
}

/// How many messages were lost because stderr was not read.
pub(crate) fn dropped() -> u64 {
    QUEUE.dropped()
}

/// stderr, or the queue in front of it. Each message is one write.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        if QUEUE.push(message) { Ok(message.len()) } else { io::stderr().write(message) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
