//! Why a server does not start.

use std::error::Error;
use std::fmt;
use std::io;

/// Why a server does not start, or has stopped unasked.
#[derive(Debug)]
pub enum StartError {
    /// The options contradict each other.
    Usage(String),
    /// There is no user of this name.
    NoSuchUser(String),
    /// The operating system refused something: a description, and the error.
    System(String, io::Error),
    /// The system's time is past the last second that the clock can show.
    TooLate,
    /// There are no addresses, or there is no memory, for an empty cache.
    NoMemory,
    /// A thread of the server failed.
    Crashed,
}

impl StartError {
    /// Returns the exit status that memcached has for this error, one of those in sysexits.h.
    pub fn exit_status(&self) -> u8 {
        const EX_USAGE: u8 = 64;
        const EX_NOUSER: u8 = 67;
        const EX_SOFTWARE: u8 = 70;
        const EX_OSERR: u8 = 71;
        match self {
            StartError::Usage(_) => EX_USAGE,
            StartError::NoSuchUser(_) => EX_NOUSER,
            StartError::System(..) | StartError::TooLate | StartError::NoMemory => EX_OSERR,
            StartError::Crashed => EX_SOFTWARE,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Usage(problem) => f.write_str(problem),
            StartError::NoSuchUser(name) => write!(f, "there is no user {name:?} to become (-u)"),
            StartError::System(what, why) => write!(f, "{what}: {why}"),
            StartError::TooLate => f.write_str(
                "the system's time is too late: the server counts Unix seconds in 32 bits, until 2106-02-07",
            ),
            StartError::NoMemory => f.write_str(
                "there is no memory for an empty cache: use a smaller -m, or allow more virtual memory (ulimit -v)",
            ),
            StartError::Crashed => f.write_str("a thread of the server failed"),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            StartError::System(_, why) => Some(why),
            _ => None,
        }
    }
}
