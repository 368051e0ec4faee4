//! One client: its buffers, and what is to be done next.
//!
//! A turn goes: send what is left, read once, execute everything that arrived, send the answers. It ends early when the
//! socket takes no more: then nothing is read or executed until all has been sent, so a client that does not read holds up
//! nobody but itself, and holds no more memory than one full output buffer, and the large values in it, which the engine bounds. A client
//! that has closed its side gets all its answers before the connection is closed.

use super::backend::{Backend, Received};
use super::buffer::{Input, Output, Pool};
use crate::engine::{LARGE_VALUE, MAX_BATCH_KEYS};
use crate::execute::{
    ConnectionState, Dump, Executor, Extent, Fetch, Login, Outcome, Replies, Session, Subscription, Verdict, trace,
};
use crate::limits::buffers::BufferBytes;
use crate::limits::connections::ConnectionPermit;
use crate::limits::slow_clients::{Progress, ProgressCheck};
use crate::options::Binding;
use relativist_memcache::{self as memcache, Command, Decoded, Decoder, Limits, LoginDecoder, Protocol, binary};
use std::io;
use std::sync::Arc;

/// Output at which execution pauses to send it. One command, or one key of a fetch, may exceed it by its whole reply.
pub(super) const OUTPUT_LIMIT: usize = 256 << 10;

/// Requests of a stranger that are answered. Who has not logged in by then does not want to.
const MAX_REQUESTS_BEFORE_LOGIN: u8 = 64;

/// Bytes behind a value in the text protocol.
const TEXT_END: usize = b"\r\n".len();

/// A connection.
pub(super) struct Connection {
    /// Given back before the socket is closed: a client that sees that can count on its place being free.
    _pass: ConnectionPermit,
    /// What the backend calls it.
    key: usize,
    /// Whether it stands in the worker's queue.
    pub(super) is_queued: bool,
    pub(super) session: Arc<Session>,
    /// What its buffers were counted with.
    pub(super) counted: BufferBytes,
    /// What it watches, if it does.
    pub(super) subscription: Option<Arc<Subscription>>,
    codec: Codec,
    limits: Limits,
    /// How far the SASL login is.
    login: Login,
    /// Requests that it may still make before it is logged in.
    requests_before_login: u8,
    input: Input,
    output: Output,
    pending: Pending,
    progress_check: ProgressCheck,
    /// Whether the request that is arriving will not get room where its value would lie: it is not asked for again with each piece.
    is_refused: bool,
    /// Whether execution stopped for lack of room in the output, or of patience of others.
    is_paused: bool,
    /// Whether the backend is sending for it.
    is_sending: bool,
    /// Whether the input has ended.
    at_end: bool,
    /// Whether the connection is to be closed once all answers are sent.
    is_closing: bool,
    /// Whether that is because the client broke the protocol or failed to log in.
    is_at_fault: bool,
    /// Whether the client wants the server to end.
    is_shutdown: bool,
}

/// What makes requests of bytes.
enum Codec {
    /// To be told by the first byte.
    Undecided,
    /// For strangers, who then speak text.
    Login(LoginDecoder),
    Text(Decoder),
    Binary(binary::Decoder),
}

/// A command that was paused.
enum Pending {
    None,
    /// How much of the unread input is the rest of the line, which begins with the next key. It is kept so that the line is
    /// decoded once, however often its replies fill the output.
    Fetch(Fetch, usize),
    Dump(Box<Dump>),
    /// A store that is not paused, but waits for its value, which the input receives apart: what came before that.
    Store(Box<[u8]>),
}

/// How a connection is to be spoken with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) limits: Limits,
    pub(super) binding: Binding,
    pub(super) requires_text_login: bool,
    pub(super) requires_sasl: bool,
}

/// What a connection expects after its turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Turn {
    /// To hear from its socket.
    Wait,
    /// Another turn, when others had theirs.
    Again,
    /// To be woken when there is something that it watches.
    Watch,
    /// To be closed, because the client wants that or because it is at fault.
    Close { is_at_fault: bool },
    /// The server to end.
    Shutdown,
}

