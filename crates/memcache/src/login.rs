//! The login before the text protocol: a `set` whose value is `user password`. No other command is
//! accepted before it.
//!
//! An unauthenticated client can make the server buffer one line and one login of at most
//! `MAX_LOGIN` bytes.

use memchr::memchr;

use crate::decode::MAX_UNFINISHED_LINE;
use crate::number;
use crate::words::Words;

/// The maximum length of a login's value.
pub(crate) const MAX_LOGIN: u32 = 16384;
/// The decoder waits for at least this many bytes.
const MIN_BYTES: usize = 4;
/// A line that is shorter than this, with its line end, cannot be a login.
const MIN_LINE: usize = 6;
const LINE_END: &[u8] = b"\r\n";

/// Finds logins in the bytes of a connection that has not authenticated yet.
#[derive(Clone, Debug, Default)]
pub struct LoginDecoder {
    /// The length of the value whose line was consumed.
    pending: Option<usize>,
}

/// The result of [`LoginDecoder::decode`]. The caller drops the consumed bytes before the next
/// call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Login<'b> {
    /// A login to be checked by the server.
    Attempt {
        /// The number of consumed bytes.
        consumed: usize,
        /// The user's name.
        user: &'b [u8],
        /// The user's password.
        password: &'b [u8],
    },
    /// A request that is not a valid login. The server answers it with `reply`.
    Refuse {
        /// The number of consumed bytes.
        consumed: usize,
        /// The error line, with its CR LF.
        reply: &'static [u8],
    },
    /// The request is incomplete: the decoder needs more bytes.
    Incomplete {
        /// The number of consumed bytes.
        consumed: usize,
    },
    /// The server must close the connection.
    Close,
}

impl LoginDecoder {
    /// Decodes the request that `input` begins with. Never panics, and allocates nothing.
    #[must_use]
    pub fn decode<'b>(&mut self, input: &'b [u8]) -> Login<'b> {
        if let Some(length) = self.pending {
            return self.value(input, 0, length);
        }
        if input.len() < MIN_BYTES {
            return Login::Incomplete { consumed: 0 };
        }
        let line = match memchr(b'\n', input) {
            None if input.len() > MAX_UNFINISHED_LINE => return Login::Close,
            None => return Login::Incomplete { consumed: 0 },
            Some(end) => end + 1,
        };
        if line < MIN_LINE {
            return Login::Close;
        }
        match value_length(&input[..line]) {
            None => Login::Refuse { consumed: line, reply: b"CLIENT_ERROR unauthenticated\r\n" },
            Some(length) if length > MAX_LOGIN => {
                Login::Refuse { consumed: line, reply: b"CLIENT_ERROR auth token too long\r\n" }
            }
            Some(length) => self.value(input, line, length as usize),
        }
    }

    /// Decodes the value of `length` bytes that begins at `start`.
    fn value<'b>(&mut self, input: &'b [u8], start: usize, length: usize) -> Login<'b> {
        let consumed = start + length + LINE_END.len();
        let Some(block) = input.get(start..consumed) else {
            self.pending = Some(length);
            return Login::Incomplete { consumed: start };
        };
        self.pending = None;
        let (value, end) = block.split_at(length);
        let space = memchr(b' ', value);
        match space {
            _ if end != LINE_END => Login::Refuse { consumed, reply: b"CLIENT_ERROR bad command line termination\r\n" },
            None => Login::Refuse { consumed, reply: b"CLIENT_ERROR bad authentication token format\r\n" },
            Some(space) => Login::Attempt { consumed, user: &value[..space], password: &value[space + 1..] },
        }
    }
}

/// Returns the length on a line `set KEY FLAGS EXPTIME LENGTH`. Ignores the key, the flags and the
/// expiry.
fn value_length(line: &[u8]) -> Option<u32> {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let mut words = Words::new(text.strip_suffix(b"\r").unwrap_or(text), 6);
    if words.next()? != b"set" {
        return None;
    }
    number::unsigned_32(words.nth(3)?)
}
