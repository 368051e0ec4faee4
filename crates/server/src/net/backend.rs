//! How a worker receives and sends bytes.
//!
//! A connection does not know whether its socket is read when it is ready ([`epoll`](super::epoll))
//! or whether the kernel delivers what has arrived ([`uring`](super::uring)). It asks for received
//! bytes, hands over its output, and learns from events when to ask again.

use super::buffer::{Input, Output, Pool};
use super::stream::{Received, Stream};
use crate::observability::stats::Counters;
use crossbeam_utils::CachePadded;
use rustls::server::UnbufferedServerConnection;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// An event. It names connections by the number that [`Backend::open`] returned; they may have been
/// closed since.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Event {
    /// The waker was used at least once.
    Woken,
    /// There may be something to receive, or room to send.
    Ready(usize),
    /// All output that the backend took over has been sent.
    Sent(usize),
}

/// An implementation of waiting for many sockets, receiving and sending.
pub(super) trait Backend: Sized + Send + 'static {
    /// Creates a backend that counts bytes on `counters`.
    fn new(counters: Arc<CachePadded<Counters>>) -> io::Result<Self>;

    /// The waker, by which another thread ends a wait.
    fn waker(&self) -> Arc<Waker>;

    /// Prepares for waiting. Called once, by the thread that calls the functions below.
    fn start(&mut self) -> io::Result<()>;

    /// Submits operations queued for the kernel, waits for events, and adds them to `events`.
    /// Returns without any after `timeout` or a signal.
    fn wait(&mut self, timeout: Option<Duration>, pool: &mut Pool, events: &mut Vec<Event>) -> io::Result<()>;

    /// Takes over a connection, and returns its number.
    fn open(&mut self, stream: Stream) -> io::Result<usize>;

    /// Receives into `input` once. After an error, which may also be one of sending, the connection
    /// is unusable.
    fn receive(&mut self, key: usize, pool: &mut Pool, input: &mut Input) -> io::Result<Received>;

    /// The bytes that have arrived and were not received yet, as far as they are known without a
    /// system call.
    fn arrived(&self, key: usize) -> &[u8];

    /// Receives the value that `input` expects without being asked, if that saves a copy, until the
    /// next [`receive`](Backend::receive).
    fn expect(&mut self, key: usize, input: &mut Input);

    /// Whether there may be more to receive that will not be announced.
    fn is_readable(&self, key: usize) -> bool;

    /// Whether the client has reset the connection, or both sides are closed, as far as that is
    /// known without a system call.
    fn has_hung_up(&self, key: usize) -> bool;

    /// Sends `output`, and what was left the last time. Returns true if all of it was sent.
    /// Otherwise the caller must not append to `output`, and calls this again after an event, or at
    /// once if the connection [is writable](Backend::is_writable).
    fn send(&mut self, key: usize, pool: &mut Pool, output: &mut Output) -> io::Result<bool>;

    /// Whether the socket may already have room for what [`send`](Backend::send) has left in the
    /// output. No event announces this room.
    fn is_writable(&self, _: usize) -> bool {
        false
    }

    /// The bytes of buffers that the backend holds for the connection: received, and to be sent.
    fn held(&self, key: usize) -> (usize, usize);

    /// The bytes of buffers that the backend holds for all connections together.
    fn shared_buffers(&self) -> usize {
        0
    }

    /// Whether the backend pins memory of items for the connection.
    fn pins_memory(&self, _: usize) -> bool {
        false
    }

    /// The number of bytes received from the client, and the number that it has taken, as far as
    /// known.
    fn moved(&self, key: usize) -> (u64, u64);

    /// Closes the connection. Its number may be reused from now on.
    fn close(&mut self, key: usize);

    /// Encrypts a connection that has transferred nothing yet. Only one backend can do this: see
    /// [`tls`](super::tls).
    fn encrypt(&mut self, _: usize, _: Box<UnbufferedServerConnection>) {
        unreachable!("only the backend for TLS is asked to");
    }

    /// Whether the TLS handshake of the connection is incomplete or has failed.
    fn is_handshaking(&self, _: usize) -> bool {
        false
    }
}

/// Ends the wait of a backend.
pub(super) enum Waker {
    Poll(mio::Waker),
    #[cfg(target_os = "linux")]
    Event(nix::sys::eventfd::EventFd),
}

impl Waker {
    pub(super) fn wake(&self) -> io::Result<()> {
        match self {
            Waker::Poll(waker) => waker.wake(),
            // The number is never read: every addition causes an event.
            #[cfg(target_os = "linux")]
            Waker::Event(event) => event.write(1).map(drop).map_err(io::Error::from),
        }
    }
}
