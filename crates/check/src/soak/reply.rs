//! Replies of servers, independent of the protocol.

use std::fmt;

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

/// The reported properties of an item.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Reported {
    pub(super) value: Option<Vec<u8>>,
    pub(super) number: Option<u64>,
    pub(super) flags: Option<u32>,
    pub(super) cas: Option<u64>,
    /// The time to live in seconds. The inner `None` means that the item never expires.
    pub(super) ttl: Option<Option<u32>>,
    pub(super) size: Option<u64>,
    pub(super) was_fetched: Option<bool>,
    pub(super) facts: Option<Facts>,
}

/// Flags that the meta protocol returns even if the request does not ask for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The client that receives this reply has to renew the item.
    pub(super) is_won: bool,
    pub(super) is_stale: bool,
    /// Another client was selected to renew the item.
    pub(super) is_claimed: bool,
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
