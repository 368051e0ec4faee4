//! Turns received bytes into replies.
//!
//! [`Connection::execute_next`] processes a request. A decoder finds the request in the input. The
//! [`Executor`] executes it and appends the reply to the output. The result is an [`Action`], which
//! [`Connection::apply`] carries out. Two kinds of requests take more than one step, and are
//! [`Pending`] meanwhile: a fetch or dump whose replies fill the output, and a store whose large
//! value is received directly into memory of the cache.

use super::step::{Action, Ending, Executed, Pending, binary_step, first_step, login_step, text_step};
use super::{Codec, Connection, Making, OUTPUT_LIMIT, Phase};
use crate::execute::{ConnectionState, Executor, Extent, Login, MAX_ROOM_AT_ONCE, Outcome, Reservation, trace};
use relativist_memcache::{Protocol, binary};
use relativist_store::Room;

/// The work of a request that is short. A connection that is alone goes on after `-R` of these: a
/// copy of some KiB is as quick as another iteration of the event loop.
const MAX_SHORT_WORK: u64 = 1_000;

/// Bytes after a value in the text protocol.
const TEXT_END: usize = b"\r\n".len();

impl Connection {
    /// Executes what has arrived, until the input lacks a complete request, the output is full,
    /// `max` requests are done, or the turn has ended. Returns the number of requests.
    pub(super) fn execute(&mut self, executor: &Executor<'_>, max: u32) -> u32 {
        match &self.phase {
            Phase::Watching(subscription) => {
                // Input from a watcher has no meaning.
                self.input.consume(self.input.unread().len());
                subscription.take(self.output.bytes());
                return 0;
            }
            Phase::Paused => self.phase = Phase::Serving,
            Phase::Serving | Phase::Closing(_) => (),
        }
        self.session.set_state(ConnectionState::Executing);
        let (mut left, mut until_yield) = (max, executor.requests_until_yield());
        while matches!(self.phase, Phase::Serving) {
            if self.output.len() >= OUTPUT_LIMIT {
                self.phase = Phase::Paused;
            } else if self.input.unread().is_empty() && matches!(self.pending, Pending::None) {
                // Decoders would return the same result, but later.
                break;
            } else if executor.has_turn_ended() {
                self.phase = Phase::Paused;
            } else if left == 0 || until_yield <= max - left {
                // Counted as in memcached, even if no other connection waits and this one
                // continues.
                executor.count_yield();
                until_yield = until_yield.saturating_add(executor.requests_until_yield());
                if left == 0 || executor.work_done() > u64::from(max - left) * MAX_SHORT_WORK {
                    self.phase = Phase::Paused;
                }
            } else {
                let (unread, unsent) = (self.input.unread().len(), self.output.len());
                let executed = if executor.is_traced() {
                    self.execute_traced(executor)
                } else {
                    self.execute_next(executor, left)
                };
                match executed {
                    0 => break,
                    executed => left -= executed,
                }
                executor.charge(executed, unread - self.input.unread().len() + self.output.len() - unsent);
            }
        }
        max - left
    }

    /// Executes the next request, or several `get`s at once, `max` at most. Returns their number; 0
    /// if no request has arrived completely.
    #[inline]
    fn execute_next(&mut self, executor: &Executor<'_>, max: u32) -> u32 {
        let (session, input, output) = (&*self.session, self.input.unread(), &mut self.output);
        let executed = match (&self.pending, &mut self.codec) {
            (Pending::None, Codec::Text(decoder)) => text_step(decoder, executor, session, input, output, max),
            (Pending::None, Codec::Binary(decoder)) => {
                binary_step(decoder, executor, session, &mut self.login, input, output.replies())
            }
            (Pending::None, Codec::Login(decoder)) => login_step(decoder, executor, session, input, output.bytes()),
            (Pending::None, Codec::Undecided) => first_step(input),
            _ => self.resume(executor),
        };
        let count = self.apply(executor, executed);
        if count > 0 && !self.is_authenticated() {
            self.requests_before_login -= 1;
            if self.requests_before_login == 0 {
                self.phase = Phase::Closing(Ending::Fault);
            }
        }
        count
    }

    /// Consumes the bytes of a request and carries out its action. Returns the number of requests
    /// executed.
    #[inline]
    fn apply(&mut self, executor: &Executor<'_>, executed: Executed) -> u32 {
        let Executed { count, consumed, action } = executed;
        self.input.consume(consumed);
        if !matches!(self.room, Making::None) && !matches!(action, Action::Wait { .. }) {
            self.room = Making::None;
        }
        match action {
            Action::Continue => return count,
            Action::Wait { may_reserve } => {
                if may_reserve {
                    self.reserve_value(executor);
                }
                return 0;
            }
            Action::Watch(subscription) => {
                self.phase = Phase::Watching(subscription);
                return 0;
            }
            Action::Pause(pending) => (self.pending, self.phase) = (pending, Phase::Paused),
            Action::Speak(protocol) => self.codec = Codec::new(protocol, self.limits),
            Action::LogIn => (self.codec, self.phase) = (Codec::new(Protocol::Text, self.limits), Phase::Paused),
            Action::Close(ending) => self.phase = Phase::Closing(ending),
        }
        count
    }

