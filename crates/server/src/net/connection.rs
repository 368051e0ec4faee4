//! One client: its buffers, and the state of its requests.
//!
//! When its socket is ready, a connection sends the rest of its output, receives once, executes the
//! requests that have arrived, and sends the replies ([`Connection::on_ready`]). If the socket
//! takes no more, nothing is received or executed until all output has been sent. So a client that
//! does not read delays only itself, and makes the server hold no more than one full output buffer
//! and the large values in it, whose memory the cache bounds. A client that has closed its side
//! receives all replies before the connection is closed.
//!
//! [`requests`] turns bytes into replies.

mod requests;
mod step;
#[cfg(test)]
mod tests;

use super::backend::Backend;
use super::buffer::{Input, Output, Pool};
use super::stream::Received;
use crate::execute::{ConnectionState, Executor, Login, Session, Subscription, Tenant};
use crate::limits::buffers::BufferBytes;
use crate::limits::connections::ConnectionPermit;
use crate::limits::slow_clients::{Progress, ProgressCheck};
use crate::options::Binding;
use relativist_memcache::{Decoder, Limits, LoginDecoder, Protocol, binary};
use relativist_store::Room;
use std::io;
use std::sync::Arc;
pub(super) use step::Ending;
use step::Pending;

/// The bytes of output at which execution pauses to send them. The reply of one command, or of one
/// key of a fetch, may exceed this limit.
pub(super) const OUTPUT_LIMIT: usize = 256 << 10;

/// Maximum number of requests answered before login. Then the connection is closed.
const MAX_REQUESTS_BEFORE_LOGIN: u8 = 64;

/// The number of requests from which on a turn had short ones.
const MIN_SHORT: u32 = 100;

/// A connection.
pub(super) struct Connection {
    /// Dropped before the socket is closed: when the client notices the close, its place is free.
    _permit: ConnectionPermit,
    /// The backend's number for this connection.
    key: usize,
    /// Whether it is in the worker's queue.
    pub(super) is_queued: bool,
    /// Whether its last turn ended within a command that takes long, or it has had no turn yet. All
    /// such connections of a worker share their turns.
    pub(super) takes_long: bool,
    pub(super) session: Arc<Session>,
    /// The tenant of the session, while it is not in use for a turn.
    pub(super) tenant: Option<Arc<Tenant>>,
    /// The buffer bytes that the worker has counted for it.
    pub(super) counted: BufferBytes,
    phase: Phase,
    codec: Codec,
    limits: Limits,
    /// The state of the SASL login.
    login: Login,
    /// The number of requests that the client may still make before login.
    requests_before_login: u8,
    input: Input,
    /// Whether the client has closed its side.
    has_input_ended: bool,
    output: Output,
    /// Whether the replies of the last turn fit a small buffer.
    has_small_replies: bool,
    /// Whether the backend has not sent all of the output yet.
    is_sending: bool,
    pending: Pending,
    /// The room for the value of the current store.
    room: Making,
    progress_check: ProgressCheck,
}

/// What the connection does once all output has been sent.
///
/// ```text
/// Serving <--> Paused        Serving --> Watching        any --> Closing
/// ```
enum Phase {
    /// Receives requests and executes them.
    Serving,
    /// Execution stopped because the output is full, or to let other connections go first.
    Paused,
    /// Sends log lines. Input has no meaning.
    Watching(Arc<Subscription>),
    /// Executes nothing more.
    Closing(Ending),
}

/// Room for a large value that has not arrived completely, and has no memory of the cache yet.
enum Making {
    /// None was asked for.
    None,
    /// More is made in the next turn.
    Room(Room),
    /// The cache had no memory for it. It is not asked again for each piece of the value.
    Refused,
}

/// The protocol of a connection, and the state of its decoder.
enum Codec {
    /// The first byte will decide about the protocol.
    Undecided,
    /// A login in text; the text protocol follows.
    Login(LoginDecoder),
    Text(Decoder),
    Binary(binary::Decoder),
}

impl Codec {
    fn new(protocol: Protocol, limits: Limits) -> Codec {
        match protocol {
            Protocol::Text => Codec::Text(Decoder::new(limits)),
            Protocol::Binary => Codec::Binary(binary::Decoder::new(limits)),
        }
    }
}

