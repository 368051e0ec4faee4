//! The commands of the binary protocol.

use super::observe::Stored;
use super::report::Report;
use super::{Dump, Executor, Outcome, Replies, Session, sasl};
use crate::options::PROTOCOL_VERSION;
use relativist_memcache::Words;
use relativist_memcache::binary::{Header, Opcode, Request, Status, reply};
use relativist_store::{
    Change, CountError, Direction, Expiry, Hit, Lookup, Marks, New, OutOfMemory, Present, Store, Value, apply, parse,
};

/// The expiry with which `increment` and `decrement` do not create a missing item.
const DO_NOT_CREATE: u32 = u32::MAX;

impl Executor<'_> {
    /// Like [`refuse_large`](Self::refuse_large), for the binary protocol. `front` precedes the
    /// value.
    pub fn refuse_large_binary(&self, session: &Session, front: &[u8], key: &[u8], replaces: bool) {
        if self.is_observed
            && let Some(request) = Request::of_front(front)
        {
            self.observe_too_large(session, key, name(request.opcode), request.extra_32(4).into());
        }
        self.remove_replaced(session, key, replaces);
    }

    /// Executes a request of the binary protocol and appends the reply to `replies`.
    pub fn execute_binary(
        &self,
        session: &Session,
        login: &mut sasl::Login,
        request: &Request<'_>,
        replies: &mut Replies,
    ) -> Outcome<'static> {
        let _timing = self.latencies.map(|latencies| latencies.time(request.opcode.into()));
        let out = &mut replies.bytes;
        if self.has_key_prefix && !self.permits_request(request) {
            reply::failure(out, &request.header, Status::AuthFailure);
            return Outcome::Done;
        }
        match request.opcode {
            Opcode::Get | Opcode::GetKey => self.binary_get(session, request, replies),
            Opcode::Touch | Opcode::GetAndTouch | Opcode::GetAndTouchKey => {
                self.binary_touch(session, request, replies);
            }
            Opcode::Set | Opcode::Add | Opcode::Replace | Opcode::Append | Opcode::Prepend => {
                self.binary_store(session, request, out);
            }
            Opcode::Increment => self.binary_count(session, request, Direction::Up, out),
            Opcode::Decrement => self.binary_count(session, request, Direction::Down, out),
            Opcode::Delete => self.binary_delete(session, request, out),
            Opcode::Flush => self.binary_flush(request, out),
            Opcode::Noop => succeed(request, 0, out),
            Opcode::Version => {
                let version = PROTOCOL_VERSION.as_bytes();
                reply::packet(out, &request.header, Status::Success, 0, [b"", b"", version]);
            }
            Opcode::Stat => return self.binary_stat(request, out),
            Opcode::SaslList | Opcode::SaslAuth | Opcode::SaslStep => return self.sasl(session, login, request, out),
            Opcode::Quit => {
                succeed(request, 0, out);
                return Outcome::Quit;
            }
        }
        Outcome::Done
    }

    /// Answers a request that the decoder refused.
    pub fn reject_binary(&self, header: &Header, status: Status, out: &mut Vec<u8>) {
        if status == Status::TooLarge {
            self.counters.store_too_large.bump();
        }
        reply::failure(out, header, status);
    }

    fn binary_get(&self, session: &Session, request: &Request<'_>, out: &mut Replies) {
        let mut size = 0;
        let lookup = self.tenant.cache.get(request.key, |hit| {
            size = hit.value.len();
            let key = if request.opcode == Opcode::GetKey { request.key } else { b"" };
            self.append_item(request, key, &hit, out);
        });
        self.record_get(session, request.key, lookup, size);
        if lookup != Lookup::Hit && !request.is_quiet {
            miss(request, request.opcode == Opcode::GetKey, &mut out.bytes);
        }
    }

    fn binary_touch(&self, session: &Session, request: &Request<'_>, out: &mut Replies) {
        let touch = |present: Present<'_>| {
            let expiry = Some(Expiry::from_unsigned(request.extra_32(0), present.now));
            (Change::Mark { expiry, add: Marks::FETCHED, is_access: true }, present.lookup)
        };
        let mut size = 0;
        let show = |mut hit: Hit<'_>| {
            size = hit.value.len();
            let key = if request.opcode == Opcode::GetAndTouchKey { request.key } else { b"" };
            hit.value = if request.opcode == Opcode::Touch { b"" } else { hit.value };
            self.append_item(request, key, &hit, out);
        };
        let lookup = self.tenant.cache.update(request.key, touch, show).unwrap_or_else(|_| {
            self.tenant.cache.delete(request.key);
            Lookup::Miss
        });
        self.record_touch(session, request.key, lookup, size);
        if lookup != Lookup::Hit && !request.is_quiet {
            miss(request, request.opcode == Opcode::GetAndTouchKey, &mut out.bytes);
        }
    }

    /// Appends the reply with an item, and with `key` if the command asks for it.
    #[inline(always)]
    fn append_item(&self, request: &Request<'_>, key: &[u8], hit: &Hit<'_>, out: &mut Replies) {
        let (header, cas) = (&request.header, self.visible(hit.cas()));
        match self.pin_large(hit) {
            None => reply::value(&mut out.bytes, header, hit.flags, cas, key, hit.value),
            Some(value) => {
                reply::value_front(&mut out.bytes, header, hit.flags, cas, key, value.len());
                out.append(value);
            }
        }
    }

    fn binary_store(&self, session: &Session, request: &Request<'_>, out: &mut Vec<u8>) {
        if self.is_too_large(request.key, request.value.len()) {
            let store = (name(request.opcode), request.extra_32(4).into());
            self.refuse_too_large(session, request.key, store, request.opcode == Opcode::Set);
            return reply::failure(out, &request.header, Status::TooLarge);
        }
        self.counters.cmd_set.bump();
        self.record_lookup(session, request.key);
        // With `-C` items have no CAS value to compare with.
        let compare = if self.shared.options.disable_cas { 0 } else { request.header.cas };
        let mut cas = 0;
        let show = |hit: Hit<'_>| cas = self.visible(hit.cas());
        let joins = matches!(request.opcode, Opcode::Append | Opcode::Prepend);
        let outcome =
            if joins { self.binary_join(request, compare, show) } else { self.binary_put(request, compare, show) };
        let store = outcome.unwrap_or_else(|_| {
            if request.opcode == Opcode::Set {
                self.tenant.cache.delete(request.key);
            }
            Store::OutOfMemory
        });
        let command = name(request.opcode);
        let stored = Stored { command, ttl: request.extra_32(4).into(), size: request.value.len() };
        self.record_store(session, request.key, store, stored, compare != 0 && !joins);
        let status = match store {
            Store::Stored => return succeed(request, cas, out),
            Store::Exists => Status::Exists,
            Store::NotFound => Status::NotFound,
            Store::NotStored => Status::NotStored,
            Store::OutOfMemory => Status::OutOfMemory,
        };
        reply::failure(out, &request.header, status);
    }

    fn binary_put(
        &self,
        request: &Request<'_>,
        compare: u64,
        show: impl FnOnce(Hit<'_>),
    ) -> Result<Store, OutOfMemory> {
        let new = New {
            expiry: Expiry::from_unsigned(request.extra_32(4), self.tenant.cache.now()),
            ..New::plain(request.extra_32(0), self.value(request.value))
        };
        let permit = |present: Present<'_>| {
            let store = match (compare, request.opcode, present.item) {
                (0, Opcode::Add, Some(_)) => Store::Exists,
                (0, Opcode::Replace, None) => Store::NotFound,
                (0, _, _) => Store::Stored,
                (_, _, None) => Store::NotFound,
                (cas, _, Some(item)) if cas != item.cas() => Store::Exists,
                _ => Store::Stored,
            };
            (store == Store::Stored, store)
        };
        self.tenant.cache.put(request.key, &new, permit, show)
    }

    fn binary_join(
        &self,
        request: &Request<'_>,
        compare: u64,
        show: impl FnOnce(Hit<'_>),
    ) -> Result<Store, OutOfMemory> {
        let value = match request.opcode {
            Opcode::Append => Value::Appended(request.value),
            _ => Value::Prepended(request.value),
        };
        let join = |present: Present<'_>| match present.item {
            None => (Change::Keep, Store::NotStored),
            Some(item) if compare != 0 && compare != item.cas() => (Change::Keep, Store::Exists),
            Some(item) if self.is_too_large(request.key, item.value.len() + request.value.len()) => {
                (Change::Keep, Store::NotStored)
            }
            Some(item) => (Change::Put(item.joined(value)), Store::Stored),
        };
        self.tenant.cache.update(request.key, join, show)
    }

    fn binary_count(&self, session: &Session, request: &Request<'_>, direction: Direction, out: &mut Vec<u8>) {
        self.record_lookup(session, request.key);
        let (delta, initial, exptime) = (request.extra_64(0), request.extra_64(8), request.extra_32(16));
        let compare = request.header.cas;
        let (mut number, mut cas) = (0, 0);
        let step = |present: Present<'_>| match present.item {
            None if exptime == DO_NOT_CREATE => (Change::Keep, Err(Status::NotFound)),
            None => {
                number = initial;
                let expiry = Expiry::from_unsigned(exptime, present.now);
                (Change::Put(New { expiry, ..New::plain(0, Value::Number(number)) }), Ok(true))
            }
            Some(item) => match parse(item.value) {
                // memcached compares the CAS value first, but finds an empty value before.
                _ if compare != 0 && compare != self.visible(item.cas()) && !item.value.is_empty() => {
                    (Change::Keep, Err(Status::Exists))
                }
                None => (Change::Keep, Err(Status::NotANumber)),
                Some(present) => {
                    number = apply(direction, present, delta);
                    (Change::Put(item.counted(number)), Ok(false))
                }
            },
        };
        let outcome = self.tenant.cache.update(request.key, step, |hit| cas = self.visible(hit.cas()));
        let outcome = outcome.unwrap_or(Err(Status::OutOfMemory));
        self.record_arithmetic(
            request.key,
            direction,
            match outcome {
                Ok(is_created) => Ok(is_created),
                Err(Status::NotFound) => Err(CountError::NotFound),
                Err(Status::OutOfMemory) => Err(CountError::OutOfMemory),
                Err(_) => Err(CountError::NotANumber),
            },
        );
        if self.is_observed && outcome == Ok(true) {
            self.observe_initial(session, request.key, number, exptime.into());
        }
        match outcome {
            Err(status) => reply::failure(out, &request.header, status),
            Ok(_) if request.is_quiet => (),
            Ok(_) => {
                let body = [b"", b"", &number.to_be_bytes()[..]];
                reply::packet(out, &request.header, Status::Success, cas, body);
            }
        }
    }

    fn binary_delete(&self, session: &Session, request: &Request<'_>, out: &mut Vec<u8>) {
        self.record_lookup(session, request.key);
        let compare = request.header.cas;
        let mut size = None;
        let decide = |present: Present<'_>| match present.item {
            None => (Change::Keep, Status::NotFound),
            Some(item) if compare != 0 && compare != self.visible(item.cas()) => (Change::Keep, Status::Exists),
            Some(item) => {
                size = Some(item.value.len());
                (Change::Remove, Status::Success)
            }
        };
        let status = self.tenant.cache.update(request.key, decide, |_| ()).unwrap_or(Status::NotFound);
        let is_hit = (status != Status::Exists).then_some(status == Status::Success);
        self.record_delete(request.key, "delete", is_hit, size);
        match status {
            Status::Success => succeed(request, 0, out),
            failure => reply::failure(out, &request.header, failure),
        }
    }

    fn binary_flush(&self, request: &Request<'_>, out: &mut Vec<u8>) {
        self.counters.cmd_flush.bump();
        if self.shared.live.get().disable_flush_all {
            return reply::failure(out, &request.header, Status::AuthFailure);
        }
        self.tenant.cache.flush(i32::try_from(request.extra_32(0)).unwrap_or(i32::MAX));
        succeed(request, 0, out);
    }

    /// Answers `stat`. The key holds the group and its arguments, separated as in a line of text.
    fn binary_stat(&self, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome<'static> {
        let args = Words::new(request.key, usize::MAX);
        let mut words = args.clone();
        match (words.next(), words.next()) {
            (Some(name @ (b"conns" | b"table" | b"memory")), _) => {
                return self.long_report(name, Some(request.header), out);
            }
            (Some(b"detail"), Some(b"dump")) if !self.shared.live.get().disable_dumping => {
                return self.dump(Box::new(Dump::prefixes().replying_to(Some(request.header))), out);
            }
            _ => (),
        }
        let start = out.len();
        if self.report(args, &mut Report::new(out, Some(request.header))) {
            reply::success(out, &request.header, 0);
        } else {
            out.truncate(start);
            reply::failure(out, &request.header, Status::NotFound);
        }
        Outcome::Done
    }
}

/// Appends a success, unless the request is quiet.
fn succeed(request: &Request<'_>, cas: u64, out: &mut Vec<u8>) {
    if !request.is_quiet {
        reply::success(out, &request.header, cas);
    }
}

/// Appends a miss. Its body is the key if that of a hit would have the key, otherwise a message.
fn miss(request: &Request<'_>, has_key: bool, out: &mut Vec<u8>) {
    if has_key {
        reply::packet(out, &request.header, Status::NotFound, 0, [b"", request.key, b""]);
    } else {
        reply::failure(out, &request.header, Status::NotFound);
    }
}

pub(super) fn name(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::Add => "add",
        Opcode::Replace => "replace",
        Opcode::Append => "append",
        Opcode::Prepend => "prepend",
        _ => "set",
    }
}
