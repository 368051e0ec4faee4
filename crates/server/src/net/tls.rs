//! Encryption: a backend on top of another. What the other receives is decrypted before a connection sees it, and what a connection
//! sends is encrypted before the other does; connections in plain text pass through.
//!
//! What has arrived is decrypted at once, but for the last record, which may lack its end. What a connection hands over is encrypted a
//! [piece](PIECE) at a time, the next when that one has gone, and others have their turn in between. The rest stays with the connection: large values
//! where they lie. So no more than a piece is encrypted ahead of a client, however much it has asked for.
//!
//! A client that does not keep to TLS, or cannot be agreed with, is told by an alert, and closed when that has gone. When we close a connection,
//! as when the server stops, its end is told to the client, if the socket takes that at once. Nothing is negotiated anew, and nothing taken early.

use super::backend::{Backend, Event, Received, Waker};
use super::buffer::{Input, Output, Pool};
use super::stream::Stream;
use crate::observability::stats::Counters;
use crossbeam_utils::CachePadded;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{Error, HandshakeKind, InvalidMessage};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// What is encrypted at a time.
const PIECE: usize = 256 << 10;

/// Where rustls encrypts.
type Traffic<'c> = WriteTraffic<'c, ServerConnectionData>;

/// A backend that encrypts.
pub(super) struct Tls<B: Backend> {
    inner: B,
    /// Each where the backend's number says; none for connections in plain text.
    channels: Vec<Option<Channel>>,
    counters: Arc<CachePadded<Counters>>,
}

/// An encrypted connection.
struct Channel {
    session: Box<UnbufferedServerConnection>,
    /// What has not been decrypted, because a part is missing.
    received: Input,
    /// What is encrypted, and has not been handed over.
    sending: Output,
    /// Whether the other backend has not sent all that it was handed, as far as it was asked.
    is_sending: bool,
    /// Whether the connection was left with something to send.
    has_rest: bool,
    progress: Progress,
}

/// How far a connection is.
enum Progress {
    /// Nothing has come.
    Silent,
    Handshake,
    Open,
    /// The client has said that nothing more will come.
    Ended,
    /// It is to be closed when the client has been told.
    Failed(Error),
}

impl<B: Backend> Backend for Tls<B> {
    fn new(counters: Arc<CachePadded<Counters>>) -> io::Result<Tls<B>> {
        let inner = B::new(Arc::clone(&counters))?;
        Ok(Tls { inner, channels: Vec::new(), counters })
    }

    fn waker(&self) -> Arc<Waker> {
        self.inner.waker()
    }

    fn start(&mut self) -> io::Result<()> {
        self.inner.start()
    }

    fn wait(&mut self, timeout: Option<Duration>, pool: &mut Pool, events: &mut Vec<Event>) -> io::Result<()> {
        self.inner.wait(timeout, pool, events)
    }

    fn open(&mut self, stream: Stream) -> io::Result<usize> {
        self.inner.open(stream)
    }

    fn encrypt(&mut self, key: usize, session: Box<UnbufferedServerConnection>) {
        if key >= self.channels.len() {
            self.channels.resize_with(key + 1, || None);
        }
        self.channels[key] = Some(Channel {
            session,
            received: Input::default(),
            sending: Output::default(),
            is_sending: false,
            has_rest: false,
            progress: Progress::Silent,
        });
    }

    fn is_handshaking(&self, key: usize) -> bool {
        self.channel(key).is_some_and(|channel| !matches!(channel.progress, Progress::Open | Progress::Ended))
    }

    fn receive(&mut self, key: usize, pool: &mut Pool, input: &mut Input) -> io::Result<Received> {
        let Some(channel) = self.channels.get_mut(key).and_then(Option::as_mut) else {
            return self.inner.receive(key, pool, input);
        };
        if let Progress::Ended | Progress::Failed(_) = channel.progress {
            return Ok(Received::End);
        }
        let received = self.inner.receive(key, pool, &mut channel.received)?;
        if received == Received::Bytes {
            channel.decrypt(pool, input, &self.counters);
        }
        pool.take_back_input(&mut channel.received);
        if !self.inner.is_readable(key) {
            channel.received.shrink();
        }
        Ok(match &channel.progress {
            Progress::Ended | Progress::Failed(_) => Received::End,
            Progress::Handshake if received == Received::Bytes => Received::Nothing,
            _ => received,
        })
    }

