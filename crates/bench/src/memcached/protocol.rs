//! Requests as bytes, and bytes as replies. Servers are not trusted: lines and values are bounded,
//! and unknown replies are shown to the user.

use anyhow::{Result, bail, ensure};
use relativist_check::client::shown;

use super::items::Items;
use super::workload::Protocol;

/// The maximum length of a line in a reply.
const MAX_LINE: usize = 2048;

/// The line that a server sends on a connection above its limit, before it closes the connection.
const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections";

#[derive(Debug, PartialEq)]
pub enum Piece<'b> {
    /// An item. It completes the reply to a meta GET of one key.
    Value {
        key: &'b [u8],
        data: &'b [u8],
    },
    /// The end of the found items.
    End,
    Stored,
    /// The server refused the request.
    Refused(&'b [u8]),
    /// The server closes the connection, because it has too many.
    TurnedAway(&'b [u8]),
}

impl Protocol {
    /// Appends a request for some items.
    pub fn push_get(self, items: &Items, indices: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>) {
        match self {
            Self::Classic => {
                out.extend_from_slice(b"get");
                for index in indices {
                    out.push(b' ');
                    items.push_key(index, out);
                }
                out.extend_from_slice(b"\r\n");
            }
            Self::Meta => {
                let several = indices.len() > 1;
                for index in indices {
                    out.extend_from_slice(b"mg ");
                    items.push_key(index, out);
                    // With several keys, missing ones have no reply.
                    out.extend_from_slice(if several { b" k v q\r\n" } else { b" k v\r\n" });
                }
                if several {
                    out.extend_from_slice(b"mn\r\n");
                }
            }
        }
    }

    /// Appends a request to store an item.
    pub fn push_set(self, items: &Items, index: u64, out: &mut Vec<u8>) {
        let value = items.value(index);
        let (before, after) = match self {
            Self::Classic => (&b"set "[..], &b" 0 0 "[..]),
            Self::Meta => (&b"ms "[..], &b" "[..]),
        };
        out.extend_from_slice(before);
        items.push_key(index, out);
        out.extend_from_slice(after);
        out.extend_from_slice(itoa::Buffer::new().format(value.len()).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }

    /// Parses the first piece of `bytes`. Returns it and its length, or `None` if it is incomplete.
    #[inline]
    pub fn parse(self, bytes: &[u8], largest: usize) -> Result<Option<(Piece<'_>, usize)>> {
        let Some(end) = memchr::memchr(b'\n', &bytes[..bytes.len().min(MAX_LINE)]) else {
            ensure!(bytes.len() < MAX_LINE, "a line without an end: {}", shown(bytes));
            return Ok(None);
        };
        let Some(line) = bytes[..end].strip_suffix(b"\r") else {
            bail!("a line without \\r: {}", shown(&bytes[..end]))
        };
        let after = end + 1;
        let piece = match (self, line) {
            (Self::Classic, b"END") | (Self::Meta, b"EN" | b"MN") => Piece::End,
            // memcached 1.6.45 repeats the key of a miss, 1.6.18 does not.
            (Self::Meta, _) if line.starts_with(b"EN ") => Piece::End,
            (Self::Classic, b"STORED") | (Self::Meta, b"HD") => Piece::Stored,
            (Self::Classic, b"NOT_STORED") | (Self::Meta, b"NS") => Piece::Refused(line),
            (_, TOO_MANY_CONNECTIONS) => Piece::TurnedAway(line),
            _ if line.starts_with(b"SERVER_ERROR") => Piece::Refused(line),
            _ => {
                let Some((key, size)) = self.value_line(line) else { bail!("not a reply: {}", shown(line)) };
                ensure!(size <= largest, "a value of {size} bytes, the maximum is {largest}: {}", shown(line));
                let Some(value) = bytes.get(after..after + size + 2) else { return Ok(None) };
                let Some(data) = value.strip_suffix(b"\r\n") else {
                    bail!("a value that does not end after {size} bytes: {}", shown(line))
                };
                return Ok(Some((Piece::Value { key, data }, after + size + 2)));
            }
        };
        Ok(Some((piece, after)))
    }

    /// Parses the line before a value: its key and size.
    #[inline]
    fn value_line(self, line: &[u8]) -> Option<(&[u8], usize)> {
        let space = |bytes| memchr::memchr(b' ', bytes);
        match self {
            Self::Classic => {
                let rest = line.strip_prefix(b"VALUE ")?;
                let (key, rest) = rest.split_at(space(rest)?);
                let flags_and_size = rest[1..].strip_prefix(b"0 ")?;
                Some((key, number(flags_and_size)?))
            }
            Self::Meta => {
                let rest = line.strip_prefix(b"VA ")?;
                let (size, flags) = rest.split_at(space(rest)?);
                Some((flags.strip_prefix(b" k")?, number(size)?))
            }
        }
    }
}

/// Parses a decimal number of at most ten digits.
fn number(digits: &[u8]) -> Option<usize> {
    let valid = (1..=10).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    valid.then(|| digits.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::super::workload::{DEFAULT, Sizes, Workload};
    use super::Protocol::{Classic, Meta};
    use super::*;

    fn items() -> Items {
        Items::new(&Workload { items: 10, key_size: "3".parse().unwrap(), value_size: Sizes::one(2), ..DEFAULT })
    }

    fn get(protocol: Protocol, indices: &[u64]) -> String {
        let mut out = Vec::new();
        protocol.push_get(&items(), indices.iter().copied(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_are_those_of_the_protocol() {
        assert_eq!(get(Classic, &[1]), "get kk1\r\n");
        assert_eq!(get(Classic, &[1, 2]), "get kk1 kk2\r\n");
        assert_eq!(get(Meta, &[1]), "mg kk1 k v\r\n");
        assert_eq!(get(Meta, &[1, 2]), "mg kk1 k v q\r\nmg kk2 k v q\r\nmn\r\n");
        let items = items();
        for (protocol, line) in [(Classic, "set kk3 0 0 2\r\n"), (Meta, "ms kk3 2\r\n")] {
            let mut out = Vec::new();
            protocol.push_set(&items, 3, &mut out);
            assert_eq!(out, [line.as_bytes(), items.value(3), b"\r\n"].concat());
        }
    }

    /// Parses all pieces of `bytes`, which arrive one byte at a time.
    fn pieces(protocol: Protocol, bytes: &[u8]) -> Vec<String> {
        let (mut pieces, mut start) = (Vec::new(), 0);
        for end in 0..=bytes.len() {
            if let Some((piece, length)) = protocol.parse(&bytes[start..end], 10).unwrap() {
                assert_eq!(start + length, end, "as soon as it is whole");
                pieces.push(match piece {
                    Piece::Value { key, data } => format!("{}={}", key.escape_ascii(), data.escape_ascii()),
                    other => format!("{other:?}"),
                });
                start = end;
            }
        }
        assert_eq!(start, bytes.len());
        pieces
    }

    #[test]
    fn replies_are_taken_apart() {
        let classic = b"VALUE a 0 4\r\nx\r\ny\r\nVALUE b 0 0\r\n\r\nEND\r\nSTORED\r\n";
        assert_eq!(pieces(Classic, classic), ["a=x\\r\\ny", "b=", "End", "Stored"]);
        let meta = b"VA 3 ka\r\nxyz\r\nEN\r\nEN ka\r\nMN\r\nHD\r\n";
        assert_eq!(pieces(Meta, meta), ["a=xyz", "End", "End", "End", "Stored"]);
        assert!(pieces(Meta, b"ERROR Too many open connections\r\n")[0].starts_with("TurnedAway"));
        assert!(pieces(Classic, b"SERVER_ERROR out of memory storing object\r\n")[0].starts_with("Refused"));
    }

    #[test]
    fn other_bytes_are_shown() {
        let endless = [b'x'; MAX_LINE];
        for (bytes, explanation) in [
            (&b"ERROR\r\n"[..], "not a reply: \"ERROR\""),
            (b"CLIENT_ERROR bad\r\n", "not a reply"),
            (b"HD\r\n", "not a reply"),
            (b"END\n", "without \\r"),
            (b"VALUE a 0 11\r\n", "a value of 11 bytes, the maximum is 10"),
            (b"VALUE a 0 99999999999999999999\r\n", "not a reply"),
            (b"VALUE a 0 -1\r\n", "not a reply"),
            (b"VALUE a 7 1\r\n", "not a reply"),
            (b"VALUE a 0 1\r\nxyz", "does not end after 1 bytes"),
            (b"\x00\xff\r\n", "\\x00\\xff"),
            (&endless, "without an end"),
        ] {
            let error = Classic.parse(bytes, 10).expect_err("an error").to_string();
            assert!(error.contains(explanation), "{error}");
        }
    }
}
