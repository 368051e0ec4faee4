//! Why the decoder rejects a request, and the error line for the client.

use std::fmt;

use crate::reply;

/// A request that the decoder rejected. The server answers it with [`reply`](Self::reply).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rejection {
    /// What is wrong with the request.
    pub error: RequestError,
    /// Whether to send no reply: the client sent `noreply`, and the protocol honours it for this
    /// error.
    pub noreply: bool,
}

impl Rejection {
    /// Returns a rejection that is answered even if the line ends in `noreply`.
    pub(crate) const fn answered(error: RequestError) -> Self {
        Self { error, noreply: false }
    }

    /// Returns the bytes to send: an error line with its CR LF, or nothing with `noreply`.
    pub const fn reply(&self) -> &'static [u8] {
        if self.noreply { b"" } else { self.error.reply() }
    }
}

/// An error in a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RequestError {
    /// No command has this name.
    UnknownCommand,
    /// The line has too few arguments, a malformed number, or a key over
    /// [`MAX_KEY`](crate::MAX_KEY) bytes.
    BadFormat,
    /// The expiry of `touch`, `gat`, `gats` or `flush_all` is not a 32-bit number.
    InvalidExptime,
    /// The delta of `incr` or `decr` is not an unsigned 64-bit number.
    InvalidDelta,
    /// The value is not followed by CR LF: the announced length is wrong.
    BadDataChunk,
    /// The value is longer than [`Limits::max_value`](crate::Limits::max_value).
    TooLarge,
    /// A meta flag has an unknown letter.
    InvalidFlag,
    /// A meta flag was sent twice.
    DuplicateFlag,
    /// The token of a meta flag is not a number.
    BadToken,
    /// The token of the meta flag `D` is not an unsigned 64-bit number.
    InvalidDeltaToken,
    /// The token of the meta flag `J` is not an unsigned 64-bit number.
    InvalidInitialToken,
    /// A meta command has too many words.
    TooManyFlags,
    /// The key of a meta command with the flag `b` is not base64.
    BadKeyEncoding,
    /// The token of the meta flag `O` is too long.
    OpaqueTooLong,
    /// The mode of an `ms` is unknown.
    InvalidSetMode,
    /// The mode of an `ma` is unknown.
    InvalidArithmeticMode,
    /// The key or a flag of an `ma` is invalid.
    InvalidOrDuplicateFlag,
}

impl RequestError {
    /// Returns the error line for the client, with its CR LF.
    pub const fn reply(self) -> &'static [u8] {
        match self {
            Self::UnknownCommand => reply::ERROR,
            Self::BadFormat => reply::BAD_FORMAT,
            Self::InvalidExptime => reply::INVALID_EXPTIME,
            Self::InvalidDelta => reply::INVALID_DELTA,
            Self::BadDataChunk => reply::BAD_DATA_CHUNK,
            Self::TooLarge => reply::TOO_LARGE,
            Self::InvalidFlag => b"CLIENT_ERROR invalid flag\r\n",
            Self::DuplicateFlag => b"CLIENT_ERROR duplicate flag\r\n",
            Self::BadToken => b"CLIENT_ERROR bad token in command line format\r\n",
            Self::InvalidDeltaToken => b"CLIENT_ERROR invalid numeric delta value\r\n",
            Self::InvalidInitialToken => b"CLIENT_ERROR invalid numeric initial value\r\n",
            Self::TooManyFlags => b"CLIENT_ERROR options flags are too long\r\n",
            Self::BadKeyEncoding => b"CLIENT_ERROR error decoding key\r\n",
            Self::OpaqueTooLong => b"CLIENT_ERROR opaque token too long\r\n",
            Self::InvalidSetMode => b"CLIENT_ERROR invalid mode for ms M token\r\n",
            Self::InvalidArithmeticMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
            Self::InvalidOrDuplicateFlag => b"CLIENT_ERROR invalid or duplicate flag\r\n",
        }
    }
}

impl fmt::Display for RequestError {
    /// Writes the error line without its first word, `CLIENT_ERROR` or `SERVER_ERROR`, and without
    /// its line end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.reply().trim_ascii_end();
        let text =
            line.strip_prefix(b"CLIENT_ERROR ").or(line.strip_prefix(b"SERVER_ERROR ")).unwrap_or(b"unknown command");
        f.write_str(std::str::from_utf8(text).expect("error lines are ASCII"))
    }
}

impl std::error::Error for RequestError {}
