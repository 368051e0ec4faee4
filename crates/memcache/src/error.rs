//! Why a request is refused before it reaches the store, and what the client is told.

use std::fmt;

use crate::reply;

/// A request that was refused by the decoder, to be answered with [`reply`](Self::reply).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rejection {
    /// What is wrong with the request.
    pub error: RequestError,
    /// Whether the client asked for no answer, and the protocol honours that for this error.
    pub noreply: bool,
}

impl Rejection {
    /// A rejection that is answered even if the line ends in `noreply`.
    pub(crate) const fn answered(error: RequestError) -> Self {
        Self { error, noreply: false }
    }

    /// The bytes to send: an error line with its CR LF, or nothing with `noreply`.
    pub const fn reply(&self) -> &'static [u8] {
        if self.noreply { b"" } else { self.error.reply() }
    }
}

/// What can be wrong with a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RequestError {
    /// No command of that name.
    UnknownCommand,
    /// Too few arguments, a malformed number, or a key over [`MAX_KEY`](crate::MAX_KEY) bytes.
    BadFormat,
    /// The expiry of `touch`, `gat`, `gats` or `flush_all` is not a 32-bit number.
    InvalidExptime,
    /// The delta of `incr` or `decr` is not an unsigned 64-bit number.
    InvalidDelta,
    /// The value is not followed by CR LF where its announced length says so.
    BadDataChunk,
    /// The value is longer than [`Limits::max_value`](crate::Limits::max_value).
    TooLarge,
    /// `shutdown` is not enabled.
    ShutdownDisabled,
}

impl RequestError {
    /// The error line that tells the client, with its CR LF.
    pub const fn reply(self) -> &'static [u8] {
        match self {
            Self::UnknownCommand => reply::ERROR,
            Self::BadFormat => reply::BAD_FORMAT,
            Self::InvalidExptime => reply::INVALID_EXPTIME,
            Self::InvalidDelta => reply::INVALID_DELTA,
            Self::BadDataChunk => reply::BAD_DATA_CHUNK,
            Self::TooLarge => reply::TOO_LARGE,
            Self::ShutdownDisabled => reply::SHUTDOWN_DISABLED,
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownCommand => "unknown command",
            Self::BadFormat => "bad command line format",
            Self::InvalidExptime => "invalid exptime argument",
            Self::InvalidDelta => "invalid numeric delta argument",
            Self::BadDataChunk => "bad data chunk",
            Self::TooLarge => "object too large for cache",
            Self::ShutdownDisabled => "shutdown not enabled",
        })
    }
}

impl std::error::Error for RequestError {}
