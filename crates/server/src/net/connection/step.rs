//! One step of execution in each protocol: decode a request, execute it, and say what follows.

use super::super::buffer::Output;
use crate::execute::{Dump, Executor, Fetch, Login, Outcome, Replies, Session, Subscription, Verdict};
use relativist_memcache::{self as memcache, Command, Decoded, Decoder, LoginDecoder, Protocol, binary};
use relativist_store::{LARGE_VALUE, MAX_BATCH_KEYS};
use std::sync::Arc;

/// A command that takes more than one step.
pub(super) enum Pending {
    None,
    /// A fetch whose replies have filled the output.
    Fetch {
        fetch: Fetch,
        /// The length of the rest of the command line, from the next key on, which is at the start
        /// of the input. The line is decoded only once, even if its replies fill the output several
        /// times.
        line: usize,
    },
    /// A dump whose lines have filled the output.
    Dump(Box<Dump>),
    /// A store whose value is received into memory of the cache: what came before the value.
    Store(Box<[u8]>),
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::net) enum Ending {
    /// The client asked for it, or has closed its side.
    Normal,
    /// The client broke the protocol or failed to log in.
    Fault,
    /// The client wants the whole server to stop.
    Shutdown,
}

/// The result of one step.
pub(super) struct Executed {
    /// The number of requests.
    pub(super) count: u32,
    /// The number of input bytes consumed.
    pub(super) consumed: usize,
    pub(super) action: Action,
}

/// What the connection does after a step.
pub(super) enum Action {
    /// Execute the next request.
    Continue,
    /// Wait for more input. The input may end within a large value, for which to reserve memory.
    Wait { may_reserve: bool },
    /// Continue the command when the output has been sent.
    Pause(Pending),
    /// Speak this protocol from now on.
    Speak(Protocol),
    /// The client has logged in: speak the text protocol from now on, by another executor.
    LogIn,
    /// Send log lines from now on.
    Watch(Arc<Subscription>),
    /// Close the connection when the output has been sent.
    Close(Ending),
}

impl Executed {
    /// The result of one request of `consumed` bytes.
    pub(super) fn one(consumed: usize, action: Action) -> Executed {
        Executed { count: 1, consumed, action }
    }

    /// The result of a command that takes `length` bytes of `input`.
    #[inline]
    pub(super) fn of(outcome: Outcome<'_>, input: &[u8], length: usize) -> Executed {
        let (consumed, action) = match outcome {
            Outcome::Done => (length, Action::Continue),
            Outcome::PausedFetch { fetch, next } => {
                let answered = next.as_ptr().addr() - input.as_ptr().addr();
                (answered, Action::Pause(Pending::Fetch { fetch, line: length - answered }))
            }
            Outcome::PausedDump(dump) => (length, Action::Pause(Pending::Dump(dump))),
            // The next turn has another executor.
            Outcome::LoggedIn => (length, Action::Pause(Pending::None)),
            Outcome::Quit => (length, Action::Close(Ending::Normal)),
            Outcome::Watching(subscription) => (length, Action::Watch(subscription)),
            Outcome::Shutdown => (length, Action::Close(Ending::Shutdown)),
        };
        Executed::one(consumed, action)
    }
}

