//! Messages to the operator, on stderr.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};

/// From which verbosity (the number of `-v`) on a message is wanted.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Level {
    /// Always: the server does something else than it was told, or cannot go on.
    Warning = 0,
    /// `-v`: a client was refused or lost.
    Trouble = 1,
    /// `-vv`: connections come and go.
    Connection = 2,
    /// `-vvv`: what the server itself does.
    Internal = 3,
}

/// Writes messages up to a level that can be changed at any time.
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

    /// Writes a message if it is wanted.
    pub fn say(&self, level: Level, message: fmt::Arguments<'_>) {
        if level as u8 <= self.verbosity() {
            // A stderr that is gone is no reason to stop serving, and there is nobody else to tell.
            let _ = writeln!(io::stderr().lock(), "relativistd: {message}");
        }
    }
}
