//! The binary protocol: packets of a 24-byte header, extras, a key and a value.
//!
//! ```
//! use relativist_memcache::binary::{Decoded, Decoder, Opcode, reply};
//! use relativist_memcache::Limits;
//!
//! let get = b"\x80\x00\x00\x05\0\0\0\0\0\0\0\x05\0\0\0\x2a\0\0\0\0\0\0\0\0apple";
//! let mut out = Vec::new();
//! match Decoder::new(Limits::default()).decode(get, true) {
//!     Decoded::Request { request, .. } => {
//!         assert_eq!((request.opcode, request.key), (Opcode::Get, &b"apple"[..]));
//!         reply::value(&mut out, &request.header, 7, 42, b"", b"green");
//!     }
//!     other => panic!("{other:?}"),
//! }
//! assert_eq!(out.len(), 24 + 4 + 5);
//! ```

mod decode;
mod opcode;
pub mod reply;

pub use decode::{Decoded, Decoder, Header, Request};
pub use opcode::{Opcode, Status};

/// The first byte of every request.
pub const REQUEST_MAGIC: u8 = 0x80;
/// The first byte of every reply.
pub const REPLY_MAGIC: u8 = 0x81;
/// The length of a header, in bytes.
pub const HEADER: usize = 24;
/// The maximum length of the name of a SASL mechanism, in bytes.
pub const MAX_MECHANISM: usize = 32;