/// The settings of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) limits: Limits,
    pub(super) binding: Binding,
    pub(super) requires_text_login: bool,
    pub(super) requires_sasl: bool,
}

/// What the worker does with a connection next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NextState {
    /// Wait for an event of its socket.
    Wait,
    /// Queue it again, behind other connections.
    Again,
    /// Register it as a watcher: it has just become one.
    Watch,
    /// Close it, or stop the server.
    End(Ending),
}

impl Connection {
    pub(super) fn new(key: usize, session: Arc<Session>, terms: Terms, permit: ConnectionPermit) -> Connection {
        let Terms { limits, binding, requires_text_login, requires_sasl } = terms;
        Connection {
            _permit: permit,
            key,
            is_queued: false,
            takes_long: true,
            session,
            tenant: None,
            counted: BufferBytes::default(),
            phase: Phase::Serving,
            codec: match binding {
                _ if requires_text_login => Codec::Login(LoginDecoder::default()),
                // Whatever the listener's protocol is: the text protocol has no SASL.
                _ if requires_sasl => Codec::new(Protocol::Binary, limits),
                Binding::Auto => Codec::Undecided,
                Binding::Ascii => Codec::new(Protocol::Text, limits),
                Binding::Binary => Codec::new(Protocol::Binary, limits),
            },
            limits,
            login: if requires_sasl { Login::None } else { Login::Done },
            requests_before_login: MAX_REQUESTS_BEFORE_LOGIN,
            input: Input::default(),
            has_input_ended: false,
            output: Output::default(),
            has_small_replies: true,
            is_sending: false,
            pending: Pending::None,
            room: Making::None,
            progress_check: ProgressCheck::default(),
        }
    }

    /// Takes the tenant of the session for a turn.
    pub(super) fn take_tenant(&mut self) -> Option<Arc<Tenant>> {
        self.tenant.take().or_else(|| self.session.tenant().cloned())
    }

    /// The connection's subscription, if it is a watcher.
    pub(super) fn subscription(&self) -> Option<&Arc<Subscription>> {
        match &self.phase {
            Phase::Watching(subscription) => Some(subscription),
            _ => None,
        }
    }

    /// Whether the server waits for the client: for a request, or for a watcher to take log lines.
    /// (A client may take its time to read the replies to its requests.)
    pub(super) fn awaits_client(&self) -> bool {
        match self.phase {
            Phase::Watching(_) => self.is_sending,
            _ => !self.is_sending && matches!(self.pending, Pending::None | Pending::Store(_)),
        }
    }

    /// Receives, executes and sends as far as possible without waiting, at most `max_requests`
    /// requests, until the turn has ended.
    ///
    /// # Errors
    /// An error of the socket. The connection is unusable then.
    pub(super) fn on_ready<B: Backend>(
        &mut self,
        executor: &Executor<'_>,
        backend: &mut B,
        pool: &mut Pool,
        max_requests: u32,
    ) -> io::Result<NextState> {
        pool.lend_output(self.has_small_replies, &mut self.output);
        let next = self.transfer_and_execute(executor, backend, pool, max_requests);
        pool.take_back_input(&mut self.input);
        pool.take_back_output(&mut self.output);
        if matches!(next, Ok(NextState::Wait)) {
            self.input.shrink();
        }
        next
    }

    fn transfer_and_execute<B: Backend>(
        &mut self,
        executor: &Executor<'_>,
        backend: &mut B,
        pool: &mut Pool,
        max_requests: u32,
    ) -> io::Result<NextState> {
        // Nothing is received within a command, and a survey sends nothing before its end.
        if (self.takes_long || matches!(self.phase, Phase::Paused)) && backend.has_hung_up(self.key) {
            return Ok(NextState::End(Ending::Normal));
        }
        if !self.send(backend, pool)? {
            return Ok(self.next_state(backend));
        }
        self.note_taken(executor.now());
        if matches!(self.phase, Phase::Serving | Phase::Watching(_)) {
            match backend.receive(self.key, pool, &mut self.input)? {
                Received::Bytes => self.session.note_activity(executor.now()),
                Received::Nothing => (),
                Received::End => self.has_input_ended = true,
            }
        }
        let was_watching = self.subscription().is_some();
        let executed = self.execute(executor, max_requests);
        self.has_small_replies = self.output.is_small();
        // A turn that many short commands have filled is as short as theirs.
        let is_long = matches!(self.pending, Pending::Dump(_)) || executor.has_turn_ended() && executed < MIN_SHORT;
        self.takes_long = is_long && matches!(self.phase, Phase::Paused);
        if self.input.is_expecting() {
            backend.expect(self.key, &mut self.input);
        }
        self.send(backend, pool)?;
        Ok(match self.next_state(backend) {
            NextState::Wait | NextState::Again if self.subscription().is_some() && !was_watching => NextState::Watch,
            other => other,
        })
    }

