//! Requests of the text protocol.

use super::classic::{FLUSH_NOT_ALLOWED, append_count, store_name};
use super::executor::Executor;
use super::outcome::{Fetch, Outcome};
use super::permission::NOT_WITH_TENANTS;
use super::replies::{Replies, append_reply};
use super::session::Session;
use crate::observability::latency::Kind;
use crate::options::PROTOCOL_VERSION;
use relativist_memcache::{Command, Rejection, RequestError, decode_key, number, reply};
use relativist_store::Content;

impl Executor<'_> {
    /// Executes a command of the text protocol and appends the reply to `replies`.
    pub fn execute<'b>(&self, session: &Session, command: Command<'b>, replies: &mut Replies) -> Outcome<'b> {
        let _timing = self.latencies.map(|latencies| latencies.time(Kind::from(&command)));
        let out = &mut replies.bytes;
        if self.has_key_prefix && self.refuse_command(&command, out) {
            return Outcome::Done;
        }
        match command {
            Command::Get { keys, with_cas } => {
                return self.fetch(session, Fetch::get(with_cas), keys, replies);
            }
            Command::GetAndTouch { exptime, keys, with_cas } => {
                return self.fetch(session, Fetch::get_and_touch(exptime, with_cas), keys, replies);
            }
            Command::Store { verb, key, flags, exptime, value, noreply } => {
                let content = Content { flags, exptime, value };
                append_reply(out, noreply, self.store(session, verb, key, content));
            }
            Command::Arithmetic { key, op, delta, noreply } => {
                append_count(self.count(session, key, op, delta), noreply, out);
            }
            Command::Delete { key, noreply } => append_reply(out, noreply, self.delete(session, key)),
            Command::Touch { key, exptime, noreply } => append_reply(out, noreply, self.touch(session, key, exptime)),
            Command::FlushAll { exptime, noreply } => append_reply(out, noreply, self.flush(exptime)),
            Command::Version => reply::version(out, PROTOCOL_VERSION),
            Command::Verbosity { noreply, .. } if self.is_shared() => append_reply(out, noreply, NOT_WITH_TENANTS),
            Command::Verbosity { noreply, .. } if self.shared.live.get().disable_verbosity => {
                append_reply(out, noreply, b"CLIENT_ERROR verbosity not allowed\r\n");
            }
            Command::Verbosity { level, noreply } => {
                self.shared.log.set_verbosity(u8::try_from(level).unwrap_or(u8::MAX));
                append_reply(out, noreply, reply::OK);
            }
            Command::Stats { args } => return self.stats(args, out),
            Command::Quit => return Outcome::Quit,
            Command::Meta(command) => self.meta(session, &command, replies),
            Command::MetaNoop => out.extend_from_slice(b"MN\r\n"),
            Command::MetaDebug { key } => self.meta_debug(session, key, out),
            Command::Admin { verb, args } => return self.admin(session, verb, args, out),
        }
        Outcome::Done
    }

    /// Answers a request that the decoder refused; `line` is what it consumed.
    pub fn reject(&self, line: &[u8], rejection: &Rejection, out: &mut Vec<u8>) {
        match rejection.error {
            RequestError::TooLarge => self.counters.store_too_large.bump(),
            RequestError::BadDataChunk => self.counters.cmd_set.bump(),
            RequestError::InvalidExptime if line.starts_with(b"flush_all") => {
                self.counters.cmd_flush.bump();
                if self.shared.live.get().disable_flush_all {
                    return append_reply(out, rejection.noreply, FLUSH_NOT_ALLOWED);
                }
            }
            _ => (),
        }
        out.extend_from_slice(rejection.reply());
    }

    /// Begins to refuse a store with the command line `line`, whose value is too large. Removes the
    /// item that it would have replaced, if it `replaces` one.
    pub fn refuse_large(&self, session: &Session, line: &[u8], key: &[u8], is_base64: bool, replaces: bool) {
        let mut room = [0; _];
        let key = if is_base64 { decode_key(key, &mut room) } else { Some(key) };
        let Some(key) = key else { return };
        if self.is_observed {
            let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
            let command = words.next().and_then(store_name).unwrap_or("ms");
            // The expiry follows key and flags. In an `ms` there is a flag instead, which is not a
            // number.
            let exptime = words.nth(2).and_then(number::signed_32).unwrap_or(0);
            self.observe_too_large(session, key, command, exptime.into());
        }
        self.remove_replaced(session, key, replaces);
    }

    pub(super) fn remove_replaced(&self, session: &Session, key: &[u8], replaces: bool) {
        if !replaces || !self.allows(key) {
            return;
        }
        self.record_lookup(session, key);
        self.tenant.cache.delete(key);
    }
}