    fn arrived(&self, key: usize) -> &[u8] {
        // Nobody can tell before it is decrypted.
        if self.channel(key).is_some() { b"" } else { self.inner.arrived(key) }
    }

    fn expect(&mut self, key: usize, input: &mut Input) {
        // What is decrypted is copied anyway.
        if self.channel(key).is_none() {
            self.inner.expect(key, input);
        }
    }

    fn is_readable(&self, key: usize) -> bool {
        self.inner.is_readable(key)
    }

    fn send(&mut self, key: usize, pool: &mut Pool, output: &mut Output) -> io::Result<bool> {
        let Some(channel) = self.channels.get_mut(key).and_then(Option::as_mut) else {
            return self.inner.send(key, pool, output);
        };
        let failure = if let Progress::Failed(error) = &channel.progress { Some(error.clone()) } else { None };
        // What was left the last time goes first.
        let mut is_sent = !channel.is_sending || self.inner.send(key, pool, &mut channel.sending)?;
        if is_sent && failure.is_none() && !output.is_empty() {
            pool.lend_output(&mut channel.sending);
            channel.encrypt(output)?;
        }
        is_sent = is_sent && self.inner.send(key, pool, &mut channel.sending)?;
        pool.take_back_output(&mut channel.sending);
        (channel.is_sending, channel.has_rest) = (!is_sent, !output.is_empty());
        match failure {
            Some(error) if is_sent => Err(as_io(error)),
            _ => Ok(is_sent && !channel.has_rest),
        }
    }

    fn is_writable(&self, key: usize) -> bool {
        self.channel(key).is_some_and(|channel| !channel.is_sending)
    }

    fn held(&self, key: usize) -> (usize, usize) {
        let (received, sending) = self.inner.held(key);
        match self.channel(key) {
            None => (received, sending),
            Some(channel) => (received + channel.received.capacity(), sending + channel.sending.capacity()),
        }
    }

    fn has_loans(&self, key: usize) -> bool {
        self.inner.has_loans(key)
    }

    fn moved(&self, key: usize) -> (u64, u64) {
        self.inner.moved(key)
    }

    fn close(&mut self, key: usize) {
        if let Some(mut channel) = self.channels.get_mut(key).and_then(Option::take) {
            match channel.progress {
                Progress::Silent | Progress::Failed(_) => (),
                _ if channel.session.is_handshaking() => self.counters.ssl_handshake_errors.bump(),
                // What cannot be sent at once is not worth waiting for, and what was cut off did not end well.
                _ if channel.has_rest || !channel.sending.is_empty() => (),
                _ => {
                    let said = channel.say_goodbye();
                    drop(said.map(|()| self.inner.send(key, &mut Pool::default(), &mut channel.sending)));
                }
            }
        }
        self.inner.close(key);
    }
}

impl<B: Backend> Tls<B> {
    fn channel(&self, key: usize) -> Option<&Channel> {
        self.channels.get(key)?.as_ref()
    }
}

impl<B: Backend> Drop for Tls<B> {
    /// Tells the clients that are left.
    fn drop(&mut self) {
        for key in 0..self.channels.len() {
            if self.channels[key].is_some() {
                self.close(key);
            }
        }
    }
}

/// What may have arrived and not make sense yet. Of data that is less than a record; of a handshake's message, which has 64 KiB at most, it can be
/// far more, in records of a byte each and of padding.
const MAX_UNDECRYPTED: usize = 128 << 10;

impl Channel {
    /// Adds what has arrived to `input`, as far as it can be decrypted, and answers what TLS itself has to be answered.
    fn decrypt(&mut self, pool: &mut Pool, input: &mut Input, counters: &Counters) {
        let take = |bytes: &[u8]| {
            let rest = input.pass_on(bytes);
            if !rest.is_empty() {
                pool.lend_input_for(rest.len(), input);
                input.append(rest);
            }
        };
        let was_open = !self.session.is_handshaking();
        let outcome = self.proceed(take, |_, _| Ok(())).and_then(|()| match self.received.unread().len() {
            0..=MAX_UNDECRYPTED => Ok(()),
            _ => Err(InvalidMessage::HandshakePayloadTooLarge.into()),
        });
        if let Err(error) = outcome {
            if is_misbehaviour(&error) || was_open {
                counters.ssl_proto_errors.bump();
            } else {
                counters.ssl_handshake_errors.bump();
            }
            self.progress = Progress::Failed(error);
            return self.put_alert();
        }
        if !was_open && !self.session.is_handshaking() {
            match self.session.handshake_kind() {
                Some(HandshakeKind::Resumed) => counters.ssl_resumed_sessions.bump(),
                _ => counters.ssl_new_sessions.bump(),
            }
        }
        self.progress = match self.progress {
            Progress::Ended => Progress::Ended,
            _ if self.session.is_handshaking() => Progress::Handshake,
            _ => Progress::Open,
        };
    }

