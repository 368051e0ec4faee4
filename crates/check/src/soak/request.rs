//! Requests of clients, independent of the protocol.

use std::fmt;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::shared::Floor;

/// Mixes the bits of a number. Different numbers have different results.
pub(super) const fn scramble(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// The number of positions in the pool at which values can begin.
const PLACES: usize = 1 << 16;

/// A value larger than servers accept by default.
pub(super) const MAX_VALUE: usize = (1 << 20) + (1 << 16);

/// The encoding of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Classic,
    Meta,
    Binary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A key that only one client uses. When its state becomes unknown, a key of the next
    /// generation replaces it.
    Own { slot: u32, generation: u32 },
    /// A value that all clients store and read.
    Value(u16),
    /// A number that all clients increment.
    Counter(u16),
}

/// When an item expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exptime {
    Never,
    Past,
    /// Seconds from now.
    In(u32),
    /// At this second of the server's clock.
    At(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// A range of bytes of the pool.
    Piece {
        place: u16,
        length: u32,
    },
    Number(u64),
    Marked(Mark),
}

/// The mark in a shared value: its key, client and version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) key: u16,
    pub(super) writer: u16,
    pub(super) version: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ask {
    Get {
        touch: Option<Exptime>,
        /// In the meta protocol: create the item with this expiry if it is missing.
        vivify: Option<Exptime>,
        /// In the meta protocol: have a client renew the item if it expires within this many
        /// seconds.
        recache: Option<u32>,
    },
    Store {
        mode: Mode,
        text: Text,
        flags: u32,
        exptime: Exptime,
        /// The CAS value that the present item must have.
        compare: Option<u64>,
        /// In the meta protocol: if the present item has a higher CAS value, store the new item as
        /// stale.
        invalidates: bool,
    },
    Count {
        is_up: bool,
        delta: u64,
        /// In the binary and meta protocols: the initial value and expiry of a missing item.
        create: Option<(u64, Exptime)>,
        compare: Option<u64>,
    },
    Touch {
        exptime: Exptime,
    },
    Delete {
        compare: Option<u64>,
        /// In the meta protocol: make the item stale instead, with this expiry.
        invalidates: Option<Exptime>,
    },
    /// A request without effect that ends a batch. Its reply shows that all earlier requests were
    /// answered.
    Fence,
}

/// A request without a reply so far.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) dialect: Dialect,
    pub(super) ask: Ask,
    /// The keys. Only a classic `get` can have several.
    pub(super) keys: Vec<(Key, Floor)>,
    /// The opaque that identifies the reply, if the protocol has opaques.
    pub(super) number: u32,
    /// Whether the request suppresses the ordinary reply.
    pub(super) is_quiet: bool,
    /// The server's clock before the request was sent.
    pub(super) earliest: u32,
}

impl Exptime {
    /// Returns the encoding in the text protocols.
    pub(super) fn signed(self) -> i64 {
        match self {
            Self::Never => 0,
            Self::Past => -1,
            Self::In(seconds) => seconds.into(),
            Self::At(second) => second.into(),
        }
    }

    /// Returns the encoding in the binary protocol, where the past is a second of 1970.
    pub(super) fn unsigned(self) -> u32 {
        match self {
            Self::Past => 60 * 60 * 24 * 30 + 1,
            _ => self.signed() as u32,
        }
    }
}

impl Text {
    pub(super) fn len(self, pool: &Pool) -> usize {
        let mut bytes = Vec::new();
        match self {
            Self::Piece { length, .. } => length as usize,
            _ => {
                pool.push(self, &mut bytes);
                bytes.len()
            }
        }
    }
}

/// The pool of random bytes, including line ends, from which values are taken.
pub(super) struct Pool(Vec<u8>);

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} bytes)", self.0.len())
    }
}

impl Pool {
    pub(super) fn new() -> Self {
        let mut bytes = vec![0; PLACES + MAX_VALUE];
        SmallRng::seed_from_u64(1).fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// Appends a value. Only values of counters begin with a digit, so that no other value can be
    /// counted.
    pub(super) fn push(&self, text: Text, out: &mut Vec<u8>) {
        let start = out.len();
        match text {
            Text::Piece { place, length } => {
                out.extend_from_slice(&self.0[usize::from(place)..][..length as usize]);
                if let Some(first) = out.get_mut(start) {
                    *first = b'v';
                }
            }
            Text::Number(number) => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
            Text::Marked(Mark { key, writer, version }) => {
                out.push(b'm');
                out.extend_from_slice(&key.to_le_bytes());
                out.extend_from_slice(&writer.to_le_bytes());
                out.extend_from_slice(&version.to_le_bytes());
                let random = scramble(u64::from(version) << 32 | u64::from(writer) << 16 | u64::from(key));
                let most = if random.is_multiple_of(64) { 20_000 } else { 500 };
                let (place, length) = ((random >> 16) as u16, (random >> 40) as usize % most);
                out.extend_from_slice(&self.0[usize::from(place)..][..length]);
            }
        }
    }

    /// Returns the mark of a shared value, if the value is complete.
    pub(super) fn mark(&self, value: &[u8]) -> Option<Mark> {
        let field = |at: usize| value.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
        let version = u32::from(field(5)?) | u32::from(field(7)?) << 16;
        let mark = Mark { key: field(1)?, writer: field(3)?, version };
        let mut whole = Vec::with_capacity(value.len());
        self.push(Text::Marked(mark), &mut whole);
        (whole == value).then_some(mark)
    }
}

/// The names of a client's keys.
#[derive(Debug)]
pub(super) struct Names {
    /// A prefix that all clients of this process share.
    prefix: String,
    client: usize,
}

impl Names {
    pub(super) fn new(prefix: &str, client: usize) -> Self {
        Self { prefix: prefix.to_owned(), client }
    }

    pub(super) fn of(&self, key: Key) -> Vec<u8> {
        let Self { prefix, client } = self;
        match key {
            Key::Own { slot, generation } => {
                let mut name = format!("{prefix}{client}-{slot}-{generation}").into_bytes();
                let length = match slot % 16 {
                    3 => 250,
                    7 | 11 => 60,
                    _ => 0,
                };
                name.resize(length.max(name.len()), b'.');
                name
            }
            Key::Value(index) => format!("{prefix}value-{index}").into_bytes(),
            Key::Counter(index) => format!("{prefix}counter-{index}").into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_shared_values_identify_their_writer() {
        let pool = Pool::new();
        let mark = Mark { key: 3, writer: 300, version: 70_000 };
        let mut value = Vec::new();
        pool.push(Text::Marked(mark), &mut value);
        assert_eq!(pool.mark(&value), Some(mark));
        for at in 0..value.len() {
            value[at] ^= 1;
            assert_ne!(pool.mark(&value), Some(mark), "{at}");
            value[at] ^= 1;
        }
        assert_eq!(pool.mark(&value[..value.len() - 1]), None);
        assert_eq!(pool.mark(b""), None);
    }

    #[test]
    fn keys_are_as_long_as_may_be() {
        let names = Names::new("p", 7);
        assert_eq!(names.of(Key::Own { slot: 3, generation: 0 }).len(), 250);
        assert_eq!(names.of(Key::Own { slot: 4, generation: 1 }), b"p7-4-1");
    }
}
