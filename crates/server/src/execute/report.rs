//! The destination of statistics, in either protocol.

use relativist_memcache::binary::{self, Header, Status};
use relativist_memcache::reply;
use relativist_store::work::{self, Work};
use std::fmt::Display;

/// The destination of statistics.
pub(super) struct Report<'o> {
    out: &'o mut Vec<u8>,
    /// The request to reply to, if it came by the binary protocol.
    request: Option<Header>,
}

impl<'o> Report<'o> {
    /// A report in text, or a reply to a `request` of the binary protocol.
    pub(super) fn new(out: &'o mut Vec<u8>, request: Option<Header>) -> Report<'o> {
        Report { out, request }
    }

    /// Adds a statistic.
    pub(super) fn stat(&mut self, name: impl Display, value: impl Display) {
        work::charge(Work::Lines(1));
        match &self.request {
            None => reply::stat(self.out, name, value),
            Some(header) => {
                let (name, value) = (name.to_string(), value.to_string());
                binary::reply::packet(self.out, header, Status::Success, 0, [b"", name.as_bytes(), value.as_bytes()]);
            }
        }
    }
}
