//! Replies of servers, independent of the protocol.

use crate::client::reply::Reported;

/// The reply for one key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Done(Reported),
    NotFound,
    NotStored,
    Exists,
    NotNumeric,
    Refused(Refusal),
    /// The server sent no reply, as requested.
    Unspoken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    TooLarge,
    OutOfMemory,
    /// Memory ran out after a part of the value had arrived.
    Midway,
}

/// The result of parsing the beginning of the input as the reply to the oldest request.
#[derive(Debug, PartialEq)]
pub(super) enum Parsed {
    /// The replies, one per key, and their length in bytes.
    Whole(Vec<Reply>, usize),
    /// An incomplete reply. At least this many bytes are needed.
    Part(usize),
    /// The input is the reply to a later request, so this request has no reply.
    Silent,
}
