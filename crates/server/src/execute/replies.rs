//! Replies to a client: bytes, and between them pinned large values, which are sent from memory of
//! the cache without a copy.

use relativist_store::ValueRef;
use std::collections::VecDeque;

/// Replies in the order of sending.
#[derive(Debug, Default)]
pub struct Replies {
    /// All bytes but those of pinned values.
    pub bytes: Vec<u8>,
    /// The pinned values, each with the number of `bytes` that precede it.
    pub(crate) values: VecDeque<(usize, ValueRef)>,
    /// The length of all pinned values together.
    pub(crate) pinned_len: usize,
}

impl Replies {
    /// The number of bytes to be sent.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.pinned_len
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a pinned value, without a copy.
    pub(crate) fn append(&mut self, value: ValueRef) {
        self.pinned_len += value.len();
        self.values.push_back((self.bytes.len(), value));
    }

    /// Drops the first pinned value.
    pub(crate) fn drop_first_value(&mut self) {
        if let Some((_, value)) = self.values.pop_front() {
            self.pinned_len -= value.len();
        }
    }

    /// Returns the bytes of replies that have no pinned values.
    pub fn into_bytes(self) -> Vec<u8> {
        debug_assert!(self.values.is_empty(), "where one piece is wanted, values are copied");
        self.bytes
    }
}

/// Appends the reply, unless the client has sent `noreply`.
pub(super) fn append_reply(out: &mut Vec<u8>, noreply: bool, reply: &[u8]) {
    if !noreply {
        out.extend_from_slice(reply);
    }
}
