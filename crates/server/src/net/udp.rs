//! Requests by datagram, all on one thread.
//!
//! Each datagram begins with a header of eight bytes: the number of the request, the position of
//! the datagram in the message, the number of datagrams in the message, and two unused bytes. A
//! request must fit into one datagram. Its replies are sent as one message, in as many datagrams as
//! necessary.

use super::listener::{open_each, prepare, resolve};
use crate::execute::{Executor, Extent, Login, Outcome, Replies, Session, SharedState, TURN, Transport, trace};
use crate::observability::log::Level;
use crate::observability::stats::Counters;
use crate::options::Address;
use crate::process::inherited::Inherited;
use crossbeam_utils::CachePadded;
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token, Waker};
use relativist_memcache::{Decoded, Decoder, Protocol, RequestError, binary};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the header of a datagram.
const HEADER: usize = 8;

/// The largest datagram sent, header included: it fits an Ethernet frame.
const MAX_SENT: usize = 1400;

/// The maximum size of a datagram.
const MAX_RECEIVED: usize = 1 << 16;

/// The maximum length of the replies to a datagram. Much longer replies would hardly arrive
/// completely.
const OUTPUT_LIMIT: usize = 1 << 20;

/// Maximum number of datagrams received from one socket before the thread checks the other sockets,
/// and whether to stop.
const RECEIVED_IN_A_ROW: usize = 64;

/// The [work] after which the thread ignores the rest of a datagram.
///
/// [work]: relativist_store::work
const MAX_WORK: u64 = 5 * TURN;

const EVENTS: usize = 16;
const WAKER: Token = Token(usize::MAX);

/// Opens sockets on `address`, at `default_port` if it names none.
pub(crate) fn bind_udp(address: &Address, default_port: u16, inherited: &Inherited) -> io::Result<Vec<UdpSocket>> {
    // If the address has a port, that is for TCP.
    let address = Address { port: None, ..address.clone() };
    open_each(&address, resolve(&address, default_port)?, |at| {
        let bind = || {
            let socket = Socket::new(Domain::for_address(at), Type::DGRAM, None)?;
            prepare(&socket, at)?;
            socket.bind(&at.into())?;
            Ok::<_, io::Error>(socket)
        };
        let socket = inherited.at(Type::DGRAM, at).map_or_else(bind, Ok)?;
        Ok(UdpSocket::from_std(socket.into()))
    })
}

/// Drops the datagrams that came while the server started: their senders have given up by now.
pub(crate) fn discard_waiting(socket: &UdpSocket) {
    /// More than the kernel keeps. The number is bounded because new ones may come meanwhile.
    const MAX_WAITING: usize = 1 << 16;
    for _ in 0..MAX_WAITING {
        // "Would block" is the end. Other errors come again when the server runs.
        if socket.recv(&mut [0]).is_err() {
            break;
        }
    }
}

/// The sockets, and the executor of their requests.
pub(crate) struct UdpServer {
    poll: Poll,
    sockets: Vec<UdpSocket>,
    shared: Arc<SharedState>,
    counters: Arc<CachePadded<Counters>>,
    is_stopped: Arc<AtomicBool>,
    /// Shared with the handle, for the reason given in `Epoll`.
    _waker: Arc<Waker>,
}

/// Dropping it stops the server.
pub(crate) struct UdpHandle {
    is_stopped: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl Drop for UdpHandle {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `run`.
        self.is_stopped.store(true, Ordering::Release);
        // If the thread cannot be woken it is gone already.
        let _ = self.waker.wake();
    }
}