impl Connection {
    pub(super) fn new(key: usize, session: Arc<Session>, terms: Terms, pass: ConnectionPermit) -> Connection {
        let Terms { limits, binding, requires_text_login, requires_sasl } = terms;
        Connection {
            _pass: pass,
            key,
            is_queued: false,
            session,
            counted: BufferBytes::default(),
            subscription: None,
            codec: match binding {
                _ if requires_text_login => Codec::Login(LoginDecoder::default()),
                // Whatever the listener says: the text protocol knows nothing of SASL.
                _ if requires_sasl => Codec::Binary(binary::Decoder::new(limits)),
                Binding::Auto => Codec::Undecided,
                Binding::Ascii => Codec::Text(Decoder::new(limits)),
                Binding::Binary => Codec::Binary(binary::Decoder::new(limits)),
            },
            limits,
            login: if requires_sasl { Login::None } else { Login::Done },
            requests_before_login: MAX_REQUESTS_BEFORE_LOGIN,
            input: Input::default(),
            output: Output::default(),
            pending: Pending::None,
            progress_check: ProgressCheck::default(),
            is_refused: false,
            is_paused: false,
            is_sending: false,
            at_end: false,
            is_closing: false,
            is_at_fault: false,
            is_shutdown: false,
        }
    }

    /// Whether it is the client's turn to do something: to say something, or, if it watches, to take what it is told. (It may take
    /// its time to read what it has asked for.)
    pub(super) fn awaits_client(&self) -> bool {
        match self.subscription {
            None => !self.is_sending && matches!(self.pending, Pending::None | Pending::Store(_)),
            Some(_) => self.is_sending,
        }
    }

    /// Takes note that what the backend took over has been sent, at `now`. True if there is more to do.
    pub(super) fn note_sent<B: Backend>(&mut self, backend: &B, now: u32) -> bool {
        self.note_taken(now);
        if !self.output.is_empty() {
            return true;
        }
        self.is_sending = false;
        self.session.set_state(self.resting_state());
        // What a watcher is told meanwhile is not announced again.
        self.subscription.is_some() || self.next(backend) != Turn::Wait
    }

    /// Gives the connection its turn, in which it may have `most` requests executed.
    ///
    /// # Errors
    /// What the socket reports; the connection is then of no more use.
    pub(super) fn turn<B: Backend>(
        &mut self,
        executor: &Executor<'_>,
        backend: &mut B,
        pool: &mut Pool,
        most: u32,
    ) -> io::Result<Turn> {
        pool.lend_output(&mut self.output);
        let turn = self.proceed(executor, backend, pool, most);
        pool.take_back_input(&mut self.input);
        pool.take_back_output(&mut self.output);
        if matches!(turn, Ok(Turn::Wait)) {
            self.input.shrink();
        }
        turn
    }

    /// A watcher has nothing to say: it is heard of when it takes what it is told.
    fn note_taken(&self, now: u32) {
        if self.subscription.is_some() {
            self.session.hear(now);
        }
    }

    /// What its buffers hold between two turns.
    pub(super) fn held<B: Backend>(&self, backend: &B) -> BufferBytes {
        let (received, sending) = backend.held(self.key);
        BufferBytes { inputs: self.input.capacity() + received, outputs: self.output.capacity() + sending }
    }

    /// Whether it keeps large values on loan.
    pub(super) fn has_loans<B: Backend>(&self, backend: &B) -> bool {
        self.input.has_loan() || self.output.has_loans() || backend.has_loans(self.key)
    }

    /// Whether its client keeps large values on loan and is too slow with them. To be asked often.
    pub(super) fn is_too_slow<B: Backend>(&mut self, backend: &B, now: u32) -> bool {
        let progress = self.has_loans(backend).then(|| {
            let (received, taken) = backend.moved(self.key);
            // Nothing is executed, and so nothing wanted from the client, before it has taken its answers.
            Progress { is_sending: self.is_sending, bytes: if self.is_sending { taken } else { received } }
        });
        self.progress_check.is_too_slow(progress, now)
    }

