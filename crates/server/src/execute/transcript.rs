//! What clients ask and are answered, for the log (`-vv`): lines that begin with `<` or `>` and the number of the connection, as memcached
//! writes them. Of a request it is the line, or the name and the key, of an answer the first line; values are never told.

use super::{Executor, Replies, Session};
use crate::engine::Engine;
use crate::log::Level;
use relativist_memcache::binary::{REPLY_MAGIC, REQUEST_MAGIC, Request, reply};
use std::fmt;

/// Of a longer line the beginning is told.
const LONGEST: usize = 512;

impl<E: Engine> Executor<'_, E> {
    /// Whether the log wants to know what clients say.
    pub fn is_transcribed(&self) -> bool {
        self.is_transcribed
    }

    /// Tells a request that begins with `front`, and what was added to the replies when there were `before` bytes of them.
    #[cold]
    pub fn transcribe(&self, session: &Session, front: &[u8], replies: &Replies, before: Extent) {
        let log = &self.service.log;
        if !front.is_empty() {
            log.say(Level::Connection, format_args!("<{} {}", session.id, Asked(front)));
        }
        if replies.len() > before.length {
            let answer = Answered { front: &replies.bytes[before.bytes..], length: replies.len() - before.length };
            log.say(Level::Connection, format_args!(">{} {answer}", session.id));
        }
    }
}

/// How far replies went.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    bytes: usize,
    length: usize,
}

impl Extent {
    /// How far these go.
    pub fn of(replies: &Replies) -> Extent {
        Extent { bytes: replies.bytes.len(), length: replies.len() }
    }
}

/// The beginning of an input as far as the log may tell it.
pub fn opening(input: &[u8]) -> &[u8] {
    &input[..input.len().min(LONGEST)]
}

struct Asked<'b>(&'b [u8]);

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0[0] != REQUEST_MAGIC {
            return first_line(self.0).fmt(f);
        }
        match Request::without_value(self.0) {
            Some(Request { opcode, is_quiet, key, .. }) => {
                let quietly = if is_quiet { " quietly" } else { "" };
                write!(f, "{opcode:?}{quietly} {}", key.escape_ascii())
            }
            None => f.write_str("a binary request that is not understood"),
        }
    }
}

struct Answered<'b> {
    front: &'b [u8],
    /// Bytes of all that was answered.
    length: usize,
}

impl fmt::Display for Answered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = match self.front {
            [REPLY_MAGIC, ..] => {
                let (status, length) = reply::status_and_length(self.front).unwrap_or_default();
                write!(f, "status {status:#06x}")?;
                length
            }
            _ => {
                let line = first_line(self.front);
                line.fmt(f)?;
                line.0.len() + b"\r\n".len()
            }
        };
        if self.length > told { write!(f, " ({} bytes in all)", self.length) } else { Ok(()) }
    }
}

struct Line<'b>(&'b [u8]);

fn first_line(bytes: &[u8]) -> Line<'_> {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Line(line.strip_suffix(b"\r").unwrap_or(line))
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = opening(self.0);
        let more = if self.0.len() >= LONGEST { "..." } else { "" };
        write!(f, "{}{more}", told.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_requests_the_line_is_told() {
        let login = b"\x80\x21\0\x05\0\0\0\0\0\0\0\x11\0\0\0\0\0\0\0\0\0\0\0\0PLAIN\0user\0secret";
        let get = b"\x80\x0c\0\x03\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0key";
        for (request, told) in [
            (&b"get a b\r\nget c\r\n"[..], "get a b"),
            (b"set a 0 0 6\r\nsecret\r\n", "set a 0 0 6"),
            (b"quit\n", "quit"),
            (b"get \x1b[31m\r\n", "get \\x1b[31m"),
            (get, "GetKey key"),
            (login, "SaslAuth PLAIN"),
            (b"\x80\xff", "a binary request that is not understood"),
        ] {
            assert_eq!(Asked(request).to_string(), told);
        }
        let long = [b'k'; 2 * LONGEST];
        assert_eq!(Asked(&long).to_string(), "k".repeat(LONGEST) + "...");
    }

    #[test]
    fn of_answers_the_first_line_is_told_and_their_length() {
        let told = |front: &[u8], elsewhere: usize| Answered { front, length: front.len() + elsewhere }.to_string();
        assert_eq!(told(b"STORED\r\n", 0), "STORED");
        assert_eq!(told(b"VALUE a 0 6\r\nsecret\r\nEND\r\n", 0), "VALUE a 0 6 (26 bytes in all)");
        assert_eq!(told(b"VALUE a 0 6\r\n", 100), "VALUE a 0 6 (113 bytes in all)");
        let missing = b"\x81\x00\0\0\0\0\0\x01\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\0\0Not found";
        assert_eq!(told(missing, 0), "status 0x0001");
        assert_eq!(told(&missing.repeat(2), 0), "status 0x0001 (66 bytes in all)");
    }
}