impl UdpServer {
    /// Creates a server that uses the counters of `thread`, and its handle.
    pub(crate) fn new(
        shared: Arc<SharedState>,
        thread: usize,
        mut sockets: Vec<UdpSocket>,
    ) -> io::Result<(UdpServer, UdpHandle)> {
        let poll = Poll::new()?;
        for (index, socket) in sockets.iter_mut().enumerate() {
            poll.registry().register(socket, Token(index), Interest::READABLE)?;
        }
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let is_stopped = Arc::new(AtomicBool::new(false));
        let gate_waker = Arc::clone(&waker);
        shared.gate.add(move || drop(gate_waker.wake()));
        let counters = shared.common.counters.of_thread(thread);
        let handle = UdpHandle { is_stopped: Arc::clone(&is_stopped), waker: Arc::clone(&waker) };
        Ok((UdpServer { poll, sockets, shared, counters, is_stopped, _waker: waker }, handle))
    }

    /// Answers until the handle is dropped.
    ///
    /// # Errors
    /// When the kernel reports no more events.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let mut datagram = vec![0; MAX_RECEIVED];
        let mut may_be_more = false;
        // Acquire: pairs with the Release of the handle.
        while !self.is_stopped.load(Ordering::Acquire) {
            let timeout = may_be_more.then_some(std::time::Duration::ZERO);
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            if !self.shared.gate.pass() {
                break;
            }
            may_be_more = false;
            for socket in &self.sockets {
                may_be_more |= self.serve_some(socket, &mut datagram);
            }
        }
        Ok(())
    }

    /// Answers up to [`RECEIVED_IN_A_ROW`] datagrams that have arrived. Returns whether there may
    /// be more.
    fn serve_some(&self, socket: &UdpSocket, datagram: &mut [u8]) -> bool {
        let mut has_received = false;
        for _ in 0..RECEIVED_IN_A_ROW {
            match socket.recv_from(datagram) {
                Ok((length, peer)) => {
                    has_received = true;
                    self.serve(socket, &datagram[..length], peer);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // For example, a datagram sent earlier could not be delivered.
                Err(error) => self.shared.log.write(Level::Trouble, format_args!("cannot receive a datagram: {error}")),
            }
        }
        // A socket that only fails is not tried again until the kernel reports that it is ready.
        has_received
    }

    fn serve(&self, socket: &UdpSocket, datagram: &[u8], peer: SocketAddr) {
        self.counters.bytes_read.add(datagram.len() as u64);
        let Some((header, requests)) = datagram.split_first_chunk::<HEADER>() else { return };
        let [id_0, id_1, _, _, 0, 1, _, _] = *header else { return };
        let session = Session::new(socket.as_raw_fd(), Transport::Udp(peer), self.shared.ticker.clock().now());
        let replies = self.replies_to(&session, requests);
        let parts = replies.chunks(MAX_SENT - HEADER);
        let Ok(count) = u16::try_from(parts.len()) else { return };
        for (place, part) in (0..count).zip(parts) {
            let ([place_0, place_1], [count_0, count_1]) = (place.to_be_bytes(), count.to_be_bytes());
            let datagram = [&[id_0, id_1, place_0, place_1, count_0, count_1, 0, 0], part].concat();
            // Datagrams may get lost anyway: a client that misses one asks again.
            if let Ok(count) = socket.send_to(&datagram, peer) {
                self.counters.bytes_written.add(count as u64);
            }
        }
    }

    /// The replies to all `requests`.
    fn replies_to(&self, session: &Session, requests: &[u8]) -> Vec<u8> {
        let executor = Executor::new(&self.shared, &self.counters, OUTPUT_LIMIT).copying();
        executor.charge(0, requests.len());
        let mut out = Replies::default();
        let is_whole = match requests.first().map(|first| Protocol::of_first_byte(*first)) {
            None => true,
            Some(Protocol::Text) => execute_text(&executor, session, requests, &mut out),
            Some(Protocol::Binary) => execute_binary(&executor, session, requests, &mut out),
        };
        if is_whole { out.into_bytes() } else { b"SERVER_ERROR the answer is too long for UDP\r\n".into() }
    }
}

