//! One client: its socket, its buffers, and what is to be done next.
//!
//! A turn goes: send what is left, read once, execute everything that arrived, send the answers. It ends early when the
//! socket takes no more: then nothing is read or executed until all has been sent, so a client that does not read holds up
//! nobody but itself, and holds no more memory than one full output buffer. A client that has closed its side
//! gets all its answers before the connection is closed.

use super::buffer::{Input, Output, Pool};
use super::stream::Stream;
use crate::engine::Engine;
use crate::execute::{Executor, Fetch, Outcome};
use crate::gate::Pass;
use crate::stats::Counters;
use mio::event::Event;
use relativist_memcache::{Decoded, Decoder, Limits, Protocol};
use std::io;

/// Output at which execution pauses to send it. One command, or one key of a fetch, may exceed it by its whole reply.
pub(super) const OUTPUT_LIMIT: usize = 256 << 10;

/// A connection.
pub(super) struct Connection {
    /// First, to be dropped first: a client that sees the connection closed can count on its place being free.
    _pass: Pass,
    pub(super) stream: Stream,
    /// Whether it stands in the worker's queue.
    pub(super) is_queued: bool,
    decoder: Decoder,
    input: Input,
    output: Output,
    /// A fetch that was paused, and how much of the unread input is the rest of its line, which begins with the next key.
    /// It is kept so that the line is decoded once, however often its replies fill the output.
    paused_fetch: Option<(Fetch, usize)>,
    /// Whether execution stopped for lack of room in the output.
    is_paused: bool,
    /// Whether the socket may have something to read.
    is_readable: bool,
    /// Whether the client has closed its side.
    is_half_closed: bool,
    /// Whether the input has ended.
    at_end: bool,
    /// Whether the connection is to be closed once all answers are sent.
    is_closing: bool,
    is_greeted: bool,
}

/// What a connection expects after its turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Turn {
    /// To hear from its socket.
    Wait,
    /// Another turn, when others had theirs.
    Again,
    /// To be closed.
    Close,
}

impl Connection {
    pub(super) fn new(stream: Stream, limits: Limits, pass: Pass) -> Connection {
        Connection {
            _pass: pass,
            stream,
            is_queued: false,
            decoder: Decoder::new(limits),
            input: Input::default(),
            output: Output::default(),
            paused_fetch: None,
            is_paused: false,
            is_readable: false,
            is_half_closed: false,
            at_end: false,
            is_closing: false,
            is_greeted: false,
        }
    }

    /// Remembers what the socket is ready for. Readiness is told once (edge-triggered), so it must not be lost.
    pub(super) fn note(&mut self, event: &Event) {
        self.is_readable |= event.is_readable();
        self.is_half_closed |= event.is_read_closed();
    }

    /// Gives the connection its turn.
    ///
    /// # Errors
    /// What the socket reports; the connection is then of no more use.
    pub(super) fn turn<E: Engine>(
        &mut self,
        executor: &Executor<'_, E>,
        counters: &Counters,
        pool: &mut Pool,
    ) -> io::Result<Turn> {
        pool.lend(&mut self.input, &mut self.output);
        let turn = self.proceed(executor, counters);
        pool.take_back(&mut self.input, &mut self.output);
        turn
    }

    fn proceed<E: Engine>(&mut self, executor: &Executor<'_, E>, counters: &Counters) -> io::Result<Turn> {
        if !self.send(counters)? {
            return Ok(Turn::Wait);
        }
        if !self.is_paused && !self.is_closing {
            self.read(counters)?;
        }
        self.execute(executor);
        if !self.send(counters)? {
            return Ok(Turn::Wait);
        }
        Ok(self.next())
    }

    fn next(&self) -> Turn {
        if self.is_closing || (self.at_end && !self.is_paused) {
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

    fn read(&mut self, counters: &Counters) -> io::Result<()> {
        if !self.is_readable {
            return Ok(());
        }
        match self.input.fill_from(&mut self.stream) {
            Ok((0, _)) => (self.at_end, self.is_readable) = (true, false),
            Ok((count, is_filled)) => {
                counters.bytes_read.add(count as u64);
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

    /// Executes what was received, until more input or more room for output is needed.
    fn execute<E: Engine>(&mut self, executor: &Executor<'_, E>) {
        self.refuse_binary();
        self.is_paused = false;
        while !self.is_closing && !self.is_paused {
            if self.output.len() >= OUTPUT_LIMIT {
                self.is_paused = true;
            } else if !self.execute_one(executor) {
                break;
            }
        }
    }

    /// Executes one command. False if it has not arrived as a whole.
    fn execute_one<E: Engine>(&mut self, executor: &Executor<'_, E>) -> bool {
        let input = self.input.unread();
        let output = self.output.bytes();
        let (outcome, length) = match self.paused_fetch.take() {
            Some((fetch, length)) => (executor.resume(fetch, &input[..length], output), length),
            None => match self.decoder.decode(input) {
                Decoded::Command { consumed, command } => (executor.execute(command, output), consumed),
                Decoded::Reject { consumed, rejection } => {
                    executor.reject(&input[..consumed], &rejection, output);
                    (Outcome::Done, consumed)
                }
                Decoded::Invalidate { consumed, key } => {
                    executor.invalidate(key);
                    (Outcome::Done, consumed)
                }
                Decoded::Incomplete { consumed, .. } => {
                    self.input.consume(consumed);
                    return false;
                }
                Decoded::Close => (Outcome::Quit, 0),
            },
        };
        let consumed = match outcome {
            Outcome::Done => length,
            Outcome::Paused { fetch, next } => {
                let answered = next.as_ptr().addr() - input.as_ptr().addr();
                self.paused_fetch = Some((fetch, length - answered));
                self.is_paused = true;
                answered
            }
            Outcome::Quit => {
                self.is_closing = true;
                length
            }
        };
        self.input.consume(consumed);
        true
    }

    /// Closes a connection that opens with a binary request.
    fn refuse_binary(&mut self) {
        if let (false, Some(&first)) = (self.is_greeted, self.input.unread().first()) {
            self.is_greeted = true;
            self.is_closing = Protocol::of_first_byte(first) == Protocol::Binary;
        }
    }
}
