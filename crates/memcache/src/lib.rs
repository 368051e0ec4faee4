//! The memcached wire formats: the crate decodes requests from bytes, and encodes replies to bytes.
//!
//! The crate does no I/O, has no clock and stores nothing. A server keeps one [`Decoder`] per
//! connection, passes it the bytes that have arrived, and drops the bytes that the decoder has
//! consumed. It executes each [`Command`] and appends the reply with the functions of [`reply`].
//! Input may be split anywhere. The decoder remembers its position: if a large value arrives in
//! many pieces, it does not search or parse the earlier pieces again.
//!
//! ```
//! use relativist_memcache::{Command, Decoded, Decoder, Limits, reply};
//!
//! let mut decoder = Decoder::new(Limits::default());
//! let mut input: &[u8] = b"get apple pear\r\nincr apple x\r\nget pl";
//! let mut out = Vec::new();
//! loop {
//!     match decoder.decode(input) {
//!         Decoded::Command { consumed, command } => {
//!             if let Command::Get { keys, .. } = command {
//!                 for key in keys {
//!                     reply::value(&mut out, key, 0, None, b"green");
//!                 }
//!                 out.extend_from_slice(reply::END);
//!             }
//!             input = &input[consumed..];
//!         }
//!         Decoded::Reject { consumed, rejection } => {
//!             out.extend_from_slice(rejection.reply());
//!             input = &input[consumed..];
//!         }
//!         Decoded::TooLarge { .. } | Decoded::Close => unreachable!("not with this input"),
//!         Decoded::Incomplete { consumed, .. } => {
//!             input = &input[consumed..];
//!             break;
//!         }
//!     }
//! }
//! assert_eq!(input, b"get pl");
//! assert_eq!(
//!     out,
//!     b"VALUE apple 0 5\r\ngreen\r\nVALUE pear 0 5\r\ngreen\r\nEND\r\n\
//!       CLIENT_ERROR invalid numeric delta argument\r\n"
//! );
//! ```
//!
//! # Protocols
//! The crate implements the protocols of memcached 1.6.45, with their error replies and their
//! quirks: text (the classic commands and the meta commands), and binary ([`binary`]). A
//! connection's first byte selects the protocol ([`Protocol::of_first_byte`]). A server may require
//! a login before the text protocol ([`LoginDecoder`]).
//!
//! Two differences from memcached are deliberate:
//! * a `get` or `gets` line that has not ended within [`MAX_GET_LINE`] bytes closes the connection
//!   (memcached buffers it without limit);
//! * a key over [`MAX_KEY`] bytes in `get`, `gets`, `gat` or `gats` is answered by the error line
//!   alone (memcached sends a stray empty line after it).
//!
//! # Memory per connection
//! A client can make the server buffer one request: a line, of at most [`MAX_UNFINISHED_LINE`]
//! bytes unless it is a `get`, and a value of at most [`Limits::max_value`] bytes. The decoder
//! drops a longer value as it arrives. The decoder itself takes about a hundred bytes, allocates
//! nothing, and never panics.

#![forbid(unsafe_code)]

#[cfg(test)]
use relativist_testing as _;

pub mod binary;
mod command;
mod decode;
mod error;
mod login;
mod meta;
pub mod number;
mod parse;
mod peek;
mod percent;
pub mod reply;
mod words;

pub use command::{Admin, Arithmetic, Command, StoreVerb};
pub use decode::{Decoded, Decoder, Limits, MAX_GET_LINE, MAX_UNFINISHED_LINE, PendingStore};
pub use error::{Rejection, RequestError};
pub use login::{Login, LoginDecoder};
pub use meta::{Meta, MetaFlags, MetaMode, MetaVerb, decode_key, encode_key};
pub use peek::peek_key;
pub use percent::encode_percent;
pub use words::{Keys, MAX_KEY, Words};

/// The protocol of a connection, selected by the first byte that the client sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// The text protocol: lines, decoded by [`Decoder`].
    Text,
    /// The binary protocol: packets with 24-byte headers, decoded by [`binary::Decoder`].
    Binary,
}

impl Protocol {
    /// Returns the protocol that the first byte of a connection selects: 0x80 begins a binary
    /// request, any other byte begins a line of text.
    ///
    /// ```
    /// use relativist_memcache::Protocol;
    /// assert_eq!(Protocol::of_first_byte(b'g'), Protocol::Text);
    /// assert_eq!(Protocol::of_first_byte(0x80), Protocol::Binary);
    /// ```
    pub const fn of_first_byte(byte: u8) -> Self {
        match byte {
            binary::REQUEST_MAGIC => Self::Binary,
            _ => Self::Text,
        }
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
