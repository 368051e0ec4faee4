//! A message in several pieces, described for the kernel (`struct msghdr`).

use super::super::buffer::{MAX_PIECES, Output};
use libc::{iovec, msghdr};
use std::mem;
use std::ptr;

/// The addresses of the pieces. While it describes something, the header points to `pieces`, so it
/// must not move.
pub(super) struct Message {
    header: msghdr,
    pieces: [iovec; MAX_PIECES],
}

// SAFETY: only the kernel follows the pointers, whatever thread submits them.
unsafe impl Send for Message {}

impl Default for Message {
    fn default() -> Message {
        // SAFETY: integers, and pointers that may be null. All zeros describe an empty message.
        let header = unsafe { mem::zeroed() };
        Message { header, pieces: [iovec { iov_base: ptr::null_mut(), iov_len: 0 }; MAX_PIECES] }
    }
}

impl Message {
    /// Describes at most `most` bytes of the output. Valid while both stay unchanged and unmoved.
    pub(super) fn describe(&mut self, output: &Output, most: usize) -> *const msghdr {
        let piece = |bytes: &[u8]| iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let count = output.fill(&mut self.pieces, most, piece);
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = count as _;
        &raw const self.header
    }
}
