//! Replies: what they say about each key of a request.

use relativist_memcache::binary::{self, HEADER};

use super::framing::{Dialect, value_length};
use super::request::{Request, Verb};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Success,
    NotFound,
    NotStored,
    Exists,
    /// No reply, as the client wished.
    Unspoken,
    Error,
    /// An error because memory is short.
    OutOfMemory,
}

/// The reply for one key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) outcome: Outcome,
    /// The line or the fields of the header, without what may differ between servers: CAS values,
    /// times, and the key.
    pub(super) status: Vec<u8>,
    pub(super) value: &'a [u8],
    pub(super) cas: Option<u64>,
    /// The time to live in seconds; -1 if the item does not expire.
    pub(super) ttl: Option<i64>,
    /// Whether there was an item before the request, if the reply shows that.
    pub(super) presence: Option<bool>,
    /// Whether the reply shows the value and the flags of an item.
    pub(super) is_whole: bool,
}

impl<'a> Part<'a> {
    fn new(request: &Request, outcome: Outcome, status: impl Into<Vec<u8>>, value: &'a [u8]) -> Self {
        let presence = match outcome {
            Outcome::Success if request.initial.is_some() => is_created(request, value).map(|is_created| !is_created),
            Outcome::Success => match request.verb {
                Verb::Set => None,
                verb => Some(verb != Verb::Add),
            },
            Outcome::NotFound => Some(false),
            Outcome::NotStored => Some(request.verb == Verb::Add),
            Outcome::Exists => Some(true),
            Outcome::Unspoken => request.is_read().then_some(false),
            Outcome::Error | Outcome::OutOfMemory => None,
        };
        Self { outcome, status: status.into(), value, cas: None, ttl: None, presence, is_whole: false }
    }

    fn of_line(request: &Request, line: &[u8]) -> Self {
        let (outcome, status) = match line {
            b"NOT_FOUND" | b"EN" | b"NF" => (Outcome::NotFound, line),
            b"NOT_STORED" => (Outcome::NotStored, line),
            b"EXISTS" => (Outcome::Exists, line),
            b"" => (Outcome::Unspoken, line),
            _ if line.to_ascii_lowercase().starts_with(b"server_error out of memory") => (Outcome::OutOfMemory, line),
            _ if is_error(line) => (Outcome::Error, line),
            _ => (Outcome::Success, line),
        };
        let mut part = Self::new(request, outcome, status, b"");
        if line == NOT_A_NUMBER {
            part.presence = Some(true);
        }
        part
    }

    /// Returns the part of a request without a reply. `is_success`: only success has none.
    fn of_silence(request: &Request, is_success: bool) -> Self {
        let outcome = if is_success { Outcome::Success } else { Outcome::Unspoken };
        Self { outcome: Outcome::Unspoken, ..Self::new(request, outcome, "", b"") }
    }

    pub(super) fn is_error(&self) -> bool {
        self.outcome == Outcome::Error
    }
}

/// The reply to a count of an item that is not a number.
const NOT_A_NUMBER: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value";

/// Whether the number in a reply is the one with which a count creates an item.
fn is_created(request: &Request, value: &[u8]) -> Option<bool> {
    let number = match request.dialect {
        Dialect::Text => std::str::from_utf8(value).ok()?.parse().ok()?,
        Dialect::Binary => u64::from_be_bytes(value.try_into().ok()?),
    };
    Some(Some(number) == request.initial)
}

fn is_error(line: &[u8]) -> bool {
    line == b"ERROR" || line.starts_with(b"CLIENT_ERROR") || line.starts_with(b"SERVER_ERROR")
}

/// Returns the reply for each key, or for the request if it has no keys. Returns `None` if the
/// reply is malformed.
pub(super) fn parts<'a>(request: &Request, reply: &'a [u8]) -> Option<Vec<Part<'a>>> {
    let is_meta = request.bytes.first() == Some(&b'm');
    match request.dialect {
        Dialect::Binary if reply.is_empty() => Some(vec![Part::of_silence(request, !request.is_read())]),
        Dialect::Binary => Some(vec![packet(request, reply)?]),
        Dialect::Text if is_meta && !request.keys.is_empty() => Some(vec![meta(request, reply)?]),
        Dialect::Text if request.is_read() => values(request, reply),
        Dialect::Text => match reply {
            b"" => Some(vec![Part::of_line(request, b"")]),
            _ => {
                let line = reply.strip_suffix(b"\r\n")?;
                // Only a request with an error can get several lines.
                let is_one = request.verb == Verb::Keyless || !line.contains(&b'\n');
                is_one.then(|| vec![Part::of_line(request, line)])
            }
        },
    }
}

/// Returns whether a request succeeded, according to its reply.
pub(super) fn is_success(request: &Request, reply: &[u8]) -> bool {
    parts(request, reply).is_some_and(|parts| parts.iter().all(|part| part.outcome == Outcome::Success))
}

fn take_line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = memchr::memchr(b'\n', rest)?;
    let (line, after) = rest.split_at(end + 1);
    *rest = after;
    line.strip_suffix(b"\r\n")
}

