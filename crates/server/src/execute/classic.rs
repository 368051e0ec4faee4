//! The classic commands.

use super::observe::Stored;
use super::replies::append_reply;
use super::{Executor, Fetch, Outcome, Replies, Session};
use crate::observability::latency::Kind;
use relativist_memcache::{Arithmetic, StoreVerb, reply};
use relativist_store::work::{self, Work};
use relativist_store::{Content, CountError, Direction, Hit, Lookup, MAX_BATCH_KEYS, Mode, Store, ValueRef};

/// The reply to `flush_all` with `-F`.
pub(super) const FLUSH_NOT_ALLOWED: &[u8] = b"CLIENT_ERROR flush_all not allowed\r\n";

impl Executor<'_> {
    /// Continues a paused fetch. `rest` is its command line from the next key on.
    pub fn resume<'b>(&self, session: &Session, fetch: Fetch, rest: &'b [u8], out: &mut Replies) -> Outcome<'b> {
        let text = rest.strip_suffix(b"\n").unwrap_or(rest);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let keys = text.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        self.fetch(session, fetch, keys, out)
    }

    /// Fetches each key, until the output is full or other connections must be served.
    pub(super) fn fetch<'b>(
        &self,
        session: &Session,
        fetch: Fetch,
        mut keys: impl Iterator<Item = &'b [u8]>,
        out: &mut Replies,
    ) -> Outcome<'b> {
        let Some(first) = keys.next() else { return done(&mut out.bytes) };
        let mut next = keys.next();
        if next.is_none() {
            self.fetch_one(session, fetch, first, out);
            return done(&mut out.bytes);
        }
        let (mut batch, mut count) = ([first; MAX_BATCH_KEYS], 1);
        loop {
            while let Some(key) = next.filter(|_| count < batch.len()) {
                batch[count] = key;
                count += 1;
                next = keys.next();
            }
            let answered = match fetch.exptime {
                None => self.get_some(session, fetch.with_cas, &batch[..count], b"", out),
                Some(_) => self.fetch_one_by_one(session, fetch, &batch[..count], out),
            };
            work::charge(Work::Items(answered));
            let is_full = answered < count || out.len() >= self.output_limit;
            match batch[answered..count].first().copied().or(next) {
                None => return done(&mut out.bytes),
                Some(next) if is_full || self.has_turn_ended() => return Outcome::PausedFetch { fetch, next },
                Some(_) => count = 0,
            }
        }
    }

    /// Answers `get`s of one key each that have arrived together, at most [`MAX_BATCH_KEYS`], until
    /// the output is full. Returns the number answered.
    pub fn get_each(&self, session: &Session, with_cas: bool, keys: &[&[u8]], out: &mut Replies) -> usize {
        let timing = self.latencies.map(|latencies| latencies.time(Kind::Get));
        let done = self.get_some(session, with_cas, keys, reply::END, out);
        if let Some(timing) = timing {
            timing.share(done);
        }
        done
    }

    /// Looks up at most [`MAX_BATCH_KEYS`] keys together, until the output is full. Appends each
    /// hit, and `end` after each key. Returns the number of keys looked up.
    fn get_some(&self, session: &Session, with_cas: bool, keys: &[&[u8]], end: &[u8], out: &mut Replies) -> usize {
        self.tenant.cache.get_many(keys, |index, found| {
            let key = keys[index];
            let (lookup, size) = match found {
                Ok(hit) => {
                    let cas = with_cas.then(|| self.visible(hit.cas()));
                    self.append_hit(out, key, cas, &hit);
                    (Lookup::Hit, hit.value.len())
                }
                Err(lookup) => (lookup, 0),
            };
            out.bytes.extend_from_slice(end);
            self.record_get(session, key, lookup, size);
            out.len() < self.output_limit
        })
    }

    /// Fetches keys one by one, until the output is full. Returns the number of keys fetched.
    fn fetch_one_by_one(&self, session: &Session, fetch: Fetch, keys: &[&[u8]], out: &mut Replies) -> usize {
        let is_full = |key: &&[u8]| {
            self.fetch_one(session, fetch, key, out);
            out.len() >= self.output_limit
        };
        keys.iter().position(is_full).map_or(keys.len(), |last| last + 1)
    }

    #[inline]
    fn fetch_one(&self, session: &Session, fetch: Fetch, key: &[u8], out: &mut Replies) {
        let mut size = 0;
        let visit = |hit: Hit<'_>| {
            size = hit.value.len();
            let cas = fetch.with_cas.then(|| self.visible(hit.cas()));
            self.append_hit(out, key, cas, &hit);
        };
        match fetch.exptime {
            None => {
                let lookup = self.tenant.cache.get(key, visit);
                self.record_get(session, key, lookup, size);
            }
            Some(exptime) => {
                let lookup = self.tenant.cache.get_and_touch(key, exptime, visit);
                self.record_touch(session, key, lookup, size);
            }
        }
    }

    /// Inlined, so that the fields of the hit that are not in the reply are not loaded.
    #[inline(always)]
    fn append_hit(&self, out: &mut Replies, key: &[u8], cas: Option<u64>, hit: &Hit<'_>) {
        match self.pin_large(hit) {
            Some(value) => append_pinned(out, key, hit.flags, cas, value),
            None => append_copied(&mut out.bytes, key, hit.flags, cas, hit.value),
        }
    }

    pub(super) fn store(&self, session: &Session, verb: StoreVerb, key: &[u8], content: Content<'_>) -> &'static [u8] {
        if self.is_too_large(key, content.value.len()) {
            let store = (verb_name(verb), content.exptime.into());
            self.refuse_too_large(session, key, store, verb == StoreVerb::Set);
            return reply::TOO_LARGE;
        }
        self.counters.cmd_set.bump();
        self.record_lookup(session, key);
        let store = match verb {
            // With `-C` no item has a CAS value.
            StoreVerb::Cas(_) if self.shared.options.disable_cas => self.compare_without_cas(key),
            _ => match self.reserved {
                None => self.tenant.cache.store(mode(verb), key, content),
                Some(value) => self.tenant.cache.store_reserved(mode(verb), key, content.flags, content.exptime, value),
            },
        };
        let stored = Stored { command: verb_name(verb), ttl: content.exptime.into(), size: content.value.len() };
        self.record_store(session, key, store, stored, matches!(verb, StoreVerb::Cas(_)));
        match store {
            Store::Stored => reply::STORED,
            Store::NotStored => reply::NOT_STORED,
            Store::Exists => reply::EXISTS,
            Store::NotFound => reply::NOT_FOUND,
            Store::OutOfMemory => reply::OUT_OF_MEMORY,
        }
    }

    fn compare_without_cas(&self, key: &[u8]) -> Store {
        match self.tenant.cache.peek(key, |_| ()) {
            Lookup::Hit => Store::Exists,
            _ => Store::NotFound,
        }
    }

    pub(super) fn count(&self, session: &Session, key: &[u8], op: Arithmetic, delta: u64) -> Result<u64, CountError> {
        self.record_lookup(session, key);
        let direction = match op {
            Arithmetic::Incr => Direction::Up,
            Arithmetic::Decr => Direction::Down,
        };
        let count = self.tenant.cache.count(key, direction, delta);
        self.record_arithmetic(key, direction, count.map(|_| false));
        count
    }

    pub(super) fn delete(&self, session: &Session, key: &[u8]) -> &'static [u8] {
        self.record_lookup(session, key);
        let size = if self.is_observed { self.size_for_line(key) } else { 0 };
        let is_deleted = self.tenant.cache.delete(key);
        self.record_delete(key, "delete", Some(is_deleted), is_deleted.then_some(size));
        if is_deleted { reply::DELETED } else { reply::NOT_FOUND }
    }

    pub(super) fn touch(&self, session: &Session, key: &[u8], exptime: i32) -> &'static [u8] {
        self.record_lookup(session, key);
        let is_hit = self.tenant.cache.touch(key, exptime);
        self.record_touch_only(key, is_hit);
        if is_hit { reply::TOUCHED } else { reply::NOT_FOUND }
    }

    pub(super) fn flush(&self, exptime: i32) -> &'static [u8] {
        self.counters.cmd_flush.bump();
        if self.shared.live.get().disable_flush_all {
            return FLUSH_NOT_ALLOWED;
        }
        self.tenant.cache.flush(exptime);
        reply::OK
    }
}

