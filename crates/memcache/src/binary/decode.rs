//! The incremental decoder of packets.

use super::{HEADER, Opcode, REQUEST_MAGIC, Status};
use crate::decode::{Limits, PendingStore};
use crate::login::MAX_LOGIN;
use crate::words::MAX_KEY;

/// A longer body is refused unseen.
const MAX_BODY: usize = 1 << 30;

/// The header of a request, as far as it is not about lengths.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// The opcode as sent; replies repeat it.
    pub opcode: u8,
    /// Replies repeat it.
    pub opaque: u32,
    /// The unique to compare with, 0 for none.
    pub cas: u64,
}

/// A request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request<'b> {
    /// What to do.
    pub opcode: Opcode,
    /// Whether the ordinary outcome is not answered: a miss of a fetch, the success of other
    /// commands.
    pub is_quiet: bool,
    /// The header.
    pub header: Header,
    /// Further arguments of the opcode.
    pub extras: &'b [u8],
    /// The key: 1 to [`MAX_KEY`] bytes where there must be one.
    pub key: &'b [u8],
    /// The value.
    pub value: &'b [u8],
}

impl<'b> Request<'b> {
    /// The request that begins with `front`, whose value was collected elsewhere
    /// ([`Decoder::pending_store`]). None if there is none.
    pub fn of_front(front: &'b [u8]) -> Option<Request<'b>> {
        let (fixed, rest) = front.split_first_chunk()?;
        let (header, lengths) = parse_header(fixed);
        let (opcode, is_quiet) = Opcode::from_byte(header.opcode)?;
        let (extras, key) = rest.split_at_checked(lengths.extras.into())?;
        Some(Request { opcode, is_quiet, header, extras, key, value: b"" })
    }

    /// The big-endian number that begins at byte `at` of the extras; 0 if they are too short.
    pub fn extra_32(&self, at: usize) -> u32 {
        let bytes = self.extras.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    /// The big-endian 64-bit number that begins at byte `at` of the extras; 0 if they are too
    /// short.
    pub fn extra_64(&self, at: usize) -> u64 {
        u64::from(self.extra_32(at)) << 32 | u64::from(self.extra_32(at + 4))
    }
}

/// What a [`Decoder`] made of its input.
///
/// Before the next call the caller drops the first `consumed` bytes, and nothing else.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decoded<'b> {
    /// A request to be executed and answered.
    Request {
        /// Bytes done with.
        consumed: usize,
        /// What to execute.
        request: Request<'b>,
    },
    /// A request to be answered with a [`failure`](super::reply::failure).
    Reject {
        /// Bytes done with.
        consumed: usize,
        /// Its header.
        header: Header,
        /// Why.
        status: Status,
        /// Whether the connection is then to be closed.
        closes: bool,
    },
    /// A value that is too large. Do not answer yet: a [`Reject`](Self::Reject) follows when the
    /// client has sent all of it.
    TooLarge {
        /// Bytes done with: all before the value.
        consumed: usize,
        /// Where it was to be stored.
        key: &'b [u8],
        /// Whether to remove the old value now, because it would have been replaced
        /// unconditionally.
        replaces: bool,
    },
    /// Nothing more can be done until further bytes have arrived.
    Incomplete {
        /// Bytes done with: part of a body that is being skipped; otherwise 0.
        consumed: usize,
    },
    /// Close the connection without an answer. (Earlier answers are still sent.)
    Close,
}

/// Finds the requests in a connection's bytes.
///
/// The decoder holds no bytes itself: the connection's buffer must hold a request as a whole, that
/// is a header, extras, a key and a value of [`Limits::max_value`].
#[derive(Clone, Debug)]
pub struct Decoder {
    limits: Limits,
    /// The remaining bytes of a refused body, and the answer that follows it.
    skipping: Option<(usize, Header, Status)>,
}

/// The lengths in a header.
#[derive(Clone, Copy)]
struct Lengths {
    key: usize,
    extras: u8,
    body: usize,
}

impl Lengths {
    /// Where the value begins in a packet.
    fn value_start(self) -> usize {
        HEADER + self.key + usize::from(self.extras)
    }

    fn value(self) -> usize {
        self.body - self.key - usize::from(self.extras)
    }
}

impl Decoder {
    /// A decoder for a fresh connection.
    pub fn new(limits: Limits) -> Self {
        Self { limits, skipping: None }
    }

