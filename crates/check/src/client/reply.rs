//! Replies of servers: finding their ends, and what they say.
//!
//! [`read`] takes the first reply from received bytes: a line with the value that follows it, or a
//! packet of the binary protocol. It copies and allocates nothing. Servers are not trusted: lines
//! and values are bounded.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use relativist_memcache::binary::{HEADER, REPLY_MAGIC};

use super::shown;

/// The largest value that any server accepts.
pub const MAX_VALUE: usize = 1 << 30;

/// The maximum length of a line in a reply.
pub const MAX_LINE: usize = 2048;

/// The largest body of a packet, apart from the value.
const MAX_EXTRAS: usize = 1 << 9;

/// The opcode of a no-op.
const NOOP: u8 = 0x0a;

/// The encoding of a connection. The text protocols share one, and may be mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// The classic and the meta protocol.
    Text,
    /// The binary protocol.
    Binary,
}

impl Encoding {
    /// Returns a request without effect. Servers always reply to it, and in order: so its reply
    /// shows that all earlier requests were answered.
    pub fn fence(self) -> &'static [u8] {
        match self {
            Self::Text => b"mn\r\n",
            Self::Binary => b"\x80\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        }
    }
}

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// An item in the reply to a classic `get`.
    Item,
    /// The end of such a reply.
    End,
    /// The server did what was asked.
    Done,
    /// There is no item.
    NotFound,
    /// A condition of the store is not met.
    NotStored,
    /// The item has another CAS value.
    Exists,
    /// The item cannot be counted.
    NotNumeric,
    /// The value is too large.
    TooLarge,
    /// Memory is short.
    OutOfMemory,
    /// Memory ran out after a part of the value had arrived.
    Midway,
    /// The reply to [`Encoding::fence`].
    Fence,
    /// Another error.
    Error,
    /// Something else, such as a statistic.
    Other,
}

/// A reply, or a part of the reply to `get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// What it says.
    pub code: Code,
    /// The line without its end, or the header of a packet.
    pub head: &'a [u8],
    /// The key of an item, or of a packet.
    pub key: &'a [u8],
    /// The client's flags of an item in a classic reply or a packet.
    pub flags: Option<u32>,
    /// The CAS value in a classic reply or a packet.
    pub cas: Option<u64>,
    /// The value of an item, or a number.
    pub value: Option<&'a [u8]>,
    /// The flags of a meta reply.
    words: &'a [u8],
}

/// The beginning of the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// A complete reply, and its length.
    Whole(Answer<'a>, usize),
    /// An incomplete reply. At least this many bytes are needed.
    Part(usize),
}

/// Takes the first reply from `bytes`, with a value of at most `largest` bytes.
///
/// # Errors
/// The bytes are not a reply.
#[inline]
pub fn read(encoding: Encoding, bytes: &[u8], largest: usize) -> Result<Received<'_>> {
    match encoding {
        Encoding::Text => read_line(bytes, largest),
        Encoding::Binary => read_packet(bytes, largest),
    }
}

#[inline]
fn read_line(bytes: &[u8], largest: usize) -> Result<Received<'_>> {
    let Some(end) = memchr::memchr(b'\n', &bytes[..bytes.len().min(MAX_LINE)]) else {
        ensure!(bytes.len() < MAX_LINE, "a line without an end: {}", shown(bytes));
        return Ok(Received::Part(bytes.len() + 1));
    };
    let after = end + 1;
    let mut answer = match bytes[..end].strip_suffix(b"\r") {
        Some(line) => of_line(line),
        // Only dumps of keys have such lines.
        None => Answer::new(Code::Other, &bytes[..after]),
    };
    let Some(size) = size_of_value(&mut answer)? else { return Ok(Received::Whole(answer, after)) };
    ensure!(size <= largest, "a value of {size} bytes, the maximum is {largest}: {}", shown(answer.head));
    let whole = after + size + 2;
    let Some(value) = bytes.get(after..whole) else { return Ok(Received::Part(whole)) };
    let value = value.strip_suffix(b"\r\n");
    answer.value =
        Some(value.with_context(|| format!("a value that does not end after {size} bytes: {}", shown(answer.head)))?);
    Ok(Received::Whole(answer, whole))
}

