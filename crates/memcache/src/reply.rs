//! Replies of the text protocol: constant lines, and encoders that append to an output buffer.
//!
//! [`value`], [`number`] and [`version`] grow the buffer at most once.
//!
//! ```
//! use relativist_memcache::reply;
//!
//! let mut out = Vec::new();
//! reply::value(&mut out, b"apple", 7, Some(42), b"green");
//! out.extend_from_slice(reply::END);
//! assert_eq!(out, b"VALUE apple 7 5 42\r\ngreen\r\nEND\r\n");
//! ```

use std::fmt::Display;
use std::io::Write;

/// The value was stored.
pub const STORED: &[u8] = b"STORED\r\n";
/// The condition of `add`, `replace`, `append` or `prepend` was false.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// The item of a `cas` has changed.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// The item does not exist.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// The item was removed.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// The item's expiry was set.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
/// The command was executed.
pub const OK: &[u8] = b"OK\r\n";
/// Ends a list of values or statistics.
pub const END: &[u8] = b"END\r\n";
/// The statistics were reset.
pub const RESET: &[u8] = b"RESET\r\n";
/// The command, or the group of statistics, does not exist.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// The line is malformed.
pub const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
/// The value does not end at its announced length.
pub const BAD_DATA_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
/// The expiry is not a number.
pub const INVALID_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
/// The delta is not a number.
pub const INVALID_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
/// The stored value is not a number.
pub const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// The value exceeds the maximum item size.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// The memory limit is reached.
pub const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
/// The server has its maximum number of connections.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections\r\n";

const CRLF: &[u8] = b"\r\n";
/// The number of decimal digits of the largest `u64`.
const MAX_DIGITS: usize = 20;

/// Appends a hit: the `VALUE` line, the value and its CR LF. Pass `cas` for `gets` and `gats`.
///
/// The caller ends the list of hits with [`END`].
#[inline]
pub fn value(out: &mut Vec<u8>, key: &[u8], flags: u32, cas: Option<u64>, value: &[u8]) {
    // "VALUE key flags length unique\r\n" + value + "\r\n"
    out.reserve(b"VALUE ".len() + key.len() + 3 * (1 + MAX_DIGITS) + 2 * CRLF.len() + value.len());
    value_line(out, key, flags, cas, value.len());
    out.extend_from_slice(value);
    out.extend_from_slice(CRLF);
}

/// Appends the `VALUE` line of a hit. The caller sends the value of `length` bytes, and its CR LF,
/// from another buffer.
#[inline]
pub fn value_line(out: &mut Vec<u8>, key: &[u8], flags: u32, cas: Option<u64>, length: usize) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    spaced(out, flags.into());
    spaced(out, length as u64);
    if let Some(cas) = cas {
        spaced(out, cas);
    }
    out.extend_from_slice(CRLF);
}

/// Appends a line with only a number: the reply to `incr` and `decr`.
pub fn number(out: &mut Vec<u8>, number: u64) {
    out.reserve(MAX_DIGITS + CRLF.len());
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(CRLF);
}

/// Appends one statistic: `STAT name value`. The caller ends the list with [`END`].
///
/// ```
/// use relativist_memcache::reply;
///
/// let mut out = Vec::new();
/// reply::stat(&mut out, "curr_items", 12);
/// assert_eq!(out, b"STAT curr_items 12\r\n");
/// ```
pub fn stat(out: &mut Vec<u8>, name: impl Display, value: impl Display) {
    write!(out, "STAT {name} {value}\r\n").expect("writing to a Vec does not fail");
}

/// Appends the reply to `version`.
pub fn version(out: &mut Vec<u8>, version: &str) {
    out.reserve(b"VERSION ".len() + version.len() + CRLF.len());
    out.extend_from_slice(b"VERSION ");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(CRLF);
}

#[inline]
fn spaced(out: &mut Vec<u8>, number: u64) {
    out.push(b' ');
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
