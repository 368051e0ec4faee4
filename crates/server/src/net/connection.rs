//! One client: its socket, its buffers, and what is to be done next.
//!
//! A turn goes: send what is left, read once, execute everything that arrived, send the answers. It ends early when the
//! socket takes no more: then nothing is read or executed until all has been sent, so a client that does not read holds up
//! nobody but itself, and holds no more memory than one full output buffer. A client that has closed its side
//! gets all its answers before the connection is closed.

use super::buffer::{Input, Output, Pool};
use super::stream::Stream;
use crate::engine::Engine;
use crate::execute::{ConnectionState, Dump, Executor, Fetch, Login, Outcome, Session, Subscription};
use crate::gate::Pass;
use crate::options::Binding;
use crate::stats::Counters;
use mio::event::Event;
use relativist_memcache::{self as memcache, Decoded, Decoder, Limits, LoginDecoder, Protocol, binary};
use std::io;
use std::sync::Arc;

/// Output at which execution pauses to send it. One command, or one key of a fetch, may exceed it by its whole reply.
pub(super) const OUTPUT_LIMIT: usize = 256 << 10;

/// A connection.
pub(super) struct Connection {
    /// First, to be dropped first: a client that sees the connection closed can count on its place being free.
    _pass: Pass,
    pub(super) stream: Stream,
    /// Whether it stands in the worker's queue.
    pub(super) is_queued: bool,
    pub(super) session: Arc<Session>,
    /// What it watches, if it does.
    pub(super) subscription: Option<Arc<Subscription>>,
    codec: Codec,
    limits: Limits,
    /// How far the SASL login is.
    login: Login,
    input: Input,
    output: Output,
    pending: Pending,
    /// Whether execution stopped for lack of room in the output, or of patience of others.
    is_paused: bool,
    /// Whether the socket may have something to read.
    is_readable: bool,
    /// Whether the client has closed its side.
    is_half_closed: bool,
    /// Whether the input has ended.
    at_end: bool,
    /// Whether the connection is to be closed once all answers are sent.
    is_closing: bool,
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
    /// To be closed.
    Close,
    /// The server to end.
    Shutdown,
}

impl Connection {
    pub(super) fn new(stream: Stream, session: Arc<Session>, terms: Terms, pass: Pass) -> Connection {
        let Terms { limits, binding, requires_text_login, requires_sasl } = terms;
        Connection {
            _pass: pass,
            stream,
            is_queued: false,
            session,
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
            input: Input::default(),
            output: Output::default(),
            pending: Pending::None,
            is_paused: false,
            is_readable: false,
            is_half_closed: false,
            at_end: false,
            is_closing: false,
            is_shutdown: false,
        }
    }

    /// Whether it is the client's turn to say something. (It may take its time to read what it has asked for, and who watches
    /// has nothing to say.)
    pub(super) fn awaits_client(&self) -> bool {
        self.output.is_empty() && matches!(self.pending, Pending::None) && self.subscription.is_none()
    }

    /// Remembers what the socket is ready for. Readiness is told once (edge-triggered), so it must not be lost.
    pub(super) fn note(&mut self, event: &Event) {
        self.is_readable |= event.is_readable();
        self.is_half_closed |= event.is_read_closed();
    }

    /// Gives the connection its turn, in which it may have `most` requests executed.
    ///
    /// # Errors
    /// What the socket reports; the connection is then of no more use.
    pub(super) fn turn<E: Engine>(
        &mut self,
        executor: &Executor<'_, E>,
        counters: &Counters,
        pool: &mut Pool,
        most: u32,
    ) -> io::Result<Turn> {
        pool.lend(&mut self.input, &mut self.output);
        let turn = self.proceed(executor, counters, most);
        pool.take_back(&mut self.input, &mut self.output);
        turn
    }

    fn proceed<E: Engine>(&mut self, executor: &Executor<'_, E>, counters: &Counters, most: u32) -> io::Result<Turn> {
        if !self.send(counters)? {
            return Ok(Turn::Wait);
        }
        if !self.is_paused && !self.is_closing {
            self.read(counters, executor.now())?;
        }
        let was_watching = self.subscription.is_some();
        self.execute(executor, counters, most);
        if !self.send(counters)? {
            self.session.set_state(ConnectionState::Writing);
            return Ok(if self.subscription.is_some() && !was_watching { Turn::Watch } else { Turn::Wait });
        }
        Ok(match self.next() {
            Turn::Wait | Turn::Again if self.subscription.is_some() && !was_watching => Turn::Watch,
            other => other,
        })
    }

    fn next(&self) -> Turn {
        if self.is_shutdown {
            Turn::Shutdown
        } else if self.is_closing || (self.at_end && !self.is_paused) {
            Turn::Close
        } else if self.is_paused || self.is_readable {
            Turn::Again
        } else {
            Turn::Wait
        }
    }

    /// Sends what is in the output. False if the socket did not take all of it.
    fn send(&mut self, counters: &Counters) -> io::Result<bool> {
        if !self.output.is_empty() {
            let count = self.output.drain_into(&mut self.stream)?;
            counters.bytes_written.add(count as u64);
        }
        Ok(self.output.is_empty())
    }

