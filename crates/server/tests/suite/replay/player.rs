//! Plays the client's part of a transcript.

use super::script::{self, Line, Piece, Step};
use super::server::Server;
use crate::certificates::Authority;
use crate::harness::Io;
use relativist_testing::patience;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time to wait at a `@split`, so that the server reads the parts separately.
const SPLIT: Duration = Duration::from_millis(30);

/// The time during which nothing may arrive at a `@silent`.
const SILENCE: Duration = Duration::from_millis(100);

/// The name of the default connection.
const UNNAMED: &str = "";

/// The name of the connection for datagrams.
const DATAGRAMS: &str = "@udp";

/// Replays a transcript with a new server, by TLS if `authority` is given, and returns the number
/// of expectations that were met.
///
/// # Panics
/// Panics if the server sends anything else, or ends with an error.
pub fn play(text: &str, io: Io, authority: Option<&Authority>) -> usize {
    let script = script::parse(text);
    let server = Server::start(&script, io, authority);
    let mut player = Player {
        server,
        tls: authority.map(Authority::client),
        connections: HashMap::new(),
        current: UNNAMED.into(),
        names: HashMap::new(),
        met: 0,
    };
    for Line { number, step } in script.lines {
        if let Err(problem) = player.step(&step) {
            panic!("line {number}: {problem}");
        }
    }
    drop(player.connections);
    let status = player.server.stop();
    assert!(status.success(), "{status}");
    player.met
}

type Verdict = Result<(), String>;

struct Player {
    server: Server,
    /// The configuration of the connections, if they are encrypted.
    tls: Option<Arc<ClientConfig>>,
    connections: HashMap<String, Connection>,
    /// The name of the current connection.
    current: String,
    names: HashMap<String, Vec<u8>>,
    met: usize,
}

struct Connection {
    socket: Socket,
    received: Vec<u8>,
    at_end: bool,
}

enum Socket {
    Stream(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
    Datagrams(UdpSocket),
}

/// How a text compares with the bytes received so far.
enum Match {
    Complete(usize),
    Partial,
    Different,
}

impl Player {
    fn step(&mut self, step: &Step) -> Verdict {
        match step {
            Step::Send(pieces) => self.send(pieces),
            Step::Expect(pieces) => self.expect(pieces),
            Step::Split => pause(SPLIT),
            Step::Sleep(seconds) => pause(Duration::from_secs_f64(*seconds)),
            Step::Silent => self.expect_silence(),
            Step::Closed => self.expect_close(),
            Step::New(name) => {
                if name.is_none() {
                    self.connections.remove(UNNAMED);
                }
                self.current = name.clone().unwrap_or_default();
                Ok(())
            }
            Step::Datagrams => {
                self.current = DATAGRAMS.into();
                let socket = Socket::datagrams(self.server.udp.expect("a UDP port"));
                self.connections.insert(DATAGRAMS.into(), Connection { socket, received: Vec::new(), at_end: false });
                Ok(())
            }
            Step::Close => {
                self.connections.remove(&self.current);
                Ok(())
            }
            Step::Shutdown => match &mut self.connection().socket {
                Socket::Stream(stream) => stream.shutdown(Shutdown::Write).map_err(|error| error.to_string()),
                Socket::Encrypted(stream) => {
                    stream.conn.send_close_notify();
                    stream.flush().map_err(|error| error.to_string())
                }
                Socket::Datagrams(_) => Err("datagrams cannot be half-closed".into()),
            },
            Step::Signal(name) => {
                self.server.signal(name);
                Ok(())
            }
            Step::Write(name, content) => {
                self.server.write(name, content);
                Ok(())
            }
        }
    }

    fn connection(&mut self) -> &mut Connection {
        let server = self.server.tcp;
        let tls = self.tls.as_ref();
        self.connections.entry(self.current.clone()).or_insert_with(|| Connection::open(server, tls))
    }

    fn send(&mut self, pieces: &[Piece]) -> Verdict {
        let bytes = self.fill(pieces);
        let connection = self.connection();
        if !connection.received.is_empty() {
            return Err(format!("{:?} was not expected", show(&connection.received)));
        }
        // The server may close the connection before it has read everything. The transcript's
        // expectations check whether it should.
        let _ = connection.socket.send(&bytes);
        Ok(())
    }

    fn expect(&mut self, pieces: &[Piece]) -> Verdict {
        let deadline = Instant::now() + patience();
        loop {
            let received = std::mem::take(&mut self.connection().received);
            let outcome = self.compare(pieces, &received);
            let connection = self.connection();
            connection.received = received;
            match outcome {
                Match::Complete(length) => {
                    connection.received.drain(..length);
                    self.met += 1;
                    return Ok(());
                }
                Match::Partial if !connection.at_end && Instant::now() < deadline => connection.receive(deadline),
                _ => return Err(format!("{:?} instead of {pieces:?}", show(&connection.received))),
            }
        }
    }

    fn expect_silence(&mut self) -> Verdict {
        let connection = self.connection();
        connection.receive(Instant::now() + SILENCE);
        if !connection.received.is_empty() || connection.at_end {
            return Err(format!("{:?} or a close instead of silence", show(&connection.received)));
        }
        self.met += 1;
        Ok(())
    }