    /// Encrypts the first piece of `output`, which is not empty.
    fn encrypt(&mut self, output: &mut Output) -> io::Result<()> {
        let mut count = 0;
        let encrypt = |traffic: &mut Traffic<'_>, sending: &mut Vec<u8>| {
            sending.reserve_exact(output.pieces(PIECE).map(|part| encrypted_size(part.len())).sum());
            output.pieces(PIECE).try_for_each(|part| {
                count += part.len();
                put(sending, |room| traffic.encrypt(part, room).map_err(Shortage::from))
            })
        };
        self.proceed(|_| (), encrypt).map_err(as_io)?;
        if count == 0 {
            // It should not be: nothing is executed, so nothing answered, before.
            return Err(as_io(Error::HandshakeNotComplete));
        }
        output.advance(count);
        Ok(())
    }

    /// Tells the client that nothing more will come from us.
    fn say_goodbye(&mut self) -> Result<(), Error> {
        self.proceed(
            |_| (),
            |traffic, sending| put(sending, |room| traffic.queue_close_notify(room).map_err(Shortage::from)),
        )
    }

    /// Lets TLS go on with what has arrived, as far as it goes: hands what it decrypts to `take`, and adds to what is sent what it has to
    /// answer, and what `write` encrypts, if it has been agreed how.
    fn proceed(
        &mut self,
        mut take: impl FnMut(&[u8]),
        write: impl FnOnce(&mut Traffic<'_>, &mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let sending = self.sending.bytes();
        loop {
            let UnbufferedStatus { mut discard, state } = self.session.process_tls_records(self.received.unread_mut());
            let mut is_done = false;
            match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        take(record.payload);
                    }
                }
                ConnectionState::EncodeTlsData(mut data) => put_data(sending, &mut data)?,
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => self.progress = Progress::Ended,
                ConnectionState::WriteTraffic(mut traffic) => {
                    self.received.consume(discard);
                    return write(&mut traffic, sending);
                }
                ConnectionState::BlockedHandshake | ConnectionState::Closed => is_done = true,
                _ => return Err(Error::General("an unexpected state".into())),
            }
            self.received.consume(discard);
            if is_done {
                return Ok(());
            }
        }
    }

    /// Adds the alert that tells the client of a failure.
    fn put_alert(&mut self) {
        let sending = self.sending.bytes();
        // Not with what has arrived: that would be looked at.
        while self.session.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(mut data)) = self.session.process_tls_records(&mut []).state
            && put_data(sending, &mut data).is_ok()
        {}
    }
}

/// Why rustls does not write.
enum Shortage {
    /// It needs so much room.
    Room(usize),
    /// It never will.
    Other(Error),
}

impl From<EncodeError> for Shortage {
    fn from(error: EncodeError) -> Shortage {
        match error {
            EncodeError::InsufficientSize(size) => Shortage::Room(size.required_size),
            other => Shortage::Other(Error::General(other.to_string())),
        }
    }
}

impl From<EncryptError> for Shortage {
    fn from(error: EncryptError) -> Shortage {
        match error {
            EncryptError::InsufficientSize(size) => Shortage::Room(size.required_size),
            other => Shortage::Other(Error::General(other.to_string())),
        }
    }
}

fn put_data(out: &mut Vec<u8>, data: &mut EncodeTlsData<'_, ServerConnectionData>) -> Result<(), Error> {
    put(out, |room| data.encode(room).map_err(Shortage::from))
}

/// Appends what `write` writes when it is given the room that it asks for.
fn put(out: &mut Vec<u8>, mut write: impl FnMut(&mut [u8]) -> Result<usize, Shortage>) -> Result<(), Error> {
    let end = out.len();
    let mut written = write(&mut []);
    if let Err(Shortage::Room(size)) = written {
        out.resize(end + size, 0);
        written = write(&mut out[end..]);
    }
    match written {
        Ok(count) => {
            out.truncate(end + count);
            Ok(())
        }
        Err(Shortage::Room(_)) => Err(Error::EncryptError),
        Err(Shortage::Other(error)) => Err(error),
    }
}

