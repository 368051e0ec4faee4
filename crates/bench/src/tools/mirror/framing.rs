//! Finds the end of each reply.
//!
//! Whether and how often a server replies to a request depends on the request and on its outcome:
//! `noreply` still gets some errors, quiet requests get a reply only sometimes, and `stats` many
//! lines. So the mirror sends a request without effect after each request of a client, the fence:
//! `mn`, or a binary no-op. All bytes before the reply to the fence belong to the request.

use relativist_memcache::binary::{self, HEADER};

/// The maximum length of a line that is held back until it is complete.
const MAX_LINE: usize = 64 << 10;

/// The opcode of a no-op.
const NOOP: u8 = 0x0a;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Text,
    Binary,
}

impl Dialect {
    pub(super) fn fence(self) -> &'static [u8] {
        match self {
            Self::Text => b"mn\r\n",
            Self::Binary => b"\x80\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        }
    }
}

/// A part of the bytes that a server sends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Bytes(&'a [u8]),
    /// The reply to a fence.
    Fence(&'a [u8]),
}

/// Splits what a server sends.
#[derive(Debug)]
pub(super) struct Splitter {
    dialect: Dialect,
    /// An incomplete line or header.
    front: Vec<u8>,
    /// The number of bytes of the current value that have not arrived.
    value: usize,
}

impl Splitter {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, front: Vec::new(), value: 0 }
    }

    /// Calls `take` with each piece of `input`. Lines and headers are not split.
    pub(super) fn feed<E>(
        &mut self,
        mut input: &[u8],
        mut take: impl FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !input.is_empty() {
            if self.value > 0 {
                let (value, rest) = input.split_at(self.value.min(input.len()));
                (self.value, input) = (self.value - value.len(), rest);
                take(Piece::Bytes(value))?;
                continue;
            }
            let before = self.front.len();
            let end = match self.dialect {
                Dialect::Text => memchr::memchr(b'\n', input).map(|end| end + 1),
                Dialect::Binary => (before + input.len() >= HEADER).then(|| HEADER - before),
            };
            let is_too_long = before + input.len() > MAX_LINE;
            let (front, rest) = input.split_at(end.unwrap_or(input.len()));
            self.front.extend_from_slice(front);
            input = rest;
            if end.is_some() || is_too_long {
                let front = std::mem::take(&mut self.front);
                self.value = self.following(&front);
                let is_fence = match self.dialect {
                    Dialect::Text => front == b"MN\r\n",
                    Dialect::Binary => front[..2] == [binary::REPLY_MAGIC, NOOP],
                };
                take(if is_fence { Piece::Fence(&front) } else { Piece::Bytes(&front) })?;
                // Keeps the memory for the next line.
                self.front = front;
                self.front.clear();
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that follow this line or header, before the next one.
    fn following(&self, front: &[u8]) -> usize {
        match self.dialect {
            Dialect::Binary => binary::reply::status_and_length(front).map_or(0, |(_, length)| length - HEADER),
            Dialect::Text => value_length(front).map_or(0, |length| length.saturating_add(2)),
        }
    }
}

/// Returns the length of the value that follows a line of a reply.
pub(super) fn value_length(line: &[u8]) -> Option<usize> {
    let mut words = line.trim_ascii_end().split(|&byte| byte == b' ');
    let length = match words.next()? {
        b"VALUE" => words.nth(2)?,
        b"VA" => words.next()?,
        _ => return None,
    };
    std::str::from_utf8(length).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the replies before each fence, if the input arrives in pieces of this length.
    fn split(dialect: Dialect, input: &[u8], length: usize) -> Vec<Vec<u8>> {
        let (mut splitter, mut replies) = (Splitter::new(dialect), vec![Vec::new()]);
        for part in input.chunks(length) {
            let taken = splitter.feed(part, |piece| {
                match piece {
                    Piece::Bytes(bytes) => replies.last_mut().unwrap().extend_from_slice(bytes),
                    Piece::Fence(_) => replies.push(Vec::new()),
                }
                Ok::<_, ()>(())
            });
            assert_eq!(taken, Ok(()));
        }
        replies
    }

    #[test]
    fn replies_end_at_fences_and_values_may_look_like_one() {
        let replies: [&[u8]; 4] =
            [b"VALUE k 0 8\r\nx\r\nMN\r\n\r\r\nEND\r\n", b"", b"STORED\r\n", b"VA 4 kk\r\nMN\r\n\r\nHD\r\n"];
        let input = replies.join(&b"MN\r\n"[..]);
        for length in 1..input.len() {
            assert_eq!(split(Dialect::Text, &input, length), replies);
        }
        let packet = |opcode: u8, body: &[u8]| {
            let mut bytes = [0; HEADER];
            (bytes[0], bytes[1], bytes[11]) = (0x81, opcode, body.len() as u8);
            [&bytes[..], body].concat()
        };
        let replies = [packet(0, &[0x81, NOOP].repeat(30)), Vec::new(), packet(1, b"")];
        let input = replies.join(&packet(NOOP, b"")[..]);
        for length in 1..input.len() {
            assert_eq!(split(Dialect::Binary, &input, length), replies);
        }
    }

    #[test]
    fn long_lines_are_not_held_back() {
        let mut splitter = Splitter::new(Dialect::Text);
        let mut bytes = 0;
        for _ in 0..100 {
            let taken = splitter.feed(&[b'x'; 4096], |piece| {
                let Piece::Bytes(piece) = piece else { panic!() };
                bytes += piece.len();
                Ok::<_, ()>(())
            });
            assert_eq!(taken, Ok(()));
        }
        assert!(bytes > 300_000 && splitter.front.len() <= MAX_LINE);
    }
}
