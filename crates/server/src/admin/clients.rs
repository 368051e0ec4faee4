//! The clients whose request is incomplete, or that have not taken all of their response.
//!
//! There is room for [`MAX_CLIENTS`]. If it is taken, the client that has been silent longest makes
//! room for a new one. So clients that do nothing keep no other client from an answer. A request
//! that has arrived with its connection is answered before anything else happens.

use super::http::{self, MAX_HEAD, Progress, Request, Response};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use slab::Slab;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// Maximum number of clients that have to send or to receive something.
pub(super) const MAX_CLIENTS: usize = 64;

/// The time in which a client must send its request and receive the response.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A client.
struct Client {
    stream: TcpStream,
    /// What has arrived of the request.
    head: Vec<u8>,
    /// What is left of the response; none before there is a request.
    response: Option<Vec<u8>>,
    connected: Instant,
    /// When the last bytes were received or sent.
    active: Instant,
}

/// The clients that have to send or to receive something.
#[derive(Default)]
pub(super) struct Clients(Slab<Client>);

impl Clients {
    /// Serves a client that has connected at `now`, as far as possible without waiting. The
    /// registry announces when it can go on.
    pub(super) fn admit(
        &mut self,
        stream: TcpStream,
        registry: &Registry,
        now: Instant,
        respond: impl FnOnce(Request<'_>) -> Response,
    ) {
        let mut client = Client { stream, head: Vec::new(), response: None, connected: now, active: now };
        // An error means that the client is gone.
        if client.advance(now, respond).unwrap_or(true) {
            return;
        }
        if self.0.len() >= MAX_CLIENTS
            && let Some((most_silent, _)) = self.0.iter().min_by_key(|(_, client)| client.active)
        {
            self.0.remove(most_silent);
        }
        let place = self.0.vacant_entry();
        let interest = Interest::READABLE | Interest::WRITABLE;
        // Without memory for it in the kernel, the client is refused.
        if registry.register(&mut client.stream, Token(place.key()), interest).is_ok() {
            place.insert(client);
        }
    }

    /// Serves a client for which there was an event.
    pub(super) fn advance(&mut self, token: Token, respond: impl FnOnce(Request<'_>) -> Response) {
        // It may have made room for another one.
        let Some(client) = self.0.get_mut(token.0) else { return };
        if client.advance(Instant::now(), respond).unwrap_or(true) {
            self.0.remove(token.0);
        }
    }

    /// Closes the connections that were made too long before `now`.
    pub(super) fn close_late(&mut self, now: Instant) {
        self.0.retain(|_, client| now.saturating_duration_since(client.connected) < TIMEOUT);
    }

    /// Closes the connections of clients without a request. Returns whether there are others.
    pub(super) fn keep_answered(&mut self) -> bool {
        self.0.retain(|_, client| client.response.is_some());
        !self.0.is_empty()
    }
}

impl Client {
    /// Receives the request and sends the response, as far as possible without waiting. Returns
    /// whether all is done.
    fn advance(&mut self, now: Instant, respond: impl FnOnce(Request<'_>) -> Response) -> io::Result<bool> {
        if self.response.is_none() {
            self.response = self.receive(now)?.map(|()| self.answer(respond));
        }
        match &mut self.response {
            None => Ok(false),
            Some(left) => {
                while !left.is_empty() {
                    let Some(sent) = unless_blocked(self.stream.write(left))? else { return Ok(false) };
                    left.drain(..sent);
                    self.active = now;
                }
                self.stream.shutdown(Shutdown::Write).map(|()| true)
            }
        }
    }

    /// Receives until the request is complete, or refused. Returns nothing if there is more to
    /// come.
    fn receive(&mut self, now: Instant) -> io::Result<Option<()>> {
        let mut room = [0; 1024];
        while matches!(http::parse(&self.head), Progress::Incomplete) {
            let most = room.len().min(MAX_HEAD - self.head.len());
            match unless_blocked(self.stream.read(&mut room[..most]))? {
                None => return Ok(None),
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(count) => self.head.extend_from_slice(&room[..count]),
            }
            self.active = now;
        }
        Ok(Some(()))
    }

    /// The response to the request that has arrived.
    fn answer(&self, respond: impl FnOnce(Request<'_>) -> Response) -> Vec<u8> {
        match http::parse(&self.head) {
            Progress::Complete(request) => respond(request).bytes(request.is_head),
            Progress::Refused(response) => response.bytes(false),
            Progress::Incomplete => Vec::new(),
        }
    }
}

/// The number of bytes, or none if the socket is not ready.
fn unless_blocked(moved: io::Result<usize>) -> io::Result<Option<usize>> {
    match moved {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::Poll;
    use std::net::{Ipv4Addr, TcpListener, TcpStream as Peer};

    /// Clients, and the other ends of their connections.
    struct Setup {
        clients: Clients,
        poll: Poll,
        listener: TcpListener,
        peers: Vec<Peer>,
        start: Instant,
    }

    impl Setup {
        fn new() -> Setup {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let poll = Poll::new().unwrap();
            Setup { clients: Clients::default(), poll, listener, peers: Vec::new(), start: Instant::now() }
        }

        /// Connects another client, after so many seconds, which has sent these bytes.
        fn connect(&mut self, seconds: f64, bytes: &[u8]) {
            let mut peer = Peer::connect(self.listener.local_addr().unwrap()).unwrap();
            peer.write_all(bytes).unwrap();
            let (stream, _) = self.listener.accept().unwrap();
            // The bytes are there before the client is admitted.
            while !bytes.is_empty() && stream.peek(&mut vec![0; bytes.len()]).unwrap() < bytes.len() {}
            stream.set_nonblocking(true).unwrap();
            let now = self.start + Duration::from_secs_f64(seconds);
            self.clients.admit(TcpStream::from_std(stream), self.poll.registry(), now, |_| Response::not_found());
            self.peers.push(peer);
        }

        fn is_closed(&self, peer: usize) -> bool {
            self.peers[peer].set_nonblocking(true).unwrap();
            matches!((&self.peers[peer]).read(&mut [0]), Ok(0))
        }
    }

    #[test]
    fn the_client_that_was_silent_longest_makes_room() {
        let mut setup = Setup::new();
        for number in 0..MAX_CLIENTS {
            setup.connect(number as f64 / 1000.0, b"");
        }
        // The oldest one is not silent any more.
        setup.clients.0[0].active = setup.start + Duration::from_secs(1);
        setup.connect(1.0, b"GET ");
        setup.connect(1.0, b"");
        let is_closed: Vec<bool> = (0..setup.peers.len()).map(|peer| setup.is_closed(peer)).collect();
        let closed: Vec<usize> = (0..is_closed.len()).filter(|peer| is_closed[*peer]).collect();
        assert_eq!((closed, setup.clients.0.len()), (vec![1, 2], MAX_CLIENTS));
    }

    #[test]
    fn a_complete_request_needs_no_room() {
        let mut setup = Setup::new();
        (0..MAX_CLIENTS).for_each(|_| setup.connect(0.0, b""));
        setup.connect(1.0, b"GET / HTTP/1.1\r\n\r\n");
        let mut reply = String::new();
        setup.peers[MAX_CLIENTS].read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 404 Not Found\r\n"), "{reply}");
        assert!((0..MAX_CLIENTS).all(|peer| !setup.is_closed(peer)));
    }

    #[test]
    fn clients_have_a_deadline() {
        let mut setup = Setup::new();
        setup.connect(0.0, b"");
        setup.connect(1.0, b"GET");
        setup.clients.close_late(setup.start + TIMEOUT);
        assert_eq!([0, 1].map(|peer| setup.is_closed(peer)), [true, false]);
        assert!(!setup.clients.keep_answered() && setup.is_closed(1));
    }
}