/// What so many bytes may become. Records are of a KiB at least, but for the last, with less than 32 bytes beside that.
fn encrypted_size(count: usize) -> usize {
    count + count / 32 + 32
}

fn as_io(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Whether a client does not speak TLS, or not well. (Otherwise it cannot be agreed with, or does not want to go on.)
fn is_misbehaviour(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidMessage(_)
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. }
            | Error::PeerMisbehaved(_)
            | Error::PeerSentOversizedRecord
            | Error::DecryptError
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::Authority;
    use crate::observability::log::Log;
    use crate::options::{ClientCertificate, Options};
    use relativist_cache::Clock;
    use relativist_cache::{Cache, Content, Mode, Store};
    use rustls::{ClientConfig, ClientConnection};
    use std::io::{Read, Write};

    /// Bytes before what is in a record.
    const RECORD_HEADER: usize = 5;

    /// A backend of one connection, which takes and gives so many bytes at a time.
    struct Wire {
        step: usize,
        incoming: Vec<u8>,
        outgoing: Vec<u8>,
        /// What it has taken over and sent, if it does not send from where that lies.
        sent: Option<Output>,
    }

    impl Backend for Wire {
        fn new(_: Arc<CachePadded<Counters>>) -> io::Result<Wire> {
            Ok(Wire { step: usize::MAX, incoming: Vec::new(), outgoing: Vec::new(), sent: None })
        }

        fn waker(&self) -> Arc<Waker> {
            unreachable!("nobody waits")
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
            unreachable!("nobody looks")
        }

        fn close(&mut self, _: usize) {}
    }

    /// A connection, number 0, between a client and a server that sends back what it receives.
    struct Scene {
        client: ClientConnection,
        /// What the client has got, and whether it was told that this is all.
        got: Vec<u8>,
        is_told: bool,
        server: Tls<Wire>,
        pool: Pool,
        input: Input,
        output: Output,
        counters: Arc<CachePadded<Counters>>,
    }

    /// What the two are to agree on.
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

        /// Lets the client send, gives the connection a turn, and lets the client receive. What the connection has received.
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
                assert!(is_sent || is_announced || self.server.is_writable(0), "nobody would come back for it");
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

        /// What the connection was left with.
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
    fn whatever_goes_at_a_time_all_comes_back() {
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
        let engine = Cache::new(Arc::new(Clock::new(1)), 16 << 20, 1 << 20).unwrap();
        let value: Vec<u8> = (0..LENGTH).map(|i| (i % 251) as u8).collect();
        let content = Content { flags: 0, exptime: 0, value: &value };
        assert_eq!(engine.store(Mode::Set, b"k", content), Store::Stored);
        let terms = Terms::new("");
        let ask = || {
            let mut scene = Scene::open(&terms);
            scene.output.bytes().extend_from_slice(b"VALUE");
            engine.get(b"k", |hit| scene.output.replies().append(hit.lease().unwrap()));
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
        // Now the client takes all, and nothing is announced.
        scene.server.inner.step = usize::MAX;
        for left in [5 + LENGTH - 2 * PIECE, 5, 0] {
            assert_eq!((scene.send().unwrap(), scene.left()), (left == 0, left));
            assert!(scene.server.is_writable(0));
            assert!(
                scene.server.inner.outgoing.len() < 2 * (PIECE + PIECE / 16),
                "a turn lasts longer than others like"
            );
            scene.deliver();
        }
        assert!(scene.got == [b"VALUE", &*value].concat());
        assert_eq!((scene.server.held(0).1, engine.usage().lent_bytes), (0, 0));

        let mut scene = ask();
        assert!(!scene.send().unwrap());
        scene.server.close(0);
        scene.deliver();
        assert!(!scene.got.is_empty() && !scene.is_told, "that was not all");
    }

    /// Where the kernel sends by itself, what is encrypted for it comes back when it has waited.
    #[test]
    fn buffers_that_were_sent_are_used_again() {
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
    fn the_client_is_told_when_it_is_over_and_believed_when_it_says_so() {
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
    fn what_is_not_tls_is_answered_by_an_alert() {
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
            // A length that is too large leaves it waiting for the rest.
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

    /// Cut off, with any byte changed, or twice in one record, so that an error in it leaves something behind.
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
}
