//! A message in pieces, as the kernel wants it described.

use super::super::buffer::{MAX_PIECES, Output};
use libc::{iovec, msghdr};
use std::mem;
use std::ptr;

/// Where the pieces are. Refers to itself while it describes something, so it must not move then.
pub(super) struct Message {
    header: msghdr,
    pieces: [iovec; MAX_PIECES],
}

// SAFETY: the pointers are for the kernel, which does not care for threads; nobody else follows
// them.
unsafe impl Send for Message {}

impl Default for Message {
    fn default() -> Message {
        // SAFETY: numbers, and pointers that may be null: the header of a message to nowhere in
        // particular, with nothing in it.
        let header = unsafe { mem::zeroed() };
        Message { header, pieces: [iovec { iov_base: ptr::null_mut(), iov_len: 0 }; MAX_PIECES] }
    }
}

impl Message {
    /// Describes the output, `most` bytes of it at most. Valid while both stay unchanged and
    /// unmoved.
    pub(super) fn describe(&mut self, output: &Output, most: usize) -> *const msghdr {
        let piece = |bytes: &[u8]| iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let count = output.fill(&mut self.pieces, most, piece);
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = count as _;
        &raw const self.header
    }
}