/// A step of the text protocol.
#[inline]
pub(super) fn text_step(
    decoder: &mut Decoder,
    executor: &Executor<'_>,
    session: &Session,
    input: &[u8],
    output: &mut Output,
    max: u32,
) -> Executed {
    match decoder.decode(input) {
        Decoded::Command { consumed, command } => {
            if consumed < input.len()
                && let Command::Get { keys, with_cas } = &command
                && let Some(key) = keys.only()
                && !executor.has_key_prefix()
            {
                let mut batch = Batch::new(key, consumed);
                batch.gather(decoder, input, *with_cas, max);
                let done = executor.get_each(session, *with_cas, batch.keys(), output.replies());
                return Executed { count: done as u32, consumed: batch.ends[done - 1], action: Action::Continue };
            }
            Executed::of(executor.execute(session, command, output.replies()), input, consumed)
        }
        Decoded::Incomplete { consumed, needed } => {
            let missing = needed - (input.len() - consumed);
            Executed::one(consumed, Action::Wait { may_reserve: missing >= LARGE_VALUE })
        }
        Decoded::Reject { consumed, rejection } => {
            executor.reject(&input[..consumed], &rejection, output.bytes());
            Executed::one(consumed, Action::Continue)
        }
        Decoded::TooLarge { consumed, key, replaces, is_base64 } => {
            executor.refuse_large(session, &input[..consumed], key, is_base64, replaces);
            Executed::one(consumed, Action::Continue)
        }
        Decoded::Close => Executed::one(0, Action::Close(Ending::Fault)),
    }
}

/// A step of the binary protocol.
pub(super) fn binary_step(
    decoder: &mut binary::Decoder,
    executor: &Executor<'_>,
    session: &Session,
    login: &mut Login,
    input: &[u8],
    output: &mut Replies,
) -> Executed {
    match decoder.decode(input, *login == Login::Done) {
        binary::Decoded::Request { consumed, request } => {
            Executed::of(executor.execute_binary(session, login, &request, output), b"", consumed)
        }
        binary::Decoded::Reject { consumed, header, status, closes } => {
            executor.reject_binary(&header, status, &mut output.bytes);
            Executed::one(consumed, if closes { Action::Close(Ending::Fault) } else { Action::Continue })
        }
        binary::Decoded::TooLarge { consumed, key, replaces } => {
            executor.refuse_large_binary(session, &input[..consumed], key, replaces);
            Executed::one(consumed, Action::Continue)
        }
        binary::Decoded::Incomplete { consumed } => Executed::one(consumed, Action::Wait { may_reserve: true }),
        binary::Decoded::Close => Executed::one(0, Action::Close(Ending::Fault)),
    }
}

/// A step of the login in front of the text protocol.
pub(super) fn login_step(
    decoder: &mut LoginDecoder,
    executor: &Executor<'_>,
    session: &Session,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Executed {
    match decoder.decode(input) {
        memcache::Login::Attempt { consumed, user, password } => {
            let action = match executor.log_in(session, user, password, output) {
                Verdict::Welcome => Action::LogIn,
                Verdict::Failure => Action::Continue,
                _ => Action::Close(Ending::Fault),
            };
            Executed::one(consumed, action)
        }
        memcache::Login::Refuse { consumed, reply } => {
            output.extend_from_slice(reply);
            Executed::one(consumed, Action::Continue)
        }
        memcache::Login::Incomplete { consumed } => Executed::one(consumed, Action::Wait { may_reserve: false }),
        memcache::Login::Close => Executed::one(0, Action::Close(Ending::Fault)),
    }
}

/// The first step of a connection whose protocol the first byte decides.
pub(super) fn first_step(input: &[u8]) -> Executed {
    let action = match input.first() {
        Some(&first) => Action::Speak(Protocol::of_first_byte(first)),
        None => Action::Wait { may_reserve: false },
    };
    Executed::one(0, action)
}

/// Consecutive `get`s of one key each.
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

    /// Adds the `get`s that follow in `input`, up to `max` in all. All of them want CAS values, or
    /// none does.
    fn gather(&mut self, decoder: &Decoder, input: &'b [u8], with_cas: bool, max: u32) {
        let max = MAX_BATCH_KEYS.min(max as usize);
        // A copy of the decoder looks ahead. A `get` does not change its state, and the decoder
        // itself decodes whatever else follows.
        let mut decoder = decoder.clone();
        let mut end = self.ends[0];
        while self.count < max
            && let Decoded::Command { consumed, command: Command::Get { keys, with_cas: same } } =
                decoder.decode(&input[end..])
            && same == with_cas
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
