//! A connection that sends batches and receives replies at different paces.

use std::io::{Error, ErrorKind, Read, Write};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::RngExt;
use rand::rngs::SmallRng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use super::{Plan, serving};
use crate::client::Address;

/// A server that sends nothing for this long is considered dead.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

const READ: usize = 64 << 10;

/// How a batch is sent and its replies are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// In as few writes as possible.
    Whole,
    Pieces,
    /// Reads nothing until everything is written or a write blocks; then reads little at a time.
    Slow,
}

impl Pace {
    pub(super) fn any(random: &mut SmallRng) -> Self {
        match random.random_range(0..20) {
            0 => Self::Slow,
            1..7 => Self::Pieces,
            _ => Self::Whole,
        }
    }

    /// Returns how many of the `left` bytes the next call writes.
    fn cut(self, left: usize, random: &mut SmallRng) -> usize {
        match self {
            Self::Whole | Self::Slow => left,
            Self::Pieces => {
                let magnitude = random.random_range(0..14);
                left.min(random.random_range(1..=1 << magnitude))
            }
        }
    }

    fn read_at_once(self, random: &mut SmallRng) -> usize {
        match self {
            Self::Whole => READ,
            Self::Pieces => 1 << random.random_range(0..16),
            Self::Slow => random.random_range(1..5_000),
        }
    }
}

#[derive(Debug)]
pub(super) enum Taken {
    /// This many bytes have been consumed.
    Some(usize),
    /// The reply is incomplete. At least this many bytes are needed.
    Wait(usize),
    /// This many bytes have been consumed, and all replies have arrived.
    All(usize),
}

/// How an exchange has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// All replies have arrived.
    Answered,
    /// The server has closed the connection. At most this many bytes have reached it.
    Closed(usize),
}

#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    buffer: Vec<u8>,
    /// The process that serves it, if the server is replaced during the run; otherwise 0.
    pub(super) process: u64,
}

impl Connection {
    /// Connects for requests of the binary protocol, or for those of the others.
    pub(super) fn open(plan: &Plan, address: &Address, is_binary: bool) -> Result<Self> {
        let (socket, process) = serving::connect(plan, address, |socket| serving::process(plan, socket, is_binary))?;
        Self::new(socket, process)
    }

    pub(super) fn new(socket: Socket, process: u64) -> Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, buffer: vec![0; READ], process })
    }

    /// Sends `output`, and calls `take` with the received bytes until all replies have arrived, or
    /// the server has closed the connection.
    pub(super) fn exchange(
        &mut self,
        output: &[u8],
        pace: Pace,
        random: &mut SmallRng,
        mut take: impl FnMut(&[u8]) -> Result<Taken>,
    ) -> Result<Ending> {
        let (mut sent, mut input, mut start, mut needed) = (0, Vec::new(), 0, 1);
        let mut end = output.len();
        let mut is_stuck = false;
        loop {
            while input.len() - start >= needed {
                match take(&input[start..])? {
                    Taken::Some(bytes) => (start, needed) = (start + bytes, 1),
                    Taken::Wait(bytes) => needed = bytes,
                    Taken::All(bytes) => {
                        ensure!(start + bytes == input.len(), "{} bytes too many", input.len() - start - bytes);
                        return Ok(Ending::Answered);
                    }
                }
            }
            input.drain(..std::mem::take(&mut start));
            let is_unsent = sent < end;
            let reads = pace != Pace::Slow || !is_unsent || is_stuck;
            let ready = self.wait(is_unsent, reads)?;
            if ready.intersects(PollFlags::OUT) && is_unsent {
                let piece = &output[sent..][..pace.cut(output.len() - sent, random)];
                match self.write(piece)? {
                    Some(written) => (sent, is_stuck) = (sent + written, written < piece.len()),
                    // Replies may still arrive.
                    None => end = sent,
                }
            } else if is_unsent && !reads {
                is_stuck = true;
            }
            if reads && ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                if pace == Pace::Slow && random.random_range(0..20) == 0 {
                    // Pauses, so that the server has to wait for this client.
                    sleep(Duration::from_millis(random.random_range(0..5)));
                }
                if !self.read(&mut input, pace.read_at_once(random))? {
                    return Ok(Ending::Closed(sent));
                }
            }
        }
    }

    /// Waits until the connection is ready. Waits only briefly if `reads` is false.
    fn wait(&self, writes: bool, reads: bool) -> Result<PollFlags> {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::OUT, writes);
        wanted.set(PollFlags::IN, reads);
        let mut descriptors = [PollFd::new(&self.socket, wanted)];
        let moment = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let timeout = if reads { PATIENCE } else { moment };
        let count = loop {
            match poll(&mut descriptors, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => continue,
                other => break other.context("cannot wait for the server")?,
            }
        };
        ensure!(count > 0 || !reads, "no reply for {} s", PATIENCE.tv_sec);
        Ok(descriptors[0].revents())
    }

    /// Returns how many bytes the socket has accepted; none if the server has closed the
    /// connection.
    fn write(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        match self.socket.write(bytes) {
            Ok(count) => Ok(Some(count)),
            Err(error) if is_passing(&error) => Ok(Some(0)),
            Err(error) if is_closed(&error) => Ok(None),
            Err(error) => Err(error).context("cannot send to the server"),
        }
    }

    /// Returns false if the server has closed the connection.
    fn read(&mut self, input: &mut Vec<u8>, most: usize) -> Result<bool> {
        match self.socket.read(&mut self.buffer[..most.min(READ)]) {
            Ok(0) => return Ok(false),
            Ok(count) => input.extend_from_slice(&self.buffer[..count]),
            Err(error) if is_passing(&error) => (),
            Err(error) if is_closed(&error) => return Ok(false),
            Err(error) => return Err(error).context("cannot receive from the server"),
        }
        Ok(true)
    }

    /// Sends the bytes that the socket accepts without waiting, and disconnects. Returns the number
    /// of sent bytes, and whether the server has closed the connection before.
    pub(super) fn abandon(mut self, output: &[u8], is_reset: bool) -> Result<(usize, bool)> {
        let (mut sent, mut is_closed) = (0, false);
        while sent < output.len() {
            match self.write(&output[sent..])? {
                Some(0) => break,
                Some(count) => sent += count,
                None => {
                    is_closed = true;
                    break;
                }
            }
        }
        if is_reset {
            self.socket.set_linger(Some(Duration::ZERO))?;
        }
        Ok((sent, is_closed))
    }
}

fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn is_closed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}
