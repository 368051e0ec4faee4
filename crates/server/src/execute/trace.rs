//! Requests and replies in the log (`-vv`): lines that begin with `<` or `>` and the number of the
//! connection, as in memcached. The line of a request has the command line, or name and key. The
//! line of a reply has its first line. Values and passwords are never logged. Neither is input that
//! is not a valid command, because it could be a misframed value.

use super::{Executor, Replies, Session};
use crate::observability::log::Level;
use relativist_memcache::binary::{self as packets, Opcode, REPLY_MAGIC, Request, reply};
use relativist_memcache::{Decoded, Decoder, RequestError};
use std::fmt;

/// Maximum length of a logged line; longer ones are cut off.
const MAX_TEXT: usize = 512;

/// The log line for text that `decoder` is about to decode: the command line, if the text is a
/// valid command. The line does not show other input, nor the rest of a refused command: these may
/// be values.
pub fn of_text(decoder: &Decoder, input: &[u8]) -> Option<String> {
    if decoder.is_skipping() {
        return None;
    }
    match decoder.clone().decode(input) {
        Decoded::Incomplete { .. } => None,
        Decoded::Command { .. } | Decoded::TooLarge { .. } => Some(of_line(input)),
        Decoded::Reject { rejection, .. } if rejection.error != RequestError::UnknownCommand => Some(of_line(input)),
        Decoded::Reject { .. } | Decoded::Close => Some("(not a command)".into()),
    }
}

/// The first line of a command.
pub fn of_line(front: &[u8]) -> String {
    first_line(front).to_string()
}

/// The log line for a packet that `decoder` is about to decode.
pub fn of_packet(decoder: &packets::Decoder, input: &[u8], is_authenticated: bool) -> Option<String> {
    if decoder.is_skipping() {
        return None;
    }
    match decoder.clone().decode(input, is_authenticated) {
        packets::Decoded::Incomplete { .. } => None,
        packets::Decoded::Request { request, .. } => Some(of_request(&request)),
        packets::Decoded::TooLarge { .. } => Some("(a request that is too large)".into()),
        packets::Decoded::Reject { .. } | packets::Decoded::Close => Some("(not a request)".into()),
    }
}

/// The name of a request, and its key.
pub fn of_request(request: &Request<'_>) -> String {
    let Request { opcode, is_quiet, key, .. } = request;
    // The field for the mechanism may hold a password.
    let is_login = matches!(opcode, Opcode::SaslAuth | Opcode::SaslStep);
    let is_mechanism = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'-';
    let key = if is_login && !key.iter().all(is_mechanism) { b"?" } else { *key };
    format!("{opcode:?}{} {}", if *is_quiet { " quietly" } else { "" }, key.escape_ascii())
}

/// The length of replies at some moment.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    bytes: usize,
    length: usize,
}

impl Extent {
    /// The current length of `replies`.
    pub fn of(replies: &Replies) -> Extent {
        Extent { bytes: replies.bytes.len(), length: replies.len() }
    }
}

impl Executor<'_> {
    /// Whether requests and replies are logged.
    pub fn is_traced(&self) -> bool {
        self.is_traced
    }

    /// Logs the request, if it may be logged, and the replies added since `before`.
    #[cold]
    pub fn trace_command(&self, session: &Session, request: Option<String>, replies: &Replies, before: Extent) {
        let log = &self.shared.log;
        if let Some(request) = request {
            log.write(Level::Connection, format_args!("<{} {request}", session.id));
        }
        let reply = LoggedReply { front: &replies.bytes[before.bytes..], length: replies.len() - before.length };
        if reply.length > 0 {
            log.write(Level::Connection, format_args!(">{} {reply}", session.id));
        }
    }
}

struct LoggedReply<'b> {
    front: &'b [u8],
    /// Bytes of the whole reply.
    length: usize,
}

impl fmt::Display for LoggedReply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = match self.front {
            [REPLY_MAGIC, ..] => {
                let (status, length) = reply::status_and_length(self.front).unwrap_or_default();
                write!(f, "status {status:#06x}")?;
                length
            }
            _ => {
                let line = first_line(self.front);
                // The reply to `incr` is a value.
                if line.0.iter().all(u8::is_ascii_digit) {
                    f.write_str("a number")?
                } else {
                    line.fmt(f)?
                }
                line.0.len() + b"\r\n".len()
            }
        };
        if self.length > shown { write!(f, " ({} bytes in all)", self.length) } else { Ok(()) }
    }
}

