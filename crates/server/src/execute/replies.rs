//! Replies on their way to a client: bytes, and between them large values that are sent from where
//! they lie.

use relativist_cache::ValueRef;
use std::collections::VecDeque;

/// Replies in the order of sending.
#[derive(Debug, Default)]
pub struct Replies {
    /// All but the values that lie elsewhere.
    pub bytes: Vec<u8>,
    /// Those, each with its place: how many of the bytes come before it.
    pub(crate) values: VecDeque<(usize, ValueRef)>,
    /// Bytes of all values.
    pub(crate) elsewhere: usize,
}

impl Replies {
    /// The number of bytes to be sent.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.elsewhere
    }

    /// Whether that is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a value that stays where it is.
    pub(crate) fn append(&mut self, value: ValueRef) {
        self.elsewhere += value.len();
        self.values.push_back((self.bytes.len(), value));
    }

    /// Drops the first value.
    pub(crate) fn drop_first_value(&mut self) {
        if let Some((_, value)) = self.values.pop_front() {
            self.elsewhere -= value.len();
        }
    }

    /// All of it in one piece.
    pub fn into_bytes(self) -> Vec<u8> {
        debug_assert!(self.values.is_empty(), "where one piece is wanted, values are copied");
        self.bytes
    }
}
