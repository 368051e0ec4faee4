//! Encryption: a backend on top of another one. It decrypts what the other backend receives, and
//! encrypts what connections send. Connections in plain text pass through.
//!
//! Received records are decrypted at once, except the last one, which may be incomplete. Output is
//! encrypted one [piece](PIECE) at a time. The next piece is encrypted when this one has been sent
//! and other connections have been served. Until then it stays with the connection, and large
//! values stay in memory of the cache. So the server encrypts at most one piece that a client has
//! not read, however many replies the client has asked for.
//!
//! If a client violates TLS, or no parameters can be agreed on, the server sends an alert and then
//! closes the connection. When the server closes a connection for other reasons, it sends
//! `close_notify` if the socket takes it at once. There is no renegotiation and no early data.

use super::backend::{Backend, Event, Waker};
use super::buffer::{Input, Output, Pool};
use super::stream::{Received, Stream};
use crate::observability::stats::Counters;
use crossbeam_utils::CachePadded;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{Error, HandshakeKind, InvalidMessage};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The bytes encrypted at a time.
const PIECE: usize = 256 << 10;

/// The state of rustls in which it encrypts.
type Traffic<'c> = WriteTraffic<'c, ServerConnectionData>;

/// A backend that encrypts.
pub(super) struct Tls<B: Backend> {
    inner: B,
    /// The channels, indexed by the backend's numbers; none for connections in plain text.
    channels: Vec<Option<Channel>>,
    counters: Arc<CachePadded<Counters>>,
}

/// An encrypted connection.
struct Channel {
    session: Box<UnbufferedServerConnection>,
    /// Bytes of an incomplete record, not decrypted yet.
    received: Input,
    /// Encrypted bytes that the other backend has not taken over.
    sending: Output,
    /// Whether the other backend has not sent all that it took over.
    is_sending: bool,
    /// Whether the connection has output that was not encrypted yet.
    has_rest: bool,
    progress: Progress,
}

/// The state of a connection.
enum Progress {
    /// Nothing has arrived.
    Silent,
    Handshake,
    Open,
    /// The client has announced that it will send nothing more.
    Ended,
    /// The connection will be closed when the alert has been sent.
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
        // Nothing is known before decryption.
        if self.channel(key).is_some() { b"" } else { self.inner.arrived(key) }
    }

    fn expect(&mut self, key: usize, input: &mut Input) {
        // Decryption copies the value in any case, so there is nothing to receive in place.
        if self.channel(key).is_none() {
            self.inner.expect(key, input);
        }
    }

    fn is_readable(&self, key: usize) -> bool {
        self.inner.is_readable(key)
    }

    fn has_hung_up(&self, key: usize) -> bool {
        self.inner.has_hung_up(key)
    }

    fn send(&mut self, key: usize, pool: &mut Pool, output: &mut Output) -> io::Result<bool> {
        let Some(channel) = self.channels.get_mut(key).and_then(Option::as_mut) else {
            return self.inner.send(key, pool, output);
        };
        let failure = if let Progress::Failed(error) = &channel.progress { Some(error.clone()) } else { None };
        // The rest of the last piece goes first.
        let mut is_sent = !channel.is_sending || self.inner.send(key, pool, &mut channel.sending)?;
        if is_sent && failure.is_none() && !output.is_empty() {
            pool.lend_output(output.is_small(), &mut channel.sending);
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

    fn shared_buffers(&self) -> usize {
        self.inner.shared_buffers()
    }

    fn held(&self, key: usize) -> (usize, usize) {
        let (received, sending) = self.inner.held(key);
        match self.channel(key) {
            None => (received, sending),
            Some(channel) => (received + channel.received.capacity(), sending + channel.sending.capacity()),
        }
    }

    fn pins_memory(&self, key: usize) -> bool {
        self.inner.pins_memory(key)
    }

    fn moved(&self, key: usize) -> (u64, u64) {
        self.inner.moved(key)
    }

    fn close(&mut self, key: usize) {
        if let Some(mut channel) = self.channels.get_mut(key).and_then(Option::take) {
            match channel.progress {
                Progress::Silent | Progress::Failed(_) => (),
                _ if channel.session.is_handshaking() => self.counters.ssl_handshake_errors.bump(),
                // The server does not wait for the socket, and a connection with unsent output has
                // no orderly end.
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
    /// Sends `close_notify` to the remaining clients.
    fn drop(&mut self) {
        for key in 0..self.channels.len() {
            if self.channels[key].is_some() {
                self.close(key);
            }
        }
    }
}

/// The maximum size of input that cannot be decrypted yet. Data needs less than a record. A
/// handshake message of 64 KiB, the maximum, can need far more, in records of one byte each with
/// padding.
const MAX_UNDECRYPTED: usize = 128 << 10;

impl Channel {
    /// Decrypts the received records into `input`, and appends what TLS itself has to send to the
    /// output.
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
            // Unreachable: before the end of the handshake nothing is executed, so there is no
            // reply to encrypt.
            return Err(as_io(Error::HandshakeNotComplete));
        }
        output.advance(count);
        Ok(())
    }

    /// Appends `close_notify` to the output: the server will send nothing more.
    fn say_goodbye(&mut self) -> Result<(), Error> {
        self.proceed(
            |_| (),
            |traffic, sending| put(sending, |room| traffic.queue_close_notify(room).map_err(Shortage::from)),
        )
    }

    /// Processes the received records. Passes decrypted data to `take`, and appends to the output
    /// what TLS itself has to send. When the handshake is complete, `write` may append encrypted
    /// data.
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

    /// Adds the alert for a failure to the output.
    fn put_alert(&mut self) {
        let sending = self.sending.bytes();
        // The received bytes are not passed, because they would be processed.
        while self.session.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(mut data)) = self.session.process_tls_records(&mut []).state
            && put_data(sending, &mut data).is_ok()
        {}
    }
}

/// Why rustls does not write.
enum Shortage {
    /// The buffer must have this many bytes.
    Room(usize),
    /// Another error.
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

/// Calls `write` with as much room as it asks for, and appends what it writes.
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

/// The maximum size of `count` bytes when encrypted. Records have at least 1 KiB, except the last
/// one, and an overhead of less than 32 bytes.
fn encrypted_size(count: usize) -> usize {
    count + count / 32 + 32
}

fn as_io(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Whether a client does not speak TLS, or violates it. (Otherwise no parameters could be agreed
/// on, or the client gave up.)
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
mod tests;