    fn proceed<B: Backend>(
        &mut self,
        executor: &Executor<'_>,
        backend: &mut B,
        pool: &mut Pool,
        most: u32,
    ) -> io::Result<Turn> {
        if !self.send(backend, pool)? {
            return Ok(self.next(backend));
        }
        self.note_taken(executor.now());
        if !self.is_paused && !self.is_closing {
            match backend.receive(self.key, pool, &mut self.input)? {
                Received::Bytes => self.session.hear(executor.now()),
                Received::Nothing => (),
                Received::End => self.at_end = true,
            }
        }
        let was_watching = self.subscription.is_some();
        self.execute(executor, most);
        if self.input.is_expecting() {
            backend.expect(self.key, &mut self.input);
        }
        self.send(backend, pool)?;
        Ok(match self.next(backend) {
            Turn::Wait | Turn::Again if self.subscription.is_some() && !was_watching => Turn::Watch,
            other => other,
        })
    }

    fn next<B: Backend>(&self, backend: &B) -> Turn {
        if self.is_sending {
            if backend.is_writable(self.key) { Turn::Again } else { Turn::Wait }
        } else if self.is_shutdown {
            Turn::Shutdown
        } else if self.is_closing || (self.at_end && !self.is_paused) {
            Turn::Close { is_at_fault: self.is_at_fault }
        } else if self.is_paused || backend.is_readable(self.key) {
            Turn::Again
        } else {
            Turn::Wait
        }
    }

    /// Sends what is in the output. False if not all of it has gone yet.
    fn send<B: Backend>(&mut self, backend: &mut B, pool: &mut Pool) -> io::Result<bool> {
        self.is_sending = !backend.send(self.key, pool, &mut self.output)?;
        self.session.set_state(if self.is_sending { ConnectionState::Writing } else { self.resting_state() });
        Ok(!self.is_sending)
    }

    /// What it is doing when it does nothing.
    fn resting_state(&self) -> ConnectionState {
        let (is_receiving, is_skipping) = match (&self.pending, &self.codec) {
            (Pending::Store(_), _) => (true, false),
            (_, Codec::Text(decoder)) => (decoder.is_receiving(), decoder.is_skipping()),
            (_, Codec::Binary(decoder)) => (decoder.is_receiving(self.input.unread()), decoder.is_skipping()),
            (_, Codec::Undecided | Codec::Login(_)) => (false, false),
        };
        match () {
            () if self.subscription.is_some() => ConnectionState::Watching,
            () if is_receiving => ConnectionState::Receiving,
            () if is_skipping => ConnectionState::Skipping,
            () => ConnectionState::Reading,
        }
    }

    /// Executes what was received, until more input or more room for output is needed, or `most` requests are done.
    fn execute(&mut self, executor: &Executor<'_>, most: u32) {
        if let Some(subscription) = &self.subscription {
            // What a watcher says means nothing.
            self.input.consume(self.input.unread().len());
            return subscription.take(self.output.bytes());
        }
        self.session.set_state(ConnectionState::Executing);
        self.is_paused = false;
        let (mut left, mut until_yield) = (most, executor.requests_until_yield());
        while !self.is_closing && !self.is_paused {
            if self.output.len() >= OUTPUT_LIMIT {
                self.is_paused = true;
            } else if self.input.unread().is_empty() && matches!(self.pending, Pending::None) {
                // What all decoders would say, too, but later.
                break;
            } else if left == 0 || until_yield <= most - left {
                // Counted as in memcached, even if no other connection waits and this one goes on.
                executor.count_yield();
                until_yield = until_yield.saturating_add(executor.requests_until_yield());
                self.is_paused = left == 0;
            } else {
                let done = if executor.is_traced() {
                    self.execute_traced(executor)
                } else {
                    self.execute_some(executor, left)
                };
                match done {
                    0 => break,
                    done => left -= done,
                }
            }
        }
    }