    fn read(&mut self, counters: &Counters, now: u32) -> io::Result<()> {
        if !self.is_readable {
            return Ok(());
        }
        match self.input.fill_from(&mut self.stream) {
            Ok((0, _)) => (self.at_end, self.is_readable) = (true, false),
            Ok((count, is_filled)) => {
                counters.bytes_read.add(count as u64);
                self.session.hear(now);
                // A short read has emptied the socket, and the next byte will be announced: no need to read for the mere
                // sake of "would block". The end of input, once announced, is not announced again, but must be read.
                self.is_readable = is_filled || self.is_half_closed;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_readable = false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Executes what was received, until more input or more room for output is needed, or `most` requests are done.
    fn execute<E: Engine>(&mut self, executor: &Executor<'_, E>, counters: &Counters, most: u32) {
        if let Some(subscription) = &self.subscription {
            // What a watcher says means nothing.
            self.input.consume(self.input.unread().len());
            return subscription.take(self.output.bytes());
        }
        self.session.set_state(ConnectionState::Executing);
        self.is_paused = false;
        let mut left = most;
        while !self.is_closing && !self.is_paused {
            if self.output.len() >= OUTPUT_LIMIT {
                self.is_paused = true;
            } else if left == 0 {
                counters.conn_yields.bump();
                self.is_paused = true;
            } else if !self.execute_one(executor) {
                break;
            }
            left = left.saturating_sub(1);
        }
        self.session.set_state(ConnectionState::Reading);
    }

    /// Executes one command. False if it has not arrived as a whole.
    #[inline]
    fn execute_one<E: Engine>(&mut self, executor: &Executor<'_, E>) -> bool {
        // Text, and done at once: what most commands are is on the shortest way.
        let (Pending::None, Codec::Text(decoder)) = (&self.pending, &mut self.codec) else {
            return self.execute_other(executor);
        };
        let input = self.input.unread();
        let step = match decoder.decode(input) {
            Decoded::Command { consumed, command } => {
                match executor.execute(&self.session, command, self.output.bytes()) {
                    Outcome::Done => {
                        self.input.consume(consumed);
                        return true;
                    }
                    other => Step::of(other, input, consumed),
                }
            }
            Decoded::Incomplete { consumed, .. } => {
                self.input.consume(consumed);
                return false;
            }
            Decoded::Reject { consumed, rejection } => {
                executor.reject(&input[..consumed], &rejection, self.output.bytes());
                Step { consumed, then: Then::GoOn }
            }
            Decoded::Invalidate { consumed, key, is_base64 } => {
                executor.invalidate(key, is_base64);
                Step { consumed, then: Then::GoOn }
            }
            Decoded::Close => Step { consumed: 0, then: Then::Close },
        };
        self.take(step)
    }

    /// Goes on with a paused command, or executes one that is not in text.
    fn execute_other<E: Engine>(&mut self, executor: &Executor<'_, E>) -> bool {
        let step = match std::mem::replace(&mut self.pending, Pending::None) {
            Pending::None => match &mut self.codec {
                Codec::Binary(decoder) => {
                    binary_step(decoder, executor, &self.session, &mut self.login, &self.input, self.output.bytes())
                }
                Codec::Login(decoder) => match login_step(decoder, executor, &self.input, self.output.bytes()) {
                    (step, false) => step,
                    (step, true) => {
                        self.codec = Codec::Text(Decoder::new(self.limits));
                        step
                    }
                },
                Codec::Undecided => return self.decide(),
                Codec::Text(_) => return true,
            },
            Pending::Fetch(fetch, length) => {
                let line = &self.input.unread()[..length];
                Step::of(executor.resume(&self.session, fetch, line, self.output.bytes()), line, length)
            }
            Pending::Dump(dump) => Step::of(executor.dump(dump, self.output.bytes()), b"", 0),
        };
        self.take(step)
    }

    /// Consumes what is done with, and does what follows. False if that is to wait.
    fn take(&mut self, step: Step) -> bool {
        self.input.consume(step.consumed);
        match step.then {
            Then::GoOn => return true,
            Then::Wait => return false,
            Then::Pause(pending) => (self.pending, self.is_paused) = (pending, true),
            Then::Close => self.is_closing = true,
            Then::Watch(subscription) => {
                self.session.set_state(ConnectionState::Watching);
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
    Close,
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

fn binary_step<E: Engine>(
    decoder: &mut binary::Decoder,
    executor: &Executor<'_, E>,
    session: &Session,
    login: &mut Login,
    input: &Input,
    output: &mut Vec<u8>,
) -> Step {
    match decoder.decode(input.unread(), *login == Login::Done) {
        binary::Decoded::Request { consumed, request } => {
            Step::of(executor.execute_binary(session, login, &request, output), b"", consumed)
        }
        binary::Decoded::Reject { consumed, header, status, closes } => {
            executor.reject_binary(&header, status, output);
            Step { consumed, then: if closes { Then::Close } else { Then::GoOn } }
        }
        binary::Decoded::Invalidate { consumed, key } => {
            executor.invalidate(key, false);
            Step { consumed, then: Then::GoOn }
        }
        binary::Decoded::Incomplete { consumed } => Step { consumed, then: Then::Wait },
        binary::Decoded::Close => Step { consumed: 0, then: Then::Close },
    }
}

/// A step of a stranger, and whether that is one no more.
fn login_step<E: Engine>(
    decoder: &mut LoginDecoder,
    executor: &Executor<'_, E>,
    input: &Input,
    output: &mut Vec<u8>,
) -> (Step, bool) {
    match decoder.decode(input.unread()) {
        memcache::Login::Attempt { consumed, user, password } => {
            let is_in = executor.log_in(user, password, output);
            (Step { consumed, then: Then::GoOn }, is_in)
        }
        memcache::Login::Refuse { consumed, reply } => {
            output.extend_from_slice(reply);
            (Step { consumed, then: Then::GoOn }, false)
        }
        memcache::Login::Incomplete { consumed } => (Step { consumed, then: Then::Wait }, false),
        memcache::Login::Close => (Step { consumed: 0, then: Then::Close }, false),
    }
}
