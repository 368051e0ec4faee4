//! Replies of the binary protocol, appended to an output buffer.

use super::{Header, REPLY_MAGIC, Status};

/// Appends a reply to the request with this `header`.
pub fn packet(out: &mut Vec<u8>, header: &Header, status: Status, unique: u64, [extras, key, value]: [&[u8]; 3]) {
    let body = extras.len() + key.len() + value.len();
    out.reserve(super::HEADER + body);
    out.extend_from_slice(&[REPLY_MAGIC, header.opcode]);
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    out.extend_from_slice(&[extras.len() as u8, 0]);
    out.extend_from_slice(&(status as u16).to_be_bytes());
    out.extend_from_slice(&(body as u32).to_be_bytes());
    out.extend_from_slice(&header.opaque.to_be_bytes());
    out.extend_from_slice(&unique.to_be_bytes());
    for part in [extras, key, value] {
        out.extend_from_slice(part);
    }
}

/// Appends a reply without a body.
pub fn success(out: &mut Vec<u8>, header: &Header, unique: u64) {
    packet(out, header, Status::Success, unique, [b"", b"", b""]);
}

/// Appends an item: flags, key (if it is to be told) and value.
pub fn value(out: &mut Vec<u8>, header: &Header, flags: u32, unique: u64, key: &[u8], value: &[u8]) {
    packet(out, header, Status::Success, unique, [&flags.to_be_bytes(), key, value]);
}

/// Appends a failure, with the text that belongs to it.
pub fn failure(out: &mut Vec<u8>, header: &Header, status: Status) {
    packet(out, header, status, 0, [b"", b"", status.text().as_bytes()]);
}