    /// Executes one command, or some `get`s, `most` of them at most. Returns how many; none if no command has arrived as a whole.
    #[inline]
    fn execute_some(&mut self, executor: &Executor<'_>, most: u32) -> u32 {
        // Text, and done at once: what most commands are is on the shortest way.
        let (Pending::None, Codec::Text(decoder)) = (&self.pending, &mut self.codec) else {
            return self.execute_other(executor).into();
        };
        let input = self.input.unread();
        let step = match decoder.decode(input) {
            Decoded::Command { consumed, command } => {
                if consumed < input.len()
                    && let Command::Get { keys, with_unique } = &command
                    && let Some(key) = keys.only()
                {
                    let mut batch = Batch::new(key, consumed);
                    batch.gather(decoder, input, *with_unique, most);
                    let done = executor.get_each(&self.session, *with_unique, batch.keys(), self.output.replies());
                    self.input.consume(batch.ends[done - 1]);
                    return done as u32;
                }
                match executor.execute(&self.session, command, self.output.replies()) {
                    Outcome::Done => {
                        self.input.consume(consumed);
                        self.is_refused = false;
                        return 1;
                    }
                    other => Step::of(other, input, consumed),
                }
            }
            Decoded::Incomplete { consumed, needed } => {
                if needed - (input.len() - consumed) >= LARGE_VALUE {
                    self.expect_value(executor);
                } else {
                    self.input.consume(consumed);
                }
                return 0;
            }
            Decoded::Reject { consumed, rejection } => {
                executor.reject(&input[..consumed], &rejection, self.output.bytes());
                Step { consumed, then: Then::GoOn }
            }
            Decoded::TooLarge { consumed, key, replaces, is_base64 } => {
                executor.refuse_large(&self.session, &input[..consumed], key, is_base64, replaces);
                Step { consumed, then: Then::GoOn }
            }
            Decoded::Close => Step { consumed: 0, then: Then::Refuse },
        };
        self.take(step).into()
    }

    /// Executes one command, and tells it and its answer to the log.
    #[cold]
    fn execute_traced(&mut self, executor: &Executor<'_>) -> u32 {
        let input = self.input.unread();
        let asked = match (&self.pending, &self.codec) {
            (Pending::None, Codec::Text(decoder)) => trace::of_text(decoder, input),
            (Pending::None, Codec::Binary(decoder)) => trace::of_packet(decoder, input, self.login == Login::Done),
            (Pending::Store(front), Codec::Text(_)) => Some(trace::of_line(front)),
            (Pending::Store(front), _) => binary::Request::of_front(front).map(|front| trace::of_request(&front)),
            // Of a login nothing is told, and of what is paused it was.
            _ => None,
        };
        let before = Extent::of(self.output.replies());
        let done = self.execute_some(executor, 1);
        if done > 0 || self.subscription.is_some() {
            executor.trace_command(&self.session, asked, self.output.replies(), before);
        }
        done
    }

    /// Goes on with a paused command, or executes one that is not in text.
    fn execute_other(&mut self, executor: &Executor<'_>) -> bool {
        let step = match std::mem::replace(&mut self.pending, Pending::None) {
            Pending::None => match &mut self.codec {
                Codec::Binary(decoder) => {
                    binary_step(decoder, executor, &self.session, &mut self.login, &self.input, self.output.replies())
                }
                Codec::Login(decoder) => {
                    match login_step(decoder, executor, &self.session, &self.input, self.output.bytes()) {
                        (step, false) => step,
                        (step, true) => {
                            self.codec = Codec::Text(Decoder::new(self.limits));
                            step
                        }
                    }
                }
                Codec::Undecided => return self.decide(),
                Codec::Text(_) => return true,
            },
            Pending::Fetch(fetch, length) => {
                let line = &self.input.unread()[..length];
                Step::of(executor.resume(&self.session, fetch, line, self.output.replies()), line, length)
            }
            Pending::Dump(dump) => Step::of(executor.dump(dump, self.output.bytes()), b"", 0),
            Pending::Store(front) => match self.store_arrived(executor, &front) {
                Some(step) => step,
                None => {
                    self.pending = Pending::Store(front);
                    return false;
                }
            },
        };
        let waits = matches!(step.then, Then::Wait);
        let goes_on = self.take(step);
        if goes_on && (self.login != Login::Done || matches!(self.codec, Codec::Login(_))) {
            self.requests_before_login -= 1;
            if self.requests_before_login == 0 {
                (self.is_closing, self.is_at_fault) = (true, true);
            }
        }
        if waits {
            self.expect_value(executor);
        }
        goes_on
    }