#[inline]
fn of_line(line: &[u8]) -> Answer<'_> {
    let (word, rest) = line.split_at(memchr::memchr(b' ', line).unwrap_or(line.len()));
    let code = match (word, rest) {
        (b"VALUE", _) => Code::Item,
        (b"HD" | b"VA", _) | (b"STORED" | b"TOUCHED" | b"DELETED" | b"OK", b"") => Code::Done,
        (b"END", b"") => Code::End,
        (b"EN" | b"NF", _) | (b"NOT_FOUND", b"") => Code::NotFound,
        (b"NS", _) | (b"NOT_STORED", b"") => Code::NotStored,
        (b"EX", _) | (b"EXISTS", b"") => Code::Exists,
        (b"MN", b"") => Code::Fence,
        (b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR", _) => of_error(line),
        ([b'0'..=b'9', ..], b"") => return Answer { value: Some(line), ..Answer::new(Code::Done, line) },
        _ => Code::Other,
    };
    let words = if word.len() == 2 { rest } else { b"" };
    Answer { words, ..Answer::new(code, line) }
}

#[cold]
fn of_error(line: &[u8]) -> Code {
    match line {
        b"CLIENT_ERROR cannot increment or decrement non-numeric value" => Code::NotNumeric,
        b"SERVER_ERROR object too large for cache" => Code::TooLarge,
        b"SERVER_ERROR Out of memory during read" => Code::Midway,
        _ if line.starts_with(b"SERVER_ERROR out of memory") => Code::OutOfMemory,
        _ => Code::Error,
    }
}

/// Returns the size of the value that follows this line, if there is one. Notes what the line says
/// about the item.
#[inline]
fn size_of_value(answer: &mut Answer<'_>) -> Result<Option<usize>> {
    let mut words = answer.head.split(|&byte| byte == b' ').skip(1);
    let mut word = || words.next().filter(|word| !word.is_empty());
    let not_an_item = || format!("not a reply: {}", shown(answer.head));
    Ok(match answer.head.first_chunk() {
        Some(b"VA ") => {
            let size = word().with_context(not_an_item)?;
            answer.words = &answer.words[1 + size.len()..];
            Some(number(size).with_context(not_an_item)?)
        }
        _ if answer.code == Code::Item => {
            answer.key = word().with_context(not_an_item)?;
            answer.flags = Some(word().and_then(number).with_context(not_an_item)?);
            let size = word().and_then(number).with_context(not_an_item)?;
            answer.cas = word().map(|cas| number(cas).with_context(not_an_item)).transpose()?;
            ensure!(word().is_none(), not_an_item());
            Some(size)
        }
        _ => None,
    })
}

fn read_packet(bytes: &[u8], largest: usize) -> Result<Received<'_>> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(Received::Part(HEADER)) };
    ensure!(header[0] == REPLY_MAGIC, "not a reply: {}", shown(header));
    let length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    ensure!(length <= largest + MAX_EXTRAS, "a reply of {length} bytes, the maximum is {largest}");
    let Some(body) = rest.get(..length) else { return Ok(Received::Part(HEADER + length)) };
    let (extras, rest) = body.split_at_checked(header[4].into()).context("extras beyond the body")?;
    let key = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let (key, value) = rest.split_at_checked(key).context("a key beyond the body")?;
    let code = match u16::from_be_bytes([header[6], header[7]]) {
        0 if header[1] == NOOP => Code::Fence,
        0 => Code::Done,
        1 => Code::NotFound,
        2 => Code::Exists,
        3 => Code::TooLarge,
        5 => Code::NotStored,
        6 => Code::NotNumeric,
        0x82 => Code::OutOfMemory,
        _ => Code::Error,
    };
    let flags = extras.try_into().map(u32::from_be_bytes).ok();
    let cas = header[16..].iter().fold(0, |cas, byte| cas << 8 | u64::from(*byte));
    let value = Some(value).filter(|_| code == Code::Done);
    Ok(Received::Whole(Answer { key, flags, cas: Some(cas), value, ..Answer::new(code, header) }, HEADER + length))
}

impl<'a> Answer<'a> {
    const fn new(code: Code, head: &'a [u8]) -> Self {
        Self { code, head, key: b"", flags: None, cas: None, value: None, words: b"" }
    }

