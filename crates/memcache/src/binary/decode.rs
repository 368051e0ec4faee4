//! The incremental decoder of the binary protocol.

use super::{HEADER, Opcode, REQUEST_MAGIC, Status};
use crate::decode::{Limits, PendingStore};
use crate::login::MAX_LOGIN;
use crate::words::MAX_KEY;

/// The maximum length of a body. The decoder closes the connection on a longer one without waiting
/// for it.
const MAX_BODY: usize = 1 << 30;

/// The header of a request, without the lengths.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// The opcode as sent; replies repeat it.
    pub opcode: u8,
    /// An opaque number; replies repeat it.
    pub opaque: u32,
    /// The CAS value to compare with; 0 for none.
    pub cas: u64,
}

/// One decoded request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request<'b> {
    /// The operation.
    pub opcode: Opcode,
    /// Whether the usual outcome gets no reply: a miss of a fetch, the success of any other
    /// request.
    pub is_quiet: bool,
    /// The header, which replies repeat in part.
    pub header: Header,
    /// The operation's further arguments. The opcode determines their length.
    pub extras: &'b [u8],
    /// The key: 1 to [`MAX_KEY`] bytes, or empty where none is required.
    pub key: &'b [u8],
    /// The value, which may be empty.
    pub value: &'b [u8],
}

impl<'b> Request<'b> {
    /// Returns the request that begins with `front`, with an empty value. The decoder has checked
    /// `front` before, and the caller has collected the value separately
    /// ([`Decoder::pending_store`]). Returns `None` if no request begins with `front`.
    pub fn of_front(front: &'b [u8]) -> Option<Request<'b>> {
        let (fixed, rest) = front.split_first_chunk()?;
        let (header, lengths) = parse_header(fixed);
        let (opcode, is_quiet) = Opcode::from_byte(header.opcode)?;
        let (extras, key) = rest.split_at_checked(lengths.extras.into())?;
        Some(Request { opcode, is_quiet, header, extras, key, value: b"" })
    }

    /// Returns the big-endian 32-bit number at byte `at` of the extras; 0 if they are too short.
    pub fn extra_32(&self, at: usize) -> u32 {
        let bytes = self.extras.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    /// Returns the big-endian 64-bit number at byte `at` of the extras. Each half for which they
    /// are too short is 0.
    pub fn extra_64(&self, at: usize) -> u64 {
        u64::from(self.extra_32(at)) << 32 | u64::from(self.extra_32(at + 4))
    }
}

/// The result of [`Decoder::decode`].
///
/// The caller drops exactly the first `consumed` bytes before the next call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decoded<'b> {
    /// A request for the server to execute and answer.
    Request {
        /// The number of consumed bytes.
        consumed: usize,
        /// The request.
        request: Request<'b>,
    },
    /// A request that the decoder rejected. The server answers it with a
    /// [`failure`](super::reply::failure).
    Reject {
        /// The number of consumed bytes.
        consumed: usize,
        /// The request's header.
        header: Header,
        /// Why the request was rejected.
        status: Status,
        /// Whether the server must close the connection after the reply.
        closes: bool,
    },
    /// A store whose value exceeds [`Limits::max_value`]. The server sends no reply yet: a
    /// [`Reject`](Self::Reject) follows once the client has sent the whole value.
    TooLarge {
        /// The number of consumed bytes: all before the value.
        consumed: usize,
        /// The store's key.
        key: &'b [u8],
        /// Whether the server must remove the old item now, because the store would have replaced
        /// it unconditionally.
        replaces: bool,
    },
    /// The request is incomplete: the decoder needs more bytes.
    Incomplete {
        /// The number of consumed bytes: part of a body that is being skipped; otherwise 0.
        consumed: usize,
    },
    /// The server must close the connection without a reply to this request. It still sends earlier
    /// replies.
    Close,
}

/// Finds the requests in a connection's bytes.
///
/// The decoder buffers no bytes. The connection's buffer must have room for a whole request: a
/// header, extras, a key and a value of [`Limits::max_value`] bytes.
#[derive(Clone, Debug)]
pub struct Decoder {
    limits: Limits,
    /// The number of bytes of a rejected body that have yet to arrive, the request's header, and
    /// the status of the reply.
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
    /// Returns the offset of the value in a packet.
    fn value_start(self) -> usize {
        HEADER + self.key + usize::from(self.extras)
    }

    fn value(self) -> usize {
        self.body - self.key - usize::from(self.extras)
    }
}

impl Decoder {
    /// Returns a decoder for a new connection.
    pub fn new(limits: Limits) -> Self {
        Self { limits, skipping: None }
    }

    /// Decodes the request that `input` begins with. While `is_authenticated` is false, rejects all
    /// requests that are not part of a login.
    ///
    /// `input` must start after the bytes that the previous call consumed. Never panics and
    /// allocates nothing. Every result except [`Incomplete`](Decoded::Incomplete) and
    /// [`Close`](Decoded::Close) consumes at least one byte.
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

    /// Returns the store that `input` begins with, if its value has not yet arrived completely.
    /// Call this only after [`decode`](Self::decode) has returned
    /// [`Incomplete`](Decoded::Incomplete). Returns `None` if there is no such store, or if it
    /// appends or prepends to another value.
    ///
    /// The caller may then collect the value outside its input buffer. It keeps the first
    /// [`front`](PendingStore::front) bytes, collects the value, and calls [`Request::of_front`]
    /// with these bytes to get the request. The next request begins after the value.
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

    /// Whether `input` ends within the value of a request. Call this only after
    /// [`decode`](Self::decode) has returned [`Incomplete`](Decoded::Incomplete).
    pub fn is_receiving(&self, input: &[u8]) -> bool {
        let front = input.first_chunk().map(|header| parse_header(header).1.value_start());
        self.skipping.is_none() && front.is_some_and(|front| input.len() >= front)
    }

    /// Whether the next bytes are the rest of a rejected request.
    pub fn is_skipping(&self) -> bool {
        self.skipping.is_some()
    }

    /// Skips the bytes that have arrived of the `remaining` bytes that begin at `start`.
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