    /// If the input ends within a large value, has the rest of it received to where it will lie.
    #[cold]
    fn expect_value(&mut self, executor: &Executor<'_>) {
        if self.is_refused {
            return;
        }
        let input = self.input.unread();
        let awaited = match &self.codec {
            Codec::Text(decoder) => decoder.pending_store(input),
            Codec::Binary(decoder) => decoder.pending_store(input),
            Codec::Undecided | Codec::Login(_) => None,
        };
        let Some(store) = awaited else { return };
        let missing = (store.front + store.length).saturating_sub(input.len());
        let Some(arrival) = executor.expect(&store, missing) else {
            self.is_refused = true;
            return;
        };
        let (front, length) = (input[..store.front].into(), store.front);
        self.pending = Pending::Store(front);
        self.input.consume(length);
        self.input.expect(Box::new(arrival));
    }

    /// Executes the store that began with `front` and whose value was received apart. None if there is more to come.
    fn store_arrived(&mut self, executor: &Executor<'_>, front: &[u8]) -> Option<Step> {
        let end = if matches!(self.codec, Codec::Text(_)) { TEXT_END } else { 0 };
        let arrival = self.input.take_arrival(end)?;
        let executor = executor.storing(&arrival);
        let outcome = match &mut self.codec {
            Codec::Text(decoder) => {
                let end = self.input.unread().first_chunk::<TEXT_END>()?;
                match decoder.decode_apart(front, arrival.value(), end) {
                    Ok(command) => executor.execute(&self.session, command, self.output.replies()),
                    Err(rejection) => {
                        executor.reject(front, &rejection, self.output.bytes());
                        Outcome::Done
                    }
                }
            }
            _ => {
                let request = binary::Request { value: arrival.value(), ..binary::Request::of_front(front)? };
                executor.execute_binary(&self.session, &mut self.login, &request, self.output.replies())
            }
        };
        Some(Step::of(outcome, front, end))
    }

    /// Consumes what is done with, and does what follows. False if that is to wait.
    fn take(&mut self, step: Step) -> bool {
        self.input.consume(step.consumed);
        self.is_refused &= matches!(step.then, Then::Wait);
        match step.then {
            Then::GoOn => return true,
            Then::Wait => return false,
            Then::Pause(pending) => (self.pending, self.is_paused) = (pending, true),
            Then::Close => self.is_closing = true,
            Then::Refuse => (self.is_closing, self.is_at_fault) = (true, true),
            Then::Watch(subscription) => {
                self.subscription = Some(subscription);
                return false;
            }
            Then::Shutdown => (self.is_closing, self.is_shutdown) = (true, true),
        }
        true
    }

    /// Lets the first byte tell the protocol. False if there is none yet.
    fn decide(&mut self) -> bool {
        let Some(&first) = self.input.unread().first() else { return false };
        self.codec = match Protocol::of_first_byte(first) {
            Protocol::Text => Codec::Text(Decoder::new(self.limits)),
            Protocol::Binary => Codec::Binary(binary::Decoder::new(self.limits)),
        };
        true
    }
}

/// `get`s of one key each that an input begins with, without anything in between.
struct Batch<'b> {
    keys: [&'b [u8]; MAX_BATCH_KEYS],
    /// Where each command ends.
    ends: [usize; MAX_BATCH_KEYS],
    count: usize,
}