fn take_value<'a>(rest: &mut &'a [u8], line: &[u8]) -> Option<&'a [u8]> {
    let (value, after) = rest.split_at_checked(value_length(line)?)?;
    *rest = after.strip_prefix(b"\r\n")?;
    Some(value)
}

/// Parses the reply to `get`, `gets`, `gat` or `gats`: the found items, in the order of the keys.
fn values<'a>(request: &Request, mut rest: &'a [u8]) -> Option<Vec<Part<'a>>> {
    let (mut parts, mut keys) = (Vec::new(), request.keys.iter());
    loop {
        let line = take_line(&mut rest)?;
        if !line.starts_with(b"VALUE ") {
            let is_end = line == b"END";
            parts.extend(keys.map(|_| match is_end {
                true => Part::new(request, Outcome::NotFound, "", b""),
                false => Part::of_line(request, line),
            }));
            return ((is_end || is_error(line)) && rest.is_empty()).then_some(parts);
        }
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let missing = keys.by_ref().position(|key| Some(&key[..]) == words.get(1).copied())?;
        parts.extend((0..missing).map(|_| Part::new(request, Outcome::NotFound, "", b"")));
        let value = take_value(&mut rest, line)?;
        let status = [b"flags ", *words.get(2)?].concat();
        let cas = match words.get(4) {
            None => None,
            Some(cas) => Some(number(cas)?),
        };
        parts.push(Part { cas, is_whole: true, ..Part::new(request, Outcome::Success, status, value) });
    }
}

/// Parses the reply to a meta command.
fn meta<'a>(request: &Request, mut rest: &'a [u8]) -> Option<Part<'a>> {
    if rest.is_empty() {
        let mut part = Part::of_silence(request, request.bytes.starts_with(b"ms"));
        if request.bytes.starts_with(b"mg") {
            part.presence = Some(false);
        }
        return Some(part);
    }
    let line = take_line(&mut rest)?;
    let value = if line.starts_with(b"VA ") { take_value(&mut rest, line)? } else { b"" };
    if !rest.is_empty() {
        return None;
    }
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let code = words.next()?;
    let outcome = match code {
        b"HD" => Outcome::Success,
        b"VA" => {
            words.next();
            Outcome::Success
        }
        b"EN" | b"NF" => Outcome::NotFound,
        b"NS" => Outcome::NotStored,
        b"EX" => Outcome::Exists,
        _ => return is_error(line).then(|| Part::of_line(request, line)),
    };
    let (mut cas, mut ttl, mut status) = (None, None, code.to_vec());
    let (mut is_won, mut has_flags) = (false, false);
    for word in words {
        let (letter, token) = (word[0], &word[1..]);
        let shown = match letter {
            b'c' => {
                cas = Some(number(token)?);
                b"c"
            }
            b't' => {
                ttl = Some(if token == b"-1" { -1 } else { time_to_live(number(token)?) });
                b"t"
            }
            // Servers may execute reads of several clients in different orders.
            b'h' => b"h",
            b'l' => b"l",
            b'k' if token == request.keys[0] => b"k",
            _ => word,
        };
        is_won |= word == b"W";
        has_flags |= letter == b'f';
        status.push(b' ');
        status.extend_from_slice(shown);
    }
    let is_whole = code == b"VA" && has_flags;
    let mut part = Part { cas, ttl, is_whole, ..Part::new(request, outcome, status, value) };
    if request.verb == Verb::Other && is_won && value.is_empty() {
        // `mg` with `N` has created an empty item.
        part.presence = Some(false);
    }
    Some(part)
}

fn packet<'a>(request: &Request, reply: &'a [u8]) -> Option<Part<'a>> {
    let (status, length) = binary::reply::status_and_length(reply)?;
    let [_, opcode, k0, k1, extras, ..] = *reply.first_chunk::<HEADER>()?;
    let extras_end = HEADER + usize::from(extras);
    let value = reply.get(extras_end + usize::from(u16::from_be_bytes([k0, k1]))..length)?;
    let (outcome, value) = match status {
        0 => (Outcome::Success, value),
        1 => (Outcome::NotFound, &b""[..]),
        2 if request.verb == Verb::Add => (Outcome::NotStored, &b""[..]),
        2 => (Outcome::Exists, &b""[..]),
        5 => (Outcome::NotStored, &b""[..]),
        0x82 => (Outcome::OutOfMemory, &b""[..]),
        _ => (Outcome::Error, &b""[..]),
    };
    let cas = u64::from_be_bytes(*reply[16..].first_chunk()?);
    let extras = reply.get(HEADER..extras_end)?.escape_ascii();
    let shown = format!("opcode {opcode} status {status} extras {extras}");
    let mut part = Part::new(request, outcome, shown, value);
    part.is_whole = outcome == Outcome::Success && request.is_read();
    if status == 6 {
        // The item is not a number.
        part.presence = Some(true);
    }
    (reply.len() == length).then_some(Part { cas: Some(cas).filter(|&cas| cas != 0), ..part })
}

/// Returns the time to live that a reply shows. If an item has expired already, memcached shows the
/// negative time as a number of 32 bits without sign, and relativistd shows 0.
fn time_to_live(shown: u64) -> i64 {
    i32::try_from(shown).map_or(0, i64::from)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