    /// Decodes what `input` begins with. Before a login, when `is_authenticated` is false, only
    /// what belongs to it is let through.
    ///
    /// `input` must start where the previous call left off. Never panics and allocates nothing.
    /// Whatever is not [`Incomplete`](Decoded::Incomplete) or [`Close`](Decoded::Close) consumes at
    /// least one byte.
    #[must_use]
    pub fn decode<'b>(&mut self, input: &'b [u8], is_authenticated: bool) -> Decoded<'b> {
        if let Some((remaining, header, status)) = self.skipping {
            return self.skip(input, 0, remaining, header, status);
        }
        let Some((fixed, _)) = input.split_first_chunk::<HEADER>() else {
            return Decoded::Incomplete { consumed: 0 };
        };
        if fixed[0] != REQUEST_MAGIC {
            return Decoded::Close;
        }
        let (header, lengths) = parse_header(fixed);
        let reject = |status, closes| Decoded::Reject { consumed: HEADER, header, status, closes };
        let Some((opcode, is_quiet)) = Opcode::from_byte(header.opcode) else {
            if is_authenticated {
                return self.skip(input, HEADER, lengths.body, header, Status::UnknownCommand);
            }
            return reject(Status::AuthFailure, true);
        };
        if !is_authenticated && !opcode.is_open() {
            return reject(Status::AuthFailure, true);
        }
        if lengths.body > MAX_BODY {
            return reject(Status::InvalidArguments, true);
        }
        let Some(front) = input.get(HEADER..lengths.value_start()) else {
            return Decoded::Incomplete { consumed: 0 };
        };
        if lengths.key + usize::from(lengths.extras) > lengths.body {
            return reject(Status::UnknownCommand, true);
        }
        if !opcode.layout().admits(lengths.key, lengths.extras, lengths.value()) || lengths.key > MAX_KEY {
            return reject(Status::InvalidArguments, true);
        }
        if opcode.is_login() && lengths.value() > MAX_LOGIN as usize {
            return reject(Status::InvalidArguments, true);
        }
        let (extras, key) = front.split_at(lengths.extras.into());
        if lengths.value() > self.limits.max_value {
            self.skipping = Some((lengths.value(), header, Status::TooLarge));
            return Decoded::TooLarge { consumed: lengths.value_start(), key, replaces: opcode == Opcode::Set };
        }
        let consumed = HEADER + lengths.body;
        let Some(value) = input.get(lengths.value_start()..consumed) else {
            return Decoded::Incomplete { consumed: 0 };
        };
        Decoded::Request { consumed, request: Request { opcode, is_quiet, header, extras, key, value } }
    }

    /// The store that `input` begins with, if its value has not arrived completely. Call this after
    /// [`decode`](Self::decode) has returned `Incomplete`. None if there is no such store, or if
    /// its value is joined to another one.
    ///
    /// To collect the value elsewhere, keep the first [`front`](PendingStore::front) bytes, from
    /// which [`Request::of_front`] restores the request, and collect the value. The next request
    /// follows it.
    pub fn pending_store<'b>(&self, input: &'b [u8]) -> Option<PendingStore<'b>> {
        let (_, lengths) = parse_header(input.first_chunk()?);
        let front = lengths.value_start();
        let request = self.skipping.is_none().then_some(input.get(..front)?).and_then(Request::of_front)?;
        matches!(request.opcode, Opcode::Set | Opcode::Add | Opcode::Replace).then(|| PendingStore {
            front,
            length: lengths.value(),
            key: request.key,
            is_base64: false,
            flags: request.extra_32(0),
            has_cas: false,
        })
    }

    /// Whether `input` ends within the value of a request. Only for input that
    /// [`decode`](Self::decode) has found incomplete.
    pub fn is_receiving(&self, input: &[u8]) -> bool {
        let front = input.first_chunk().map(|header| parse_header(header).1.value_start());
        self.skipping.is_none() && front.is_some_and(|front| input.len() >= front)
    }

    /// Whether what comes next belongs to a request that is refused, and does not begin one.
    pub fn is_skipping(&self) -> bool {
        self.skipping.is_some()
    }

    /// Skips what is there of the `remaining` bytes that begin at `start`.
    fn skip<'b>(
        &mut self,
        input: &'b [u8],
        start: usize,
        remaining: usize,
        header: Header,
        status: Status,
    ) -> Decoded<'b> {
        let available = input.len() - start;
        if available < remaining {
            self.skipping = Some((remaining - available, header, status));
            return Decoded::Incomplete { consumed: input.len() };
        }
        self.skipping = None;
        Decoded::Reject { consumed: start + remaining, header, status, closes: false }
    }
}

fn parse_header(bytes: &[u8; HEADER]) -> (Header, Lengths) {
    let [_magic, opcode, k0, k1, extras, _type, _v0, _v1, b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = *bytes;
    let lengths = Lengths {
        key: u16::from_be_bytes([k0, k1]).into(),
        extras,
        body: u32::from_be_bytes([b0, b1, b2, b3]) as usize,
    };
    let opaque = u32::from_be_bytes([o0, o1, o2, o3]);
    (Header { opcode, opaque, cas: u64::from_be_bytes(cas) }, lengths)
}
