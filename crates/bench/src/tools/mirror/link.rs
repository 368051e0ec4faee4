//! A connection to a server, on which a fence follows each request.

use std::io::{ErrorKind, Write};
use std::sync::Arc;

use anyhow::{Result, ensure};
use relativist_check::client::reply::{Code, Encoding, MAX_VALUE, Received, read};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

/// The maximum number of requests that are sent to a server together, and of their bytes. A larger
/// request is sent alone. So neither side waits for the other one to read: the others fit into the
/// buffers of the sockets.
pub(super) const MAX_BATCH: usize = 256;
pub(super) const MAX_BYTES: usize = 32 << 10;

const READ: usize = 64 << 10;

/// Reads what has arrived, and appends it. Returns false at the end of the stream.
pub(super) fn receive(socket: &Socket, input: &mut Vec<u8>) -> std::io::Result<bool> {
    input.reserve(READ);
    loop {
        match rustix::io::read(socket, spare_capacity(input)).map_err(std::io::Error::from) {
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            other => return Ok(other? > 0),
        }
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: Arc<Socket>,
    encoding: Encoding,
    input: Vec<u8>,
    /// The beginning of the next reply, and the end of its complete lines or packets.
    start: usize,
    end: usize,
}

impl Link {
    pub(super) fn new(socket: Socket, encoding: Encoding) -> Self {
        Self { socket: Arc::new(socket), encoding, input: Vec::new(), start: 0, end: 0 }
    }

    /// Returns whether a connection without unanswered requests is still open.
    pub(super) fn is_open(&self) -> bool {
        poll(&mut [PollFd::new(&*self.socket, PollFlags::IN)], Some(&Timespec::default())) == Ok(0)
    }

    /// Sends `output`. Appends `count` replies to `replies`, each with the reply to its fence.
    pub(super) fn exchange(
        &mut self,
        output: &[u8],
        count: usize,
        replies: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<()> {
        (&*self.socket).write_all(output)?;
        while replies.len() < count {
            let Received::Whole(answer, length) = read(self.encoding, &self.input[self.end..], MAX_VALUE)? else {
                self.input.drain(..self.start);
                (self.start, self.end) = (0, self.end - self.start);
                let goes_on = receive(&self.socket, &mut self.input)?;
                ensure!(goes_on, "a server closed a connection with unanswered requests");
                continue;
            };
            let begin = self.end;
            self.end += length;
            if answer.code == Code::Fence {
                replies.push((self.input[self.start..begin].to_vec(), self.input[begin..self.end].to_vec()));
                self.start = self.end;
            }
        }
        Ok(())
    }

    /// Returns what has arrived after the last fence.
    pub(super) fn rest(&self) -> &[u8] {
        &self.input[self.start..]
    }
}
