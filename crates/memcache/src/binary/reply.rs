//! Replies of the binary protocol, appended to an output buffer.

use super::{Header, REPLY_MAGIC, Status};

/// Appends a reply to the request with this `header`.
pub fn packet(out: &mut Vec<u8>, header: &Header, status: Status, cas: u64, [extras, key, value]: [&[u8]; 3]) {
    out.reserve(super::HEADER + extras.len() + key.len() + value.len());
    front(out, header, status, cas, [extras, key], value.len());
    out.extend_from_slice(value);
}

/// Appends a packet without its value of `length` bytes.
fn front(out: &mut Vec<u8>, header: &Header, status: Status, cas: u64, [extras, key]: [&[u8]; 2], length: usize) {
    let body = extras.len() + key.len() + length;
    out.extend_from_slice(&[REPLY_MAGIC, header.opcode]);
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    out.extend_from_slice(&[extras.len() as u8, 0]);
    out.extend_from_slice(&(status as u16).to_be_bytes());
    out.extend_from_slice(&(body as u32).to_be_bytes());
    out.extend_from_slice(&header.opaque.to_be_bytes());
    out.extend_from_slice(&cas.to_be_bytes());
    out.extend_from_slice(extras);
    out.extend_from_slice(key);
}

/// Returns the status and the length of the reply that `bytes` begins with. Returns `None` if its
/// header is incomplete.
pub fn status_and_length(bytes: &[u8]) -> Option<(u16, usize)> {
    let [_magic, _opcode, _k0, _k1, _extras, _type, s0, s1, b0, b1, b2, b3, ..] =
        *bytes.first_chunk::<{ super::HEADER }>()?;
    Some((u16::from_be_bytes([s0, s1]), super::HEADER + u32::from_be_bytes([b0, b1, b2, b3]) as usize))
}

/// Appends a reply without a body.
pub fn success(out: &mut Vec<u8>, header: &Header, cas: u64) {
    packet(out, header, Status::Success, cas, [b"", b"", b""]);
}

/// Appends an item: flags, key (empty if the reply has none) and value.
pub fn value(out: &mut Vec<u8>, header: &Header, flags: u32, cas: u64, key: &[u8], value: &[u8]) {
    packet(out, header, Status::Success, cas, [&flags.to_be_bytes(), key, value]);
}

/// Appends the packet of an item without its value. The caller sends the value of `length` bytes
/// from another buffer.
pub fn value_front(out: &mut Vec<u8>, header: &Header, flags: u32, cas: u64, key: &[u8], length: usize) {
    front(out, header, Status::Success, cas, [&flags.to_be_bytes(), key], length);
}

/// Appends a failure with the text of its status.
pub fn failure(out: &mut Vec<u8>, header: &Header, status: Status) {
    packet(out, header, status, 0, [b"", b"", status.text().as_bytes()]);
}