impl<'b> Batch<'b> {
    /// A batch of one, which ends at `end`.
    fn new(key: &'b [u8], end: usize) -> Batch<'b> {
        Batch { keys: [key; MAX_BATCH_KEYS], ends: [end; MAX_BATCH_KEYS], count: 1 }
    }

    /// Gathers what follows in `input`: `most` in all, and only those that want uniques told, or don't.
    fn gather(&mut self, decoder: &Decoder, input: &'b [u8], with_unique: bool, most: u32) {
        let most = MAX_BATCH_KEYS.min(most as usize);
        // A `get` is done with in one step: it leaves no trace in the decoder. What else follows is left to the decoder proper.
        let mut decoder = decoder.clone();
        let mut end = self.ends[0];
        while self.count < most
            && let Decoded::Command { consumed, command: Command::Get { keys, with_unique: same } } =
                decoder.decode(&input[end..])
            && same == with_unique
            && let Some(key) = keys.only()
        {
            end += consumed;
            (self.keys[self.count], self.ends[self.count]) = (key, end);
            self.count += 1;
        }
    }

    fn keys(&self) -> &[&'b [u8]] {
        &self.keys[..self.count]
    }
}

/// What came of some bytes.
struct Step {
    /// Bytes done with.
    consumed: usize,
    then: Then,
}

enum Then {
    GoOn,
    Wait,
    Pause(Pending),
    /// To close the connection, as the client wishes.
    Close,
    /// To close the connection of a client that broke the protocol or failed to log in.
    Refuse,
    Watch(Arc<Subscription>),
    Shutdown,
}

impl Step {
    /// What follows from the outcome of a command that was `length` bytes of `input`.
    fn of(outcome: Outcome<'_>, input: &[u8], length: usize) -> Step {
        let (consumed, then) = match outcome {
            Outcome::Done => (length, Then::GoOn),
            Outcome::PausedFetch { fetch, next } => {
                let answered = next.as_ptr().addr() - input.as_ptr().addr();
                (answered, Then::Pause(Pending::Fetch(fetch, length - answered)))
            }
            Outcome::PausedDump(dump) => (length, Then::Pause(Pending::Dump(dump))),
            Outcome::Quit => (length, Then::Close),
            Outcome::Watching(subscription) => (length, Then::Watch(subscription)),
            Outcome::Shutdown => (length, Then::Shutdown),
        };
        Step { consumed, then }
    }
}

fn binary_step(
    decoder: &mut binary::Decoder,
    executor: &Executor<'_>,
    session: &Session,
    login: &mut Login,
    input: &Input,
    output: &mut Replies,
) -> Step {
    match decoder.decode(input.unread(), *login == Login::Done) {
        binary::Decoded::Request { consumed, request } => {
            Step::of(executor.execute_binary(session, login, &request, output), b"", consumed)
        }
        binary::Decoded::Reject { consumed, header, status, closes } => {
            executor.reject_binary(&header, status, &mut output.bytes);
            Step { consumed, then: if closes { Then::Refuse } else { Then::GoOn } }
        }
        binary::Decoded::TooLarge { consumed, key, replaces } => {
            executor.refuse_large_binary(session, &input.unread()[..consumed], key, replaces);
            Step { consumed, then: Then::GoOn }
        }
        binary::Decoded::Incomplete { consumed } => Step { consumed, then: Then::Wait },
        binary::Decoded::Close => Step { consumed: 0, then: Then::Refuse },
    }
}

/// A step of a stranger, and whether that is one no more.
fn login_step(
    decoder: &mut LoginDecoder,
    executor: &Executor<'_>,
    session: &Session,
    input: &Input,
    output: &mut Vec<u8>,
) -> (Step, bool) {
    match decoder.decode(input.unread()) {
        memcache::Login::Attempt { consumed, user, password } => {
            let verdict = executor.log_in(session, user, password, output);
            let goes_on = matches!(verdict, Verdict::Welcome | Verdict::Failure);
            (Step { consumed, then: if goes_on { Then::GoOn } else { Then::Refuse } }, verdict == Verdict::Welcome)
        }
        memcache::Login::Refuse { consumed, reply } => {
            output.extend_from_slice(reply);
            (Step { consumed, then: Then::GoOn }, false)
        }
        memcache::Login::Incomplete { consumed } => (Step { consumed, then: Then::Wait }, false),
        memcache::Login::Close => (Step { consumed: 0, then: Then::Refuse }, false),
    }
}

#[cfg(test)]
mod tests {
    use super::super::epoll::Epoll;
    use super::super::stream::Stream;
    use super::*;
    use crate::clock::Clock;
    use crate::engine::{Cache, Content, Mode, Outline, Store};
    use crate::execute::Transport;
    use crate::limits::connections::ConnectionLimit;
    use crate::limits::slow_clients::MIN_BYTES;
    use crate::observability::stats::Counters;
    use crossbeam_utils::CachePadded;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// What counts is what the client takes while it has answers to take, and what it sends otherwise.
    #[test]
    fn a_client_with_loans_has_to_move() {
        const LENGTH: usize = 1_000_000;
        let engine = Cache::new(Arc::new(Clock::new(1)), 8 << 20, 1 << 20).unwrap();
        let mut backend = Epoll::new(Arc::new(CachePadded::new(Counters::default()))).unwrap();
        let (ours, mut peer) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let key = backend.open(Stream::Unix(mio::net::UnixStream::from_std(ours))).unwrap();
        let limits = Limits::default();
        let terms = Terms { limits, binding: Binding::Auto, requires_text_login: false, requires_sasl: false };
        let session = Arc::new(Session::new(0, Transport::Unix("socket".into()), 0));
        let mut connection = Connection::new(key, session, terms, ConnectionLimit::new(1).admit().unwrap());
        let mut pool = Pool::default();
        assert!(!connection.is_too_slow(&backend, 5) && !connection.is_too_slow(&backend, 500), "nothing is on loan");

        // More than the socket takes at a time.
        let content = Content { flags: 0, exptime: 0, value: &[b'v'; LENGTH] };
        assert_eq!(engine.store(Mode::Set, b"k", content), Store::Stored);
        connection.output.bytes().extend_from_slice(b"VALUE");
        engine.get(b"k", |hit| connection.output.replies().append(hit.lease().unwrap()));
        assert!(!connection.send(&mut backend, &mut pool).unwrap());
        assert_eq!([600, 660, 661].map(|now| connection.is_too_slow(&backend, now)), [false, false, true]);
        let (_, taken) = backend.moved(key);
        let mut buffer = vec![0; taken as usize];
        peer.read_exact(&mut buffer).unwrap();
        assert!(!connection.send(&mut backend, &mut pool).unwrap());
        assert_eq!([662, 722, 723].map(|now| connection.is_too_slow(&backend, now)), [false, false, true]);
        while !connection.send(&mut backend, &mut pool).unwrap() {
            assert!(peer.read(&mut buffer).unwrap() > 0);
        }
        assert_eq!([800, 900].map(|now| connection.is_too_slow(&backend, now)), [false, false], "all is sent");

        let outline = Outline { key_len: 1, value_len: LENGTH, has_flags: false, has_unique: false };
        connection.input.expect(Box::new(engine.expect(&outline).unwrap()));
        assert_eq!([901, 961, 962].map(|now| connection.is_too_slow(&backend, now)), [false, false, true]);
        peer.write_all(&[b'v'; 2 * MIN_BYTES as usize]).unwrap();
        let mut events = Vec::new();
        while backend.moved(key).0 < MIN_BYTES {
            backend.wait(None, &mut pool, &mut events).unwrap();
            backend.receive(key, &mut pool, &mut connection.input).unwrap();
        }
        assert_eq!([963, 1023, 1024].map(|now| connection.is_too_slow(&backend, now)), [false, false, true]);
    }
}