/// Ends the reply to a fetch.
fn done(out: &mut Vec<u8>) -> Outcome<'static> {
    out.extend_from_slice(reply::END);
    Outcome::Done
}

/// Appends the reply to `incr` or `decr`.
pub(super) fn append_count(count: Result<u64, CountError>, noreply: bool, out: &mut Vec<u8>) {
    match count {
        Ok(number) if !noreply => reply::number(out, number),
        Ok(_) => (),
        Err(CountError::NotFound) => append_reply(out, noreply, reply::NOT_FOUND),
        Err(CountError::NotANumber) => append_reply(out, noreply, reply::NON_NUMERIC),
        Err(CountError::OutOfMemory) => append_reply(out, noreply, reply::OUT_OF_MEMORY),
    }
}

/// Not inlined, so that its callers can be inlined.
#[inline(never)]
fn append_copied(out: &mut Vec<u8>, key: &[u8], flags: u32, cas: Option<u64>, value: &[u8]) {
    reply::value(out, key, flags, cas, value);
}

#[cold]
fn append_pinned(out: &mut Replies, key: &[u8], flags: u32, cas: Option<u64>, value: ValueRef) {
    reply::value_line(&mut out.bytes, key, flags, cas, value.len());
    out.append(value);
    out.bytes.extend_from_slice(b"\r\n");
}

fn mode(verb: StoreVerb) -> Mode {
    match verb {
        StoreVerb::Set => Mode::Set,
        StoreVerb::Add => Mode::Add,
        StoreVerb::Replace => Mode::Replace,
        StoreVerb::Append => Mode::Append,
        StoreVerb::Prepend => Mode::Prepend,
        StoreVerb::Cas(cas) => Mode::Cas(cas),
    }
}

/// The name of a store command, if `word` is one.
pub(super) fn store_name(word: &[u8]) -> Option<&'static str> {
    ["set", "add", "replace", "append", "prepend", "cas"].into_iter().find(|name| name.as_bytes() == word)
}

fn verb_name(verb: StoreVerb) -> &'static str {
    match verb {
        StoreVerb::Set => "set",
        StoreVerb::Add => "add",
        StoreVerb::Replace => "replace",
        StoreVerb::Append => "append",
        StoreVerb::Prepend => "prepend",
        StoreVerb::Cas(_) => "cas",
    }
}
