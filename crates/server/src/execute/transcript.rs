//! What clients ask and are answered, for the log (`-vv`): lines that begin with `<` or `>` and the number of the connection, as memcached
//! writes them. Of a request it is the line, or the name and the key, of an answer the first line. Values and passwords are never told, and so
//! nothing that a client in disorder sends in the place of a command.

use super::{Executor, Replies, Session};
use crate::engine::Engine;
use crate::log::Level;
use relativist_memcache::binary::{REPLY_MAGIC, REQUEST_MAGIC, Request, reply};
use relativist_memcache::reply::ERROR;
use std::fmt;

/// Of a longer line the beginning is told.
const LONGEST: usize = 512;

/// What comes from a client.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'b> {
    /// The rest of something, or what is nobody's business.
    Rest,
    /// What begins with a line of the text protocol.
    Line(&'b [u8]),
    /// What begins with a packet of the binary protocol.
    Packet(&'b [u8]),
}

impl Asked<'_> {
    /// As much of an input as is told at most.
    pub fn opening(input: &[u8]) -> &[u8] {
        &input[..input.len().min(LONGEST)]
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

impl<E: Engine> Executor<'_, E> {
    /// Whether the log wants to know what clients say.
    pub fn is_transcribed(&self) -> bool {
        self.is_transcribed
    }

    /// Tells a request, and what was added to the replies since `before`. The connection is closed after it if it `closes`.
    #[cold]
    pub fn transcribe(&self, session: &Session, asked: Asked<'_>, replies: &Replies, before: Extent, closes: bool) {
        let log = &self.service.log;
        let answer = Answered { front: &replies.bytes[before.bytes..], length: replies.len() - before.length };
        if let Some(told) = told(asked, answer.front, closes) {
            log.say(Level::Connection, format_args!("<{} {told}", session.id));
        }
        if answer.length > 0 {
            log.say(Level::Connection, format_args!(">{} {answer}", session.id));
        }
    }
}

/// What is told of a request that is answered so. What is not understood may be anything, such as a value behind a line that did not announce it.
fn told(asked: Asked<'_>, answer: &[u8], closes: bool) -> Option<String> {
    Some(match asked {
        Asked::Rest => return None,
        Asked::Line(front) => {
            let line = first_line(front);
            let word = line.0.split(|byte| *byte == b' ').next().unwrap_or_default();
            if answer.starts_with(ERROR) || closes && !matches!(word, b"quit" | b"shutdown") {
                "what is no command".into()
            } else {
                line.to_string()
            }
        }
        Asked::Packet(front) => match Request::without_value(front) {
            Some(Request { opcode, is_quiet, key, .. }) if front[0] == REQUEST_MAGIC => {
                format!("{opcode:?}{} {}", if is_quiet { " quietly" } else { "" }, key.escape_ascii())
            }
            _ => "what is no request".into(),
        },
    })
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
        let more = if self.0.len() >= LONGEST { "..." } else { "" };
        write!(f, "{}{more}", Asked::opening(self.0).escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_requests_the_line_is_told() {
        let line = |line: &[u8]| told(Asked::Line(line), b"", false).unwrap();
        assert_eq!(line(b"get a b\r\nget c\r\n"), "get a b");
        assert_eq!(line(b"set a 0 0 6\r\nsecret\r\n"), "set a 0 0 6");
        assert_eq!(line(b"get \x1b[31m\r\n"), "get \\x1b[31m");
        assert_eq!(line(&[b'k'; 2 * LONGEST]), "k".repeat(LONGEST) + "...");
        let login = b"\x80\x21\0\x05\0\0\0\0\0\0\0\x11\0\0\0\0\0\0\0\0\0\0\0\0PLAIN\0user\0secret";
        let get = b"\x80\x0c\0\x03\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0key";
        let packet = |packet: &[u8]| told(Asked::Packet(packet), b"", false).unwrap();
        assert_eq!([&get[..], login].map(packet), ["GetKey key", "SaslAuth PLAIN"]);
    }

    #[test]
    fn what_is_not_understood_is_not_told() {
        let secret = "secret";
        for (asked, answer, closes) in [
            (Asked::Line(b"secret\r\n"), &b"ERROR\r\n"[..], false),
            (Asked::Line(b"secret without an end"), b"", true),
            (Asked::Line(b"\x80secretsecretsecretsecretsecret"), b"ERROR\r\n", false),
            (Asked::Packet(b"secret, which is much longer than a header is"), b"", true),
            (Asked::Packet(b"\x80\xffsecret"), b"", true),
        ] {
            let told = told(asked, answer, closes).unwrap();
            assert!(told.starts_with("what is no ") && !told.contains(secret), "{told}");
        }
        assert_eq!(told(Asked::Line(b"quit\n"), b"", true).unwrap(), "quit");
        assert_eq!(told(Asked::Rest, b"STORED\r\n", false), None);
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