    fn expect_close(&mut self) -> Verdict {
        let fresh = || Connection::open(self.server.tcp, self.tls.as_ref());
        let mut connection = self.connections.remove(&self.current).unwrap_or_else(fresh);
        connection.receive(Instant::now() + patience());
        if !connection.at_end || !connection.received.is_empty() {
            return Err(format!("{:?} instead of a close", show(&connection.received)));
        }
        self.met += 1;
        Ok(())
    }

    fn fill(&self, pieces: &[Piece]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Literal(literal) => bytes.extend_from_slice(literal),
                Piece::Remembered(name) => bytes.extend_from_slice(&self.names[name]),
                Piece::Number(_) | Piece::Any | Piece::Bytes(..) => {
                    panic!("a placeholder without a value cannot be sent")
                }
            }
        }
        bytes
    }

    /// Compares, and on a complete match stores the values of placeholders.
    fn compare(&mut self, pieces: &[Piece], received: &[u8]) -> Match {
        let mut found = HashMap::new();
        let mut rest = received;
        for (place, piece) in pieces.iter().enumerate() {
            // A placeholder extends up to the next piece, so that piece must have arrived.
            let behind = match pieces.get(place + 1) {
                Some(Piece::Literal(literal)) => literal.as_slice(),
                _ => b"",
            };
            let open = match piece {
                Piece::Number(name) => {
                    Some((rest.iter().take_while(|byte| byte.is_ascii_digit()).count(), 1, name.clone()))
                }
                Piece::Any => Some((length_before(behind, rest), 0, None)),
                Piece::Bytes(count, name) => Some(((*count).min(rest.len()), *count, Some(name.clone()))),
                Piece::Literal(_) | Piece::Remembered(_) => None,
            };
            if let Some((length, least, name)) = open {
                if length < least || (length == rest.len() && !behind.is_empty()) {
                    return if length == rest.len() { Match::Partial } else { Match::Different };
                }
                let (matched, behind) = rest.split_at(length);
                found.insert(name.unwrap_or_default(), matched.to_vec());
                rest = behind;
                continue;
            }
            let wanted: &[u8] = match piece {
                Piece::Literal(literal) => literal,
                Piece::Remembered(name) => {
                    found.get(name).or(self.names.get(name)).expect("the name was stored before")
                }
                _ => unreachable!("other pieces are placeholders"),
            };
            let common = wanted.iter().zip(rest).take_while(|(one, other)| one == other).count();
            if common < wanted.len() {
                return if common == rest.len() { Match::Partial } else { Match::Different };
            }
            rest = &rest[common..];
        }
        self.names.extend(found);
        Match::Complete(received.len() - rest.len())
    }
}

/// Returns the number of bytes before `behind` in the line that `rest` begins with. Compares only
/// the part of `behind` up to its first line end.
fn length_before(behind: &[u8], rest: &[u8]) -> usize {
    let line = behind.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
    rest.windows(line.len().max(1)).position(|window| window == line).unwrap_or(rest.len())
}

impl Socket {
    fn datagrams(server: SocketAddr) -> Socket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server).unwrap();
        Socket::Datagrams(socket)
    }

    fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Socket::Stream(stream) => stream.write_all(bytes),
            Socket::Encrypted(stream) => stream.write_all(bytes),
            Socket::Datagrams(socket) => socket.send(bytes).map(drop),
        }
    }

    fn receive(&mut self, buffer: &mut [u8], wait: Duration) -> std::io::Result<usize> {
        match self {
            Socket::Stream(stream) => {
                stream.set_read_timeout(Some(wait))?;
                stream.read(buffer)
            }
            Socket::Encrypted(stream) => {
                stream.sock.set_read_timeout(Some(wait))?;
                stream.read(buffer)
            }
            Socket::Datagrams(socket) => {
                socket.set_read_timeout(Some(wait))?;
                socket.recv(buffer)
            }
        }
    }
}

impl Connection {
    fn open(server: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> Connection {
        let stream = TcpStream::connect(server).expect("the server listens");
        stream.set_nodelay(true).unwrap();
        let socket = match tls {
            None => Socket::Stream(stream),
            Some(config) => {
                let name = "localhost".try_into().expect("a valid name");
                let session = ClientConnection::new(Arc::clone(config), name).expect("a valid configuration");
                Socket::Encrypted(Box::new(StreamOwned::new(session, stream)))
            }
        };
        Connection { socket, received: Vec::new(), at_end: false }
    }

    /// Waits until something arrives, the connection ends, or the deadline has passed.
    fn receive(&mut self, deadline: Instant) {
        let wait = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut buffer = [0; 1 << 16];
        match self.socket.receive(&mut buffer, wait) {
            Ok(0) => self.at_end = true,
            Ok(count) => self.received.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => (),
            Err(_reset) => self.at_end = true,
        }
    }
}

fn pause(duration: Duration) -> Verdict {
    sleep(duration);
    Ok(())
}

fn show(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(300)].escape_ascii().to_string()
}