    /// Whether the client has logged in, or need not.
    fn is_authenticated(&self) -> bool {
        self.login == Login::Done && !matches!(self.codec, Codec::Login(_))
    }

    /// Executes one request, and logs it and its reply.
    #[cold]
    fn execute_traced(&mut self, executor: &Executor<'_>) -> u32 {
        let input = self.input.unread();
        let request = match (&self.pending, &self.codec) {
            (Pending::None, Codec::Text(decoder)) => trace::of_text(decoder, input),
            (Pending::None, Codec::Binary(decoder)) => trace::of_packet(decoder, input, self.login == Login::Done),
            (Pending::Store(front), Codec::Text(_)) => Some(trace::of_line(front)),
            (Pending::Store(front), _) => binary::Request::of_front(front).map(|front| trace::of_request(&front)),
            // A login is not logged. A paused command was logged when it began.
            _ => None,
        };
        let before = Extent::of(self.output.replies());
        let executed = self.execute_next(executor, 1);
        if executed > 0 || self.subscription().is_some() {
            executor.trace_command(&self.session, request, self.output.replies(), before);
        }
        executed
    }

    /// Continues a pending command.
    fn resume(&mut self, executor: &Executor<'_>) -> Executed {
        match std::mem::replace(&mut self.pending, Pending::None) {
            Pending::None => Executed::one(0, Action::Continue),
            Pending::Fetch { fetch, line } => {
                let keys = &self.input.unread()[..line];
                let outcome = executor.resume(&self.session, fetch, keys, self.output.replies());
                Executed::of(outcome, keys, line)
            }
            Pending::Dump(dump) => Executed::of(executor.dump(dump, self.output.bytes()), b"", 0),
            Pending::Store(front) => self.finish_store(executor, &front).unwrap_or_else(|| {
                self.pending = Pending::Store(front);
                Executed::one(0, Action::Wait { may_reserve: false })
            }),
        }
    }

    /// If the input ends within a large value, reserves memory in which the cache will keep it, so
    /// that the rest is received directly into that memory.
    #[cold]
    fn reserve_value(&mut self, executor: &Executor<'_>) {
        let room = match std::mem::replace(&mut self.room, Making::Refused) {
            Making::None => Room::default(),
            Making::Room(room) => room,
            Making::Refused => return,
        };
        let input = self.input.unread();
        let pending_store = match &self.codec {
            Codec::Text(decoder) => decoder.pending_store(input),
            Codec::Binary(decoder) => decoder.pending_store(input),
            Codec::Undecided | Codec::Login(_) => None,
        };
        let Some(store) = pending_store else {
            self.room = Making::None;
            return;
        };
        let missing = (store.front + store.length).saturating_sub(input.len());
        // An announcement evicts nothing: a client has to send a part of what others lose.
        let part = store.length.div_ceil(8).min(MAX_ROOM_AT_ONCE);
        if store.length > MAX_ROOM_AT_ONCE && input.len() < store.front + part {
            self.room = Making::None;
            return;
        }
        match executor.reserve(&store, missing, room) {
            Some(Reservation::Made(reserved)) => {
                let (front, length) = (input[..store.front].into(), store.front);
                (self.pending, self.room) = (Pending::Store(front), Making::None);
                self.input.consume(length);
                self.input.expect(reserved);
            }
            Some(Reservation::Begun(room)) => (self.room, self.phase) = (Making::Room(room), Phase::Paused),
            None => (),
        }
    }

    /// Executes the store that began with `front` and whose value was received into memory of the
    /// cache. None if bytes are missing.
    fn finish_store(&mut self, executor: &Executor<'_>, front: &[u8]) -> Option<Executed> {
        let end = if matches!(self.codec, Codec::Text(_)) { TEXT_END } else { 0 };
        let reserved = self.input.take_reserved(end)?;
        let executor = executor.storing(&reserved);
        let outcome = match &mut self.codec {
            Codec::Text(decoder) => {
                let end = self.input.unread().first_chunk::<TEXT_END>()?;
                match decoder.decode_apart(front, reserved.value(), end) {
                    Ok(command) => executor.execute(&self.session, command, self.output.replies()),
                    Err(rejection) => {
                        executor.reject(front, &rejection, self.output.bytes());
                        Outcome::Done
                    }
                }
            }
            _ => {
                let request = binary::Request { value: reserved.value(), ..binary::Request::of_front(front)? };
                executor.execute_binary(&self.session, &mut self.login, &request, self.output.replies())
            }
        };
        Some(Executed::of(outcome, front, end))
    }
}
