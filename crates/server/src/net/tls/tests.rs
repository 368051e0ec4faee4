//! TLS that arrives in any pieces, tampering, and the end of connections.

use super::*;
use crate::certificates::Authority;
use crate::observability::log::Log;
use crate::options::{ClientCertificate, Options};
use relativist_store::Clock;
use relativist_store::{Cache, Content, Mode, Store};
use rustls::{ClientConfig, ClientConnection};
use std::io::{Read, Write};

/// The bytes of the header of a record.
const RECORD_HEADER: usize = 5;

/// A backend of one connection, which takes and gives a limited number of bytes at a time.
struct Wire {
    step: usize,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// The output that it took over, if it sends asynchronously.
    sent: Option<Output>,
}

impl Backend for Wire {
    fn new(_: Arc<CachePadded<Counters>>) -> io::Result<Wire> {
        Ok(Wire { step: usize::MAX, incoming: Vec::new(), outgoing: Vec::new(), sent: None })
    }

    fn waker(&self) -> Arc<Waker> {
        unreachable!("no thread waits")
    }

    fn start(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wait(&mut self, _: Option<Duration>, pool: &mut Pool, _: &mut Vec<Event>) -> io::Result<()> {
        self.sent.iter_mut().for_each(|sent| pool.take_back_output(sent));
        Ok(())
    }

    fn open(&mut self, _: Stream) -> io::Result<usize> {
        unreachable!("it is open")
    }

    fn receive(&mut self, _: usize, pool: &mut Pool, input: &mut Input) -> io::Result<Received> {
        pool.lend_input(input);
        let count = self.incoming.len().min(self.step);
        input.append(&self.incoming[..count]);
        self.incoming.drain(..count);
        Ok(if count == 0 { Received::Nothing } else { Received::Bytes })
    }

    fn arrived(&self, _: usize) -> &[u8] {
        b""
    }

    fn expect(&mut self, _: usize, _: &mut Input) {}

    fn is_readable(&self, _: usize) -> bool {
        !self.incoming.is_empty()
    }

    fn has_hung_up(&self, _: usize) -> bool {
        false
    }

    fn send(&mut self, _: usize, _: &mut Pool, output: &mut Output) -> io::Result<bool> {
        let encrypted = output.in_one_piece().expect("nothing refers to what is encrypted");
        let count = encrypted.len().min(self.step);
        self.outgoing.extend_from_slice(&encrypted[..count]);
        if count > 0 {
            output.advance(count);
        }
        if let Some(sent) = &mut self.sent
            && count > 0
        {
            *sent = std::mem::take(output);
            return Ok(false);
        }
        Ok(output.is_empty())
    }

    fn held(&self, _: usize) -> (usize, usize) {
        (0, 0)
    }

    fn moved(&self, _: usize) -> (u64, u64) {
        unreachable!("no test calls this")
    }

    fn close(&mut self, _: usize) {}
}

/// A connection, number 0, between a client and a server that sends back what it receives.
struct Scene {
    client: ClientConnection,
    /// The bytes that the client has received, and whether `close_notify` has arrived.
    got: Vec<u8>,
    is_told: bool,
    server: Tls<Wire>,
    pool: Pool,
    input: Input,
    output: Output,
    counters: Arc<CachePadded<Counters>>,
}

/// The parameters of the handshake.
struct Terms {
    server: crate::security::tls::Tls,
    client: Arc<ClientConfig>,
}

impl Terms {
    fn new(more_flags: &str) -> Terms {
        let authority = Authority::new();
        let line = format!("relativistd {}{more_flags}", authority.flags());
        let options = Options::parse_from_args(line.split_whitespace()).unwrap();
        let server = crate::security::tls::Tls::new(&options, &Log::new(0)).unwrap().expect("it was asked for");
        Terms { server, client: authority.client() }
    }

    fn client(&self) -> ClientConnection {
        ClientConnection::new(Arc::clone(&self.client), "localhost".try_into().unwrap()).unwrap()
    }
}

impl Scene {
    fn new(step: usize, terms: &Terms) -> Scene {
        let counters = Arc::<CachePadded<Counters>>::default();
        let mut server = Tls::<Wire>::new(Arc::clone(&counters)).unwrap();
        server.inner.step = step;
        server.encrypt(0, terms.server.begin(ClientCertificate::Unasked).unwrap());
        Scene {
            client: terms.client(),
            got: Vec::new(),
            is_told: false,
            server,
            pool: Pool::default(),
            input: Input::default(),
            output: Output::default(),
            counters,
        }
    }

    fn open(terms: &Terms) -> Scene {
        let mut scene = Scene::new(usize::MAX, terms);
        while scene.client.is_handshaking() || scene.server.is_handshaking(0) {
            scene.turn();
        }
        scene
    }