    /// Returns the flags of a meta reply.
    pub fn words(&self) -> impl Iterator<Item = &'a [u8]> {
        self.words.split(|&byte| byte == b' ').filter(|word| !word.is_empty())
    }

    /// Returns the opcode and the opaque number of a packet.
    ///
    /// # Panics
    /// The reply is a line.
    pub fn opcode_and_opaque(&self) -> (u8, u32) {
        (self.head[1], u32::from_be_bytes([self.head[12], self.head[13], self.head[14], self.head[15]]))
    }

    /// Returns the properties of the item, and the flags of a meta reply that are none.
    ///
    /// # Errors
    /// A property is not a number.
    pub fn properties(&self) -> Result<(Reported, Vec<&'a [u8]>)> {
        let value = self.value.map(<[u8]>::to_vec);
        let mut reported = Reported { value, flags: self.flags, cas: self.cas, ..Reported::default() };
        let (mut facts, mut others) = (Facts::default(), Vec::new());
        for word in self.words() {
            let token = &word[1..];
            match word[0] {
                b's' => reported.size = Some(decimal(token)?),
                b'f' => reported.flags = Some(decimal(token)?),
                b'c' => reported.cas = Some(decimal(token)?),
                b't' if token == b"-1" => reported.ttl = Some(None),
                b't' => reported.ttl = Some(Some(decimal(token)?)),
                b'h' => reported.was_fetched = Some(token == b"1"),
                b'W' => facts.is_won = true,
                b'X' => facts.is_stale = true,
                b'Z' => facts.is_claimed = true,
                _ => others.push(word),
            }
        }
        let is_meta = matches!(self.head, b"HD" | [b'H', b'D', b' ', ..] | [b'V', b'A', b' ', ..]);
        reported.facts = is_meta.then_some(facts);
        Ok((reported, others))
    }
}

/// Parses a decimal number of at most 20 digits.
#[inline]
fn number<T: TryFrom<u64>>(digits: &[u8]) -> Option<T> {
    let digit = |number: u64, byte: &u8| {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        (digit < 10).then_some(())?;
        number.checked_mul(10)?.checked_add(digit)
    };
    if digits.is_empty() { None } else { T::try_from(digits.iter().try_fold(0, digit)?).ok() }
}

/// Parses a decimal number.
///
/// # Errors
/// It is not one.
pub fn decimal<T: FromStr>(digits: &[u8]) -> Result<T> {
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    number.with_context(|| format!("not a number: {}", shown(digits)))
}

/// The reported properties of an item.
#[derive(Clone, Default, PartialEq)]
pub struct Reported {
    /// The value.
    pub value: Option<Vec<u8>>,
    /// The number after a count.
    pub number: Option<u64>,
    /// The client's flags.
    pub flags: Option<u32>,
    /// The CAS value.
    pub cas: Option<u64>,
    /// The time to live in seconds. The inner `None` means that the item never expires.
    pub ttl: Option<Option<u32>>,
    /// The size of the value in bytes.
    pub size: Option<u64>,
    /// Whether the item was read before.
    pub was_fetched: Option<bool>,
    /// What the meta protocol reports about leases.
    pub facts: Option<Facts>,
}

/// Flags that the meta protocol returns even if the request does not ask for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The client that receives this reply has to renew the item.
    pub is_won: bool,
    /// The item was invalidated.
    pub is_stale: bool,
    /// Another client was selected to renew the item.
    pub is_claimed: bool,
}

impl fmt::Debug for Reported {
    /// Prints only reported properties, and only the lengths of values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reported = f.debug_struct("Reported");
        let Self { value, number, flags, cas, ttl, size, was_fetched, facts } = self;
        let length = value.as_ref().map(Vec::len);
        let fields: [(&str, Option<&dyn fmt::Debug>); 8] = [
            ("value_length", length.as_ref().map(|x| x as _)),
            ("number", number.as_ref().map(|x| x as _)),
            ("flags", flags.as_ref().map(|x| x as _)),
            ("cas", cas.as_ref().map(|x| x as _)),
            ("ttl", ttl.as_ref().map(|x| x as _)),
            ("size", size.as_ref().map(|x| x as _)),
            ("was_fetched", was_fetched.as_ref().map(|x| x as _)),
            ("facts", facts.as_ref().map(|x| x as _)),
        ];
        for (name, field) in fields {
            if let Some(field) = field {
                reported.field(name, field);
            }
        }
        reported.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads all replies, which arrive one byte at a time.
    fn replies(encoding: Encoding, bytes: &[u8]) -> Vec<(Code, String)> {
        let (mut replies, mut start) = (Vec::new(), 0);
        for end in 0..=bytes.len() {
            match read(encoding, &bytes[start..end], 90).unwrap() {
                Received::Part(needed) => assert!(needed > end - start),
                Received::Whole(answer, length) => {
                    assert_eq!(start + length, end, "as soon as it is whole");
                    let value = answer.value.map(|value| format!("={}", value.escape_ascii())).unwrap_or_default();
                    replies.push((answer.code, format!("{}{value}", answer.key.escape_ascii())));
                    start = end;
                }
            }
        }
        assert_eq!(start, bytes.len());
        replies
    }

