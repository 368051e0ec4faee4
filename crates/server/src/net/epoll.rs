//! Readiness: the kernel reports which sockets can be read or written (epoll on Linux), and each is
//! read and written by a system call of its own. The kernel reports each change once
//! (edge-triggered), so a request costs one receive and one send, and the loop waits once for all
//! sockets that are ready.

use super::backend::{Backend, Event, Waker};
use super::buffer::{Input, Output, Pool};
use super::stream::{Received, Stream};
use crate::observability::stats::Counters;
use crossbeam_utils::CachePadded;
use mio::{Events, Interest, Poll, Token};
use slab::Slab;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Events taken from the kernel at a time.
const EVENTS: usize = 1024;

/// The token of the waker's events. Connections use their index in the slab.
const WAKER: Token = Token(usize::MAX);

/// Sockets, and their readiness.
pub(super) struct Epoll {
    poll: Poll,
    events: Events,
    lines: Slab<Line>,
    counters: Arc<CachePadded<Counters>>,
    /// Shared with the handle: a wake-up that was not delivered yet would be lost if the last waker
    /// were dropped.
    waker: Arc<Waker>,
}

/// A socket.
struct Line {
    stream: Stream,
    /// Whether there may be something to read. Readiness is reported once, so it must not be
    /// forgotten.
    is_readable: bool,
    /// Whether the client has closed its side.
    is_half_closed: bool,
    has_hung_up: bool,
    /// Bytes received, and sent.
    moved: (u64, u64),
}

impl Backend for Epoll {
    fn new(counters: Arc<CachePadded<Counters>>) -> io::Result<Epoll> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::Poll(mio::Waker::new(poll.registry(), WAKER)?));
        Ok(Epoll { poll, events: Events::with_capacity(EVENTS), lines: Slab::new(), counters, waker })
    }

    fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    fn start(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, _: &mut Pool, events: &mut Vec<Event>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &self.events {
            if event.token() == WAKER {
                events.push(Event::Woken);
            } else if let Some(line) = self.lines.get_mut(event.token().0) {
                line.is_readable |= event.is_readable();
                line.is_half_closed |= event.is_read_closed();
                line.has_hung_up |= event.is_write_closed();
                events.push(Event::Ready(event.token().0));
            }
        }
        Ok(())
    }

    fn open(&mut self, mut stream: Stream) -> io::Result<usize> {
        let entry = self.lines.vacant_entry();
        let key = entry.key();
        self.poll.registry().register(&mut stream, Token(key), Interest::READABLE | Interest::WRITABLE)?;
        entry.insert(Line { stream, is_readable: false, is_half_closed: false, has_hung_up: false, moved: (0, 0) });
        Ok(key)
    }

    fn receive(&mut self, key: usize, pool: &mut Pool, input: &mut Input) -> io::Result<Received> {
        let line = &mut self.lines[key];
        if !line.is_readable {
            return Ok(Received::Nothing);
        }
        pool.lend_input(input);
        let received = line.stream.receive(input, &mut line.is_readable, &mut line.moved.0, &self.counters)?;
        // The end of input, once announced, is not announced again, but must be read.
        line.is_readable |= received == Received::Bytes && line.is_half_closed;
        Ok(received)
    }

    fn arrived(&self, _key: usize) -> &[u8] {
        b""
    }

    /// Does nothing: this backend receives only when asked.
    fn expect(&mut self, _: usize, _: &mut Input) {}

    fn is_readable(&self, key: usize) -> bool {
        self.lines[key].is_readable
    }

    fn has_hung_up(&self, key: usize) -> bool {
        self.lines[key].has_hung_up
    }

    fn send(&mut self, key: usize, _: &mut Pool, output: &mut Output) -> io::Result<bool> {
        if !output.is_empty() {
            let line = &mut self.lines[key];
            let count = output.drain_into(&mut line.stream)?;
            self.counters.bytes_written.add(count as u64);
            line.moved.1 += count as u64;
        }
        Ok(output.is_empty())
    }

    fn held(&self, _: usize) -> (usize, usize) {
        (0, 0)
    }

    fn moved(&self, key: usize) -> (u64, u64) {
        let line = &self.lines[key];
        (line.moved.0, line.stream.acknowledged().unwrap_or(line.moved.1))
    }

    fn close(&mut self, key: usize) {
        // Dropping the socket closes it, which also ends its registration.
        self.lines.remove(key);
    }
}