    fn next_state<B: Backend>(&self, backend: &B) -> NextState {
        match self.phase {
            _ if self.is_sending && backend.is_writable(self.key) => NextState::Again,
            _ if self.is_sending => NextState::Wait,
            Phase::Closing(ending) => NextState::End(ending),
            Phase::Paused => NextState::Again,
            Phase::Serving | Phase::Watching(_) if self.has_input_ended => NextState::End(Ending::Normal),
            Phase::Serving | Phase::Watching(_) if backend.is_readable(self.key) => NextState::Again,
            Phase::Serving | Phase::Watching(_) => NextState::Wait,
        }
    }

    /// Sends the output. Returns false if not all of it was sent.
    fn send<B: Backend>(&mut self, backend: &mut B, pool: &mut Pool) -> io::Result<bool> {
        self.is_sending = !backend.send(self.key, pool, &mut self.output)?;
        self.session.set_state(if self.is_sending { ConnectionState::Writing } else { self.resting_state() });
        Ok(!self.is_sending)
    }

    /// Notes at `now` that the backend has sent all output that it took over. Returns whether there
    /// is more to do.
    pub(super) fn note_sent<B: Backend>(&mut self, backend: &B, now: u32) -> bool {
        self.note_taken(now);
        if !self.output.is_empty() {
            return true;
        }
        self.is_sending = false;
        self.session.set_state(self.resting_state());
        // Log lines that came for a watcher meanwhile are not announced again.
        self.subscription().is_some() || self.next_state(backend) != NextState::Wait
    }

    /// Notes that a watcher is active. It sends no requests, but it takes log lines.
    fn note_taken(&self, now: u32) {
        if self.subscription().is_some() {
            self.session.note_activity(now);
        }
    }

    /// The state shown by `stats conns` while nothing is executed or sent.
    fn resting_state(&self) -> ConnectionState {
        let (is_receiving, is_skipping) = match (&self.pending, &self.codec) {
            (Pending::Store(_), _) => (true, false),
            (_, Codec::Text(decoder)) => (decoder.is_receiving(), decoder.is_skipping()),
            (_, Codec::Binary(decoder)) => (decoder.is_receiving(self.input.unread()), decoder.is_skipping()),
            (_, Codec::Undecided | Codec::Login(_)) => (false, false),
        };
        match self.phase {
            Phase::Watching(_) => ConnectionState::Watching,
            _ if is_receiving => ConnectionState::Receiving,
            _ if is_skipping => ConnectionState::Skipping,
            _ => ConnectionState::Reading,
        }
    }

    /// The bytes that its buffers hold.
    pub(super) fn held<B: Backend>(&self, backend: &B) -> BufferBytes {
        let (received, sending) = backend.held(self.key);
        BufferBytes { inputs: self.input.capacity() + received, outputs: self.output.capacity() + sending }
    }

    /// Whether it pins memory of items.
    pub(super) fn pins_memory<B: Backend>(&self, backend: &B) -> bool {
        self.input.pins_memory() || self.output.pins_memory() || backend.pins_memory(self.key)
    }

    /// Whether its client pins memory of items, or does not take its replies while buffers
    /// `are_short`, and is too slow. Call this once a second.
    pub(super) fn is_too_slow<B: Backend>(&mut self, backend: &B, are_short: bool, now: u32) -> bool {
        let progress = (self.pins_memory(backend) || are_short && self.is_sending).then(|| {
            let (received, taken) = backend.moved(self.key);
            // Nothing is received before the client has taken its replies.
            Progress { is_sending: self.is_sending, bytes: if self.is_sending { taken } else { received } }
        });
        self.progress_check.is_too_slow(progress, now)
    }

    /// Whether its client had stalled when [`is_too_slow`](Self::is_too_slow) was last called.
    pub(super) fn is_stalled(&self) -> bool {
        self.progress_check.is_stalled()
    }
}
