//! Holding the conversation of a transcript with a server.

use super::script::{self, Line, Piece, Step};
use crate::harness::PATIENCE;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long to wait where a transcript splits what it sends, so that the server reads the parts apart.
const SPLIT: Duration = Duration::from_millis(30);

/// How long nothing may arrive where a transcript demands silence.
const SILENCE: Duration = Duration::from_millis(100);

/// Replays a transcript and returns the number of expectations met.
///
/// # Panics
/// If the server does not keep to it.
pub fn play(text: &str, server: SocketAddr) -> usize {
    let mut player = Player { server, connection: None, names: HashMap::new(), met: 0 };
    for Line { number, step } in script::parse(text) {
        if let Err(problem) = player.step(&step) {
            panic!("line {number}: {problem}");
        }
    }
    player.met
}

type Verdict = Result<(), String>;

struct Player {
    server: SocketAddr,
    connection: Option<Connection>,
    names: HashMap<String, Vec<u8>>,
    met: usize,
}

struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    at_end: bool,
}

/// How a text compares with what was received so far.
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
            Step::New | Step::Close => {
                self.connection = None;
                Ok(())
            }
            Step::Shutdown => {
                let stream = &self.connection().stream;
                stream.shutdown(Shutdown::Write).map_err(|error| error.to_string())
            }
        }
    }

    fn connection(&mut self) -> &mut Connection {
        self.connection.get_or_insert_with(|| Connection::open(self.server))
    }

    fn send(&mut self, pieces: &[Piece]) -> Verdict {
        let bytes = self.fill(pieces);
        let connection = self.connection();
        if !connection.received.is_empty() {
            return Err(format!("{:?} was not expected", show(&connection.received)));
        }
        // The server may close before it has read everything; an expectation tells whether it should have.
        let _ = connection.stream.write_all(&bytes);
        Ok(())
    }

    fn expect(&mut self, pieces: &[Piece]) -> Verdict {
        let deadline = Instant::now() + PATIENCE;
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
        let mut connection = self.connection.take().unwrap_or_else(|| Connection::open(self.server));
        connection.receive(Instant::now() + PATIENCE);
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
                Piece::Number(_) => panic!("an open number cannot be sent"),
            }
        }
        bytes
    }

    /// Compares, and remembers the numbers of a complete match.
    fn compare(&mut self, pieces: &[Piece], received: &[u8]) -> Match {
        let mut found = HashMap::new();
        let mut rest = received;
        for piece in pieces {
            let wanted: &[u8] = match piece {
                Piece::Literal(literal) => literal,
                Piece::Remembered(name) => found.get(name).or(self.names.get(name)).expect("remembered before"),
                Piece::Number(name) => {
                    let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                    if length == 0 && !rest.is_empty() {
                        return Match::Different;
                    }
                    let (digits, behind) = rest.split_at(length);
                    found.insert(name.clone().unwrap_or_default(), digits.to_vec());
                    rest = behind;
                    continue;
                }
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

impl Connection {
    fn open(server: SocketAddr) -> Connection {
        let stream = TcpStream::connect(server).expect("the server listens");
        stream.set_nodelay(true).unwrap();
        Connection { stream, received: Vec::new(), at_end: false }
    }

    /// Waits until something arrives, the connection ends, or the deadline has passed.
    fn receive(&mut self, deadline: Instant) {
        let wait = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(wait)).unwrap();
        let mut buffer = [0; 1 << 16];
        match self.stream.read(&mut buffer) {
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