    /// Lets the client send, gives the connection a turn, and lets the client receive. Returns the
    /// connection's result of receiving.
    fn turn(&mut self) -> Received {
        while self.client.wants_write() {
            self.client.write_tls(&mut self.server.inner.incoming).unwrap();
        }
        let mut received = Received::Nothing;
        if self.send().unwrap() {
            received = self.receive();
            self.output.bytes().extend_from_slice(self.input.unread());
            self.input.consume(self.input.unread().len());
            let is_sent = self.send().unwrap();
            let wire = &self.server.inner;
            let is_announced = wire.sent.is_some() || !self.server.channel(0).unwrap().sending.is_empty();
            assert!(is_sent || is_announced || self.server.is_writable(0), "no event would follow");
        }
        self.deliver();
        received
    }

    fn receive(&mut self) -> Received {
        self.server.receive(0, &mut self.pool, &mut self.input).unwrap()
    }

    fn send(&mut self) -> io::Result<bool> {
        self.server.send(0, &mut self.pool, &mut self.output)
    }

    /// The bytes of output left with the connection.
    fn left(&self) -> usize {
        self.output.pieces(usize::MAX).map(<[u8]>::len).sum()
    }

    fn deliver(&mut self) {
        let outgoing = std::mem::take(&mut self.server.inner.outgoing);
        let mut rest = &outgoing[..];
        while !rest.is_empty() {
            self.client.read_tls(&mut rest).unwrap();
            self.client.process_new_packets().unwrap();
            self.is_told = self.client.reader().read_to_end(&mut self.got).is_ok();
        }
    }
}

#[test]
fn bytes_survive_any_size_of_pieces() {
    for (step, length, flags) in [
        (1, 17_000, ""),
        (2, 17_000, ",ssl_wbuf_size=1"),
        (7, 20_000, ""),
        (1_000, 100_000, ""),
        (70_000, 300_000, ",ssl_wbuf_size=3"),
        (usize::MAX, 300_000, ",ssl_min_version=3"),
    ] {
        let mut scene = Scene::new(step, &Terms::new(flags));
        let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
        let mut written = 0;
        // Far more turns than are needed.
        for _ in 0..20 * length {
            written += scene.client.writer().write(&bytes[written..]).unwrap();
            scene.turn();
            if scene.got.len() == length {
                break;
            }
        }
        assert!(scene.got == bytes, "{} of {length} bytes, {step} at a time", scene.got.len());
        assert_eq!(scene.counters.ssl_new_sessions.get(), 1);
        assert_eq!(scene.server.held(0), (0, 0), "nothing is held between requests");
    }
}

#[test]
fn no_more_than_a_piece_is_encrypted_ahead_of_a_client() {
    const LENGTH: usize = 3 * PIECE;
    let cache = Cache::new(Arc::new(Clock::new(1)), 16 << 20, 1 << 20).unwrap();
    let value: Vec<u8> = (0..LENGTH).map(|i| (i % 251) as u8).collect();
    let content = Content { flags: 0, exptime: 0, value: &value };
    assert_eq!(cache.store(Mode::Set, b"k", content), Store::Stored);
    let terms = Terms::new("");
    let ask = || {
        let mut scene = Scene::open(&terms);
        scene.output.bytes().extend_from_slice(b"VALUE");
        cache.get(b"k", |hit| scene.output.replies().append(hit.pin().unwrap()));
        scene
    };
    let mut scene = ask();
    scene.server.inner.step = 0;
    for _ in 0..10 {
        assert!(!scene.send().unwrap());
        assert!(!scene.server.is_writable(0), "it will be announced");
        assert_eq!(scene.left(), 5 + LENGTH - PIECE);
        let held = scene.server.held(0).1;
        assert!((PIECE..PIECE + PIECE / 16).contains(&held), "{held}");
    }
    // Now the client takes everything, and no event is announced.
    scene.server.inner.step = usize::MAX;
    for left in [5 + LENGTH - 2 * PIECE, 5, 0] {
        assert_eq!((scene.send().unwrap(), scene.left()), (left == 0, left));
        assert!(scene.server.is_writable(0));
        assert!(scene.server.inner.outgoing.len() < 2 * (PIECE + PIECE / 16), "a turn lasts longer than others like");
        scene.deliver();
    }
    assert!(scene.got == [b"VALUE", &*value].concat());
    assert_eq!((scene.server.held(0).1, cache.usage().pinned_bytes), (0, 0));

    let mut scene = ask();
    assert!(!scene.send().unwrap());
    scene.server.close(0);
    scene.deliver();
    assert!(!scene.got.is_empty() && !scene.is_told, "that was not all");
}

/// Where the kernel sends asynchronously, buffers of encrypted output return after a wait.
#[test]
fn sent_buffers_are_reused() {
    let mut scene = Scene::open(&Terms::new(""));
    scene.server.inner.sent = Some(Output::default());
    let mut round = || {
        scene.client.writer().write_all(&[b'x'; 1000]).unwrap();
        scene.turn();
        scene.server.wait(None, &mut scene.pool, &mut Vec::new()).unwrap();
        (std::mem::take(&mut scene.got).len(), scene.pool.idle_outputs())
    };
    let (_, idle) = round();
    assert!((0..100).all(|_| round() == (1000, idle)), "no new ones are made");
}

#[test]
fn close_notify_is_sent_and_obeyed() {
    let mut scene = Scene::open(&Terms::new(""));
    scene.client.writer().write_all(b"last words").unwrap();
    scene.client.send_close_notify();
    assert_eq!(scene.turn(), Received::End);
    assert_eq!((&scene.got[..], scene.is_told), (&b"last words"[..], false));
    scene.server.close(0);
    scene.deliver();
    assert!(scene.is_told);
}

#[test]
fn input_that_is_not_tls_is_answered_by_an_alert() {
    let terms = Terms::new("");
    for (bytes, is_proto_error) in [
        (&b"get key\r\n"[..], true),
        (b"\x80\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", true),
        // A fatal alert: the client wants another version.
        (b"\x15\x03\x03\0\x02\x02\x46", false),
    ] {
        let mut scene = Scene::new(usize::MAX, &terms);
        scene.server.inner.incoming = bytes.to_vec();
        assert_eq!(scene.receive(), Received::End);
        assert!(scene.input.unread().is_empty());
        assert!(scene.send().is_err());
        let alert = &scene.server.inner.outgoing;
        assert_eq!(alert.first().copied(), is_proto_error.then_some(21), "{alert:?}");
        scene.server.close(0);
        let counted = (scene.counters.ssl_proto_errors.get(), scene.counters.ssl_handshake_errors.get());
        assert_eq!(counted, if is_proto_error { (1, 0) } else { (0, 1) });
    }
}

#[test]
fn a_record_that_was_tampered_with_is_refused() {
    let terms = Terms::new("");
    // All bytes but the first three, type and version, which mean nothing.
    for at in 3.. {
        let mut scene = Scene::open(&terms);
        scene.client.writer().write_all(b"flush_all\r\n").unwrap();
        let mut record = Vec::new();
        scene.client.write_tls(&mut record).unwrap();
        let Some(byte) = record.get_mut(at) else { break };
        *byte ^= 1;
        scene.server.inner.incoming = record;
        // A length that is too large makes the server wait for the rest.
        assert_eq!(scene.receive(), if at == 3 || at == 4 { Received::Bytes } else { Received::End }, "{at}");
        assert!(scene.input.unread().is_empty());
    }
}

#[test]
fn a_message_in_the_smallest_pieces_is_not_waited_for() {
    let mut scene = Scene::new(usize::MAX, &Terms::new(""));
    // A first message of 65535 bytes, in records of one.
    let message = [1, 0, 0xff, 0xff].into_iter().chain(std::iter::repeat(0)).take(30_000);
    scene.server.inner.incoming = message.flat_map(|byte| [22, 3, 1, 0, 1, byte]).collect();
    assert_eq!(scene.receive(), Received::End);
    assert_eq!(scene.counters.ssl_proto_errors.get(), 1);
}

/// The first message is cut off, has any byte changed, or occurs twice in one record, so that bytes
/// follow an error.
#[test]
fn no_first_message_harms_the_server_and_each_failure_counts_once() {
    let terms = Terms::new("");
    let mut hello = Vec::new();
    terms.client().write_tls(&mut hello).unwrap();
    let cut = (1..=hello.len()).map(|end| hello[..end].to_vec());
    let changed = (0..hello.len()).map(|at| {
        let mut changed = hello.clone();
        changed[at] ^= 1 << (at % 8);
        changed
    });
    let (header, message) = hello.split_at(RECORD_HEADER);
    let length = 2 * message.len() as u16;
    let twice = [&header[..3], &length.to_be_bytes(), message, message].concat();
    for bytes in cut.chain(changed).chain([twice]) {
        let mut scene = Scene::new(usize::MAX, &terms);
        scene.server.inner.incoming = bytes;
        let received = scene.receive();
        let sent = scene.send();
        assert_eq!(received == Received::End, sent.is_err());
        assert!(scene.input.unread().is_empty() && scene.server.is_handshaking(0));
        scene.server.close(0);
        assert_eq!(scene.counters.ssl_proto_errors.get() + scene.counters.ssl_handshake_errors.get(), 1);
    }
}