/// Appends the replies. Returns false if they are too long.
fn execute_text(executor: &Executor<'_>, session: &Session, mut requests: &[u8], out: &mut Replies) -> bool {
    let mut decoder = Decoder::new(executor.limits());
    loop {
        let before = Extent::of(out);
        let request = executor.is_traced().then(|| trace::of_text(&decoder, requests)).flatten();
        let consumed = match decoder.decode(requests) {
            Decoded::Command { consumed, command } => {
                let outcome = executor.execute(session, command, out);
                match finish(executor, session, outcome, &requests[..consumed], out) {
                    Outcome::Done => consumed,
                    Outcome::PausedFetch { .. } | Outcome::PausedDump(_) => return false,
                    // A datagram cannot watch, stop the server, or close a connection.
                    Outcome::Quit | Outcome::LoggedIn | Outcome::Watching(_) | Outcome::Shutdown => return true,
                }
            }
            // This may be the reply of another server to a request that was forged with our
            // address. That server would take our reply for a request, and so on without end.
            // (Commands are in lower case. Replies are in upper case, or numbers. A number is
            // answered, but that reply is not a command.)
            Decoded::Reject { consumed, rejection }
                if rejection.error == RequestError::UnknownCommand && requests[0].is_ascii_uppercase() =>
            {
                consumed
            }
            Decoded::Reject { consumed, rejection } => {
                executor.reject(&requests[..consumed], &rejection, &mut out.bytes);
                consumed
            }
            Decoded::TooLarge { consumed, key, replaces, is_base64 } => {
                executor.refuse_large(session, &requests[..consumed], key, is_base64, replaces);
                consumed
            }
            Decoded::Incomplete { .. } | Decoded::Close => return true,
        };
        if executor.is_traced() {
            executor.trace_command(session, request, out, before);
        }
        if out.len() > OUTPUT_LIMIT {
            return false;
        }
        requests = &requests[consumed..];
        executor.charge(1, 0);
        if executor.work_done() > MAX_WORK {
            return true;
        }
    }
}

/// Continues a fetch that was paused for other connections: a datagram holds so few keys that they
/// wait only briefly. The fetch stays paused if the replies are too long. Dumps are never
/// continued: they would cost too much for one datagram.
fn finish<'b>(
    executor: &Executor<'_>,
    session: &Session,
    mut outcome: Outcome<'b>,
    request: &'b [u8],
    out: &mut Replies,
) -> Outcome<'b> {
    while out.len() <= OUTPUT_LIMIT {
        outcome = match outcome {
            Outcome::PausedFetch { fetch, next } => {
                let answered = next.as_ptr().addr() - request.as_ptr().addr();
                executor.resume(session, fetch, &request[answered..], out)
            }
            other => return other,
        };
    }
    outcome
}

/// Appends the replies. Returns false if they are too long.
fn execute_binary(executor: &Executor<'_>, session: &Session, mut requests: &[u8], out: &mut Replies) -> bool {
    let mut decoder = binary::Decoder::new(executor.limits());
    loop {
        let before = Extent::of(out);
        let request = executor.is_traced().then(|| trace::of_packet(&decoder, requests, true)).flatten();
        let consumed = match decoder.decode(requests, true) {
            binary::Decoded::Request { consumed, request } => {
                let outcome = executor.execute_binary(session, &mut Login::Done, &request, out);
                match finish(executor, session, outcome, b"", out) {
                    Outcome::Quit => return true,
                    Outcome::PausedDump(_) => return false,
                    _ => consumed,
                }
            }
            binary::Decoded::Reject { consumed, header, status, closes } => {
                executor.reject_binary(&header, status, &mut out.bytes);
                if closes {
                    return true;
                }
                consumed
            }
            binary::Decoded::TooLarge { consumed, key, replaces } => {
                executor.refuse_large_binary(session, &requests[..consumed], key, replaces);
                consumed
            }
            binary::Decoded::Incomplete { .. } | binary::Decoded::Close => return true,
        };
        if executor.is_traced() {
            executor.trace_command(session, request, out, before);
        }
        if out.len() > OUTPUT_LIMIT {
            return false;
        }
        requests = &requests[consumed..];
        executor.charge(1, 0);
        if executor.work_done() > MAX_WORK {
            return true;
        }
    }
}