struct Line<'b>(&'b [u8]);

fn first_line(bytes: &[u8]) -> Line<'_> {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Line(line.strip_suffix(b"\r").unwrap_or(line))
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.0.len() > MAX_TEXT { "..." } else { "" };
        write!(f, "{}{more}", self.0[..self.0.len().min(MAX_TEXT)].escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relativist_memcache::Limits;

    fn text(input: &[u8]) -> Option<String> {
        of_text(&Decoder::new(Limits::default()), input)
    }

    fn packet(input: &[u8]) -> Option<String> {
        of_packet(&packets::Decoder::new(Limits::default()), input, true)
    }

    #[test]
    fn requests_are_logged_by_their_line() {
        let line = |input: &[u8]| text(input).unwrap();
        assert_eq!(line(b"get a b\r\nget c\r\n"), "get a b");
        assert_eq!(line(b"set a 0 0 6\r\nsecret\r\n"), "set a 0 0 6");
        assert_eq!(line(b"set a 0 0 x\r\nsecret\r\n"), "set a 0 0 x");
        assert_eq!(line(b"get \x1b[31m\r\n"), "get \\x1b[31m");
        let keys = " key".repeat(MAX_TEXT);
        assert_eq!(line(format!("get{keys}\r\n").as_bytes()), format!("get{}...", &keys[..MAX_TEXT - 3]));
        let get = b"\x80\x0c\0\x03\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0key";
        let login = b"\x80\x21\0\x05\0\0\0\0\0\0\0\x11\0\0\0\0\0\0\0\0\0\0\0\0PLAIN\0user\0secret";
        assert_eq!([&get[..], login].map(|input| packet(input).unwrap()), ["GetKey key", "SaslAuth PLAIN"]);
        assert_eq!([text(b"get a"), packet(&get[..26])], [None, None], "there is more to come");
    }

    #[test]
    fn input_that_is_not_a_command_is_not_logged() {
        for input in [&b"secret\r\n"[..], b"my secret noreply\r\n", b"Secret\r\n", b"\x80secret\r\n"] {
            assert_eq!(text(input).unwrap(), "(not a command)");
        }
        let misplaced = b"\x80\x21\0\x11\0\0\0\0\0\0\0\x11\0\0\0\0\0\0\0\0\0\0\0\0PLAIN\0user\0secret";
        let too_short = b"\x80\x00\0\x11\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0keysecretsecretse";
        let headless = b"secret, which is much longer than a header is";
        assert_eq!(packet(misplaced).unwrap(), "SaslAuth ?");
        assert_eq!([&too_short[..], headless].map(|input| packet(input).unwrap()), ["(not a request)"; 2]);
        let mut decoder = Decoder::new(Limits { max_value: 10 });
        let line = b"set a 0 0 60\r\n";
        assert_eq!(of_text(&decoder, line).unwrap(), "set a 0 0 60");
        assert!(matches!(decoder.decode(line), Decoded::TooLarge { .. }));
        assert_eq!(of_text(&decoder, b"get secret\r\n"), None);
    }

    #[test]
    fn replies_are_logged_by_first_line_and_length() {
        let shown = |front: &[u8], pinned: usize| LoggedReply { front, length: front.len() + pinned }.to_string();
        assert_eq!(shown(b"STORED\r\n", 0), "STORED");
        assert_eq!(shown(b"43\r\n", 0), "a number");
        assert_eq!(shown(b"VALUE a 0 6\r\nsecret\r\nEND\r\n", 0), "VALUE a 0 6 (26 bytes in all)");
        assert_eq!(shown(b"VALUE a 0 6\r\n", 100), "VALUE a 0 6 (113 bytes in all)");
        let missing = b"\x81\x00\0\0\0\0\0\x01\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\0\0Not found";
        assert_eq!(shown(missing, 0), "status 0x0001");
        assert_eq!(shown(&missing.repeat(2), 0), "status 0x0001 (66 bytes in all)");
    }
}