    #[test]
    fn values_may_look_like_replies() {
        let text =
            b"VALUE a 0 4\r\nMN\r\n\r\nVALUE b 7 0 9\r\n\r\nEND\r\nSTORED\r\n12\r\nVA 3 ka\r\nxyz\r\nEN ka\r\nMN\r\n";
        let expected = [
            (Code::Item, "a=MN\\r\\n"),
            (Code::Item, "b="),
            (Code::End, ""),
            (Code::Done, ""),
            (Code::Done, "=12"),
            (Code::Done, "=xyz"),
            (Code::NotFound, ""),
            (Code::Fence, ""),
        ];
        assert_eq!(replies(Encoding::Text, text), expected.map(|(code, text)| (code, text.into())));
        let packet = |opcode: u8, status: u8, body: &[u8]| {
            let mut bytes = [0; HEADER];
            (bytes[0], bytes[1], bytes[7], bytes[11]) = (0x81, opcode, status, body.len() as u8);
            [&bytes[..], body].concat()
        };
        let binary = [packet(0, 0, &[0x81, NOOP].repeat(2)), packet(NOOP, 0, b""), packet(1, 2, b"why")].concat();
        let expected = [(Code::Done, "=\\x81\\n\\x81\\n"), (Code::Fence, ""), (Code::Exists, "")];
        assert_eq!(replies(Encoding::Binary, &binary), expected.map(|(code, text)| (code, text.into())));
    }

    #[test]
    fn what_is_not_a_reply_is_shown() {
        let (endless, mut packet) = ([b'x'; MAX_LINE], [0; HEADER]);
        (packet[0], packet[8]) = (0x81, 0x7f);
        for (bytes, explanation) in [
            (&b"VALUE a 0 91\r\n"[..], "a value of 91 bytes, the maximum is 90"),
            (b"VALUE a 0 99999999999999999999\r\n", "not a reply"),
            (b"VALUE a 0 -1\r\n", "not a reply"),
            (b"VALUE a 0\r\n", "not a reply"),
            (b"VALUE a 0 1 2 3\r\n", "not a reply"),
            (b"VA \r\n", "not a reply"),
            (b"VALUE a 0 1\r\nxyz", "does not end after 1 bytes"),
            (&endless, "without an end"),
        ] {
            let error = read(Encoding::Text, bytes, 90).expect_err("an error").to_string();
            assert!(error.contains(explanation), "{error}");
        }
        assert!(read(Encoding::Binary, &packet, 90).is_err() && read(Encoding::Binary, &endless, 90).is_err());
        for other in [&b"END\n"[..], b"STAT a b\r\n", b"STORED x\r\n", b"\x00\xff\r\n"] {
            let Ok(Received::Whole(answer, _)) = read(Encoding::Text, other, 90) else { panic!() };
            assert_eq!(answer.code, Code::Other, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn meta_replies_have_properties() {
        let Ok(Received::Whole(answer, _)) = read(Encoding::Text, b"HD f7 c9 t-1 s6 h1 W kb l3 O1 X b\r\n", 90) else {
            panic!()
        };
        let (reported, others) = answer.properties().unwrap();
        let facts = Some(Facts { is_won: true, is_stale: true, is_claimed: false });
        let (flags, cas, ttl, size) = (Some(7), Some(9), Some(None), Some(6));
        let expected = Reported { flags, cas, ttl, size, was_fetched: Some(true), facts, ..Reported::default() };
        assert_eq!((reported, others), (expected, vec![&b"kb"[..], b"l3", b"O1", b"b"]));
    }
}
