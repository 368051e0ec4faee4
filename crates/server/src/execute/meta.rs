//! The meta commands.
//!
//! The parts of a reply are in the order of the request's flags, so the flags are read again while
//! the reply is written. Three flags are added even if the request lacks them: `Z` (another client
//! was asked to renew the item), `X` (the item is stale) and `W` (this client must renew the item:
//! it has won).
//!
//! The first client wins, which is decided under the lock of the key. An `mg` takes this lock only
//! if the client may win, or to change the expiry. Every other `mg` is a lookup without a lock.

use super::observe::{CLASS, Stored};
use super::{Executor, Replies, Session};
use relativist_cache::{
    Change, CountError, Direction, Expiry, Hit, Lookup, Marks, New, Present, Store, Value, apply, parse,
};
use relativist_memcache::{Meta, MetaFlags, MetaMode, MetaVerb, RequestError, encode_key, reply};
use std::cell::Cell;
use std::io::Write as _;

/// A command with checked flags and decoded key.
struct Request<'m, 'b> {
    meta: &'m Meta<'b>,
    flags: MetaFlags,
    key: &'m [u8],
}

/// The item that the first lookup found, without a lock.
struct Seen {
    number: u64,
    idle: u32,
    marks: Marks,
}

/// The state of an item before an `mg`, as the reply reports it.
#[derive(Clone, Copy)]
struct Before {
    cas: u64,
    ttl: Option<u32>,
    idle: u32,
    marks: Marks,
    /// Whether this client is to renew the item.
    wins: bool,
}

impl Before {
    fn of(item: &Hit<'_>, wins: bool) -> Before {
        Before { cas: item.cas, ttl: item.ttl(), idle: item.idle, marks: item.marks, wins }
    }
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ending {
    Done,
    NotFound,
    NotStored,
    Exists,
    NotANumber,
}

impl Request<'_, '_> {
    /// The marks of an item that this command creates.
    fn marks(&self) -> Marks {
        if self.flags.has_base64_key() { Marks::ENCODED_KEY } else { Marks::NONE }
    }

    /// The CAS value that the client sets for the new item. A client that sends 0 sets none.
    fn cas(&self) -> Option<u64> {
        self.flags.cas.filter(|cas| *cas != 0)
    }

    /// Whether this client is to renew `hit`. An `R` that follows `T` compares with the new expiry.
    fn wins(&self, hit: &Hit<'_>) -> bool {
        if hit.marks.has(Marks::WON) {
            return false;
        }
        let mut ttl = hit.ttl();
        let mut ends_soon = false;
        for word in self.meta.words() {
            match (word[0], self.flags.recache) {
                (b'T', _) => ttl = self.new_ttl(hit.now),
                (b'R', Some(limit)) => ends_soon |= ttl.is_some_and(|ttl| i64::from(ttl) < limit.into()),
                _ => (),
            }
        }
        ends_soon || hit.marks.has(Marks::STALE)
    }

    /// The time to live that `T` sets, in seconds; none if it is unlimited or there is no `T`.
    fn new_ttl(&self, now: u32) -> Option<u32> {
        let expiry = Expiry::from_protocol(self.flags.exptime?, now);
        (expiry != Expiry::NEVER).then(|| expiry.to_bits().saturating_sub(now))
    }

    /// Appends the reply to a failure: `code`, and those of the request's flags that such a reply
    /// includes.
    fn fail(&self, code: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(code);
        for word in self.meta.words() {
            match word[0] {
                b'O' => append_word(out, word),
                b'k' => append_key(out, self.key, self.flags.has_base64_key()),
                b'c' if self.meta.verb == MetaVerb::Set => out.extend_from_slice(b" c0"),
                b's' if self.meta.verb == MetaVerb::Set => append_number(out, b's', self.meta.value.len() as u64),
                _ => (),
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}

impl Executor<'_> {
    pub(super) fn meta(&self, session: &Session, meta: &Meta<'_>, replies: &mut Replies) {
        let mut room = [0; _];
        let checked = meta.flags().and_then(|flags| Ok((flags, meta.key(&flags, &mut room)?)));
        let out = &mut replies.bytes;
        match checked {
            Err(error) => self.refuse_meta(error, out),
            Ok((flags, key)) => {
                let request = Request { meta, flags, key };
                match meta.verb {
                    MetaVerb::Get => self.meta_get(session, &request, replies),
                    MetaVerb::Set => self.meta_set(session, &request, out),
                    MetaVerb::Delete => self.meta_delete(session, &request, out),
                    MetaVerb::Arithmetic => self.meta_arithmetic(session, &request, out),
                }
            }
        }
    }

    fn refuse_meta(&self, error: RequestError, out: &mut Vec<u8>) {
        out.extend_from_slice(error.reply());
    }

    fn meta_get(&self, session: &Session, request: &Request<'_, '_>, out: &mut Replies) {
        let (mut size, mut lookup, mut seen) = (0, None, None);
        if request.flags.exptime.is_none() {
            let visit = |hit: Hit<'_>| {
                if request.wins(&hit) {
                    seen = Some(Seen { number: hit.number, idle: hit.idle, marks: hit.marks });
                } else {
                    size = hit.value.len();
                    lookup = Some(Lookup::Hit);
                    self.append_found(request, Before::of(&hit, false), &hit, out);
                }
            };
            let cache = &self.shared.cache;
            let found =
                if request.flags.is_peek() { cache.peek(request.key, visit) } else { cache.get(request.key, visit) };
            if found != Lookup::Hit && request.flags.vivify.is_none() {
                lookup = Some(found);
            }
        }
        let lookup = lookup.unwrap_or_else(|| self.get_and_change(request, seen, &mut size, out));
        if lookup != Lookup::Hit && request.flags.vivify.is_none() && !request.flags.is_quiet() {
            request.fail(b"EN", &mut out.bytes);
        }
        match request.flags.exptime {
            None => self.count_get(lookup),
            Some(_) => self.count_touch(lookup),
        }
        if self.is_observed {
            self.observe_get(session, request.key, lookup, size);
        }
    }

    /// Executes an `mg` that sets the expiry, creates the item, or claims to renew it. The reply
    /// describes the item found under the lock, even if the first lookup found another one.
    fn get_and_change(
        &self,
        request: &Request<'_, '_>,
        seen: Option<Seen>,
        size: &mut usize,
        out: &mut Replies,
    ) -> Lookup {
        let flags = &request.flags;
        // `h`, `l`, and a `t` that precedes `T`, report the item as it was before.
        let before: Cell<Option<Before>> = Cell::new(None);
        let decide = |present: Present<'_>| {
            let change = match (present.item, flags.vivify) {
                (Some(hit), _) => {
                    let wins = request.wins(&hit);
                    before.set(Some(Before::of(&hit, wins)));
                    let is_access = !flags.is_peek();
                    let add = if wins { Marks::WON } else { Marks::NONE };
                    let add = if is_access { add | Marks::FETCHED } else { add };
                    let expiry = flags.exptime.map(|exptime| Expiry::from_protocol(exptime, present.now));
                    Change::Mark { expiry, add, is_access }
                }
                (None, Some(exptime)) => Change::Put(New {
                    expiry: Expiry::from_protocol(exptime, present.now),
                    cas: request.cas(),
                    marks: request.marks() | Marks::WON,
                    ..New::plain(0, Value::Whole(b""))
                }),
                (None, None) => Change::Keep,
            };
            (change, present.lookup)
        };
        let lookup = self.shared.cache.update(request.key, decide, |hit| {
            *size = hit.value.len();
            let Some(old) = before.get() else {
                // The command created the item, and this client must fill it.
                let created = Before { marks: hit.marks & Marks::ENCODED_KEY, ..Before::of(&hit, true) };
                return self.append_found(request, created, &hit, out);
            };
            // If the first lookup found the same item, it was itself an access: report what it saw.
            let seen = seen.as_ref().filter(|seen| seen.number == hit.number);
            let (idle, fetched) = seen.map_or((hit.idle, hit.marks), |seen| (seen.idle, seen.marks));
            let decided = Marks::STALE | Marks::WON | Marks::ENCODED_KEY;
            let marks = old.marks & decided | fetched & Marks::FETCHED;
            self.append_found(request, Before { idle, marks, ..old }, &hit, out);
        });
        match lookup {
            Ok(lookup) => lookup,
            Err(_) => {
                self.counters.store_no_memory.bump();
                out.bytes.extend_from_slice(reply::OUT_OF_MEMORY);
                Lookup::Miss
            }
        }
    }

    /// Appends the reply to an `mg` that has found an item as `old` and left it as `new`.
    fn append_found(&self, request: &Request<'_, '_>, old: Before, new: &Hit<'_>, replies: &mut Replies) {
        let is_known = request.flags.compare == Some(self.visible(old.cas));
        let returns_value = request.flags.returns_value() && !is_known;
        let pinned = if returns_value { self.pin_large(new) } else { None };
        let out = &mut replies.bytes;
        if returns_value {
            out.reserve(128 + if pinned.is_none() { new.value.len() } else { 0 });
            out.extend_from_slice(b"VA");
            append_number(out, b' ', new.value.len() as u64);
        } else {
            out.extend_from_slice(b"HD");
        }
        let mut ttl = old.ttl;
        for word in request.meta.words() {
            match word[0] {
                b'O' => append_word(out, word),
                b'T' => ttl = new.ttl(),
                b'c' => append_number(out, b'c', self.visible(new.cas)),
                b'f' => append_number(out, b'f', new.flags.into()),
                b'h' => append_number(out, b'h', old.marks.has(Marks::FETCHED).into()),
                b'k' => append_key(out, new.key, new.marks.has(Marks::ENCODED_KEY)),
                b'l' => append_number(out, b'l', old.idle.into()),
                b's' => append_number(out, b's', new.value.len() as u64),
                b't' => append_ttl(out, ttl),
                _ => (),
            }
        }
        let facts = [(old.marks.has(Marks::WON), b" Z"), (old.marks.has(Marks::STALE), b" X"), (old.wins, b" W")];
        facts.iter().filter(|(is_so, _)| *is_so).for_each(|(_, fact)| out.extend_from_slice(*fact));
        out.extend_from_slice(b"\r\n");
        if returns_value {
            match pinned {
                None => out.extend_from_slice(new.value),
                Some(value) => replies.append(value),
            }
            replies.bytes.extend_from_slice(b"\r\n");
        }
    }

    fn meta_set(&self, session: &Session, request: &Request<'_, '_>, out: &mut Vec<u8>) {
        self.counters.cmd_set.bump();
        let Request { meta, flags, key } = request;
        let mut stored = None;
        let show = |hit: Hit<'_>| stored = Some((self.visible(hit.cas), hit.value.len()));
        if self.is_too_large(key, meta.value.len()) {
            self.counters.store_too_large.bump();
            if self.is_observed {
                self.observe_too_large(session, key, "ms", flags.exptime.unwrap_or(0).into());
            }
            self.shared.cache.delete(key);
            return out.extend_from_slice(reply::TOO_LARGE);
        }
        if self.is_observed {
            self.observe_lookup(session, key);
        }
        let ending = match flags.mode {
            MetaMode::Append | MetaMode::Prepend => {
                self.shared.cache.update(key, |present| self.join_step(request, present), show)
            }
            _ if flags.stores_stale() => {
                self.shared.cache.update(key, |present| self.invalidating_step(request, present), show)
            }
            _ => {
                let new = self.new_item(request, self.shared.cache.now());
                self.shared.cache.put(key, &new, |present| self.permits(request, present), show)
            }
        };
        let store = match ending {
            Ok(Ending::Done) => Store::Stored,
            Ok(Ending::Exists) => Store::Exists,
            Ok(Ending::NotFound) => Store::NotFound,
            Ok(Ending::NotStored | Ending::NotANumber) => Store::NotStored,
            Err(_) => {
                self.shared.cache.delete(key);
                Store::OutOfMemory
            }
        };
        self.count_store(store, flags.compare.is_some() && matches!(flags.mode, MetaMode::Set | MetaMode::Replace));
        if self.is_observed {
            let ttl = flags.exptime.unwrap_or(0).into();
            self.observe_store(session, key, store, Stored { command: "ms", ttl, size: meta.value.len() });
        }
        match store {
            Store::OutOfMemory => out.extend_from_slice(reply::OUT_OF_MEMORY),
            _ if flags.is_opaque_too_long => out.extend_from_slice(RequestError::OpaqueTooLong.reply()),
            Store::Stored if flags.is_quiet() => (),
            Store::Stored => append_stored(request, stored.unwrap_or_default(), out),
            Store::Exists => request.fail(b"EX", out),
            Store::NotFound => request.fail(b"NF", out),
            Store::NotStored => request.fail(b"NS", out),
        }
    }

    fn new_item<'b>(&self, request: &Request<'_, 'b>, now: u32) -> New<'b>
    where
        Self: 'b,
    {
        let flags = &request.flags;
        New {
            expiry: Expiry::from_protocol(flags.exptime.unwrap_or(0), now),
            cas: request.cas(),
            marks: request.marks(),
            ..New::plain(flags.client_flags.unwrap_or(0), self.value(request.meta.value))
        }
    }

    /// Whether an `ms` in mode set, add or replace may store.
    fn permits(&self, request: &Request<'_, '_>, present: Present<'_>) -> (bool, Ending) {
        let ending = match (request.flags.mode, request.flags.compare, present.item) {
            (MetaMode::Add, _, Some(_)) | (MetaMode::Replace, None, None) => Ending::NotStored,
            (MetaMode::Add, _, None) | (_, None, _) => Ending::Done,
            (_, Some(_), None) => Ending::NotFound,
            (_, Some(cas), Some(item)) if cas == 0 || cas != self.visible(item.cas) => Ending::Exists,
            (_, Some(_), Some(_)) => Ending::Done,
        };
        (ending == Ending::Done, ending)
    }

    /// Executes an `ms` with `I` and `C`. It stores even if its CAS value is older than that of the
    /// item. Then the item is stale, keeps its expiry, and the client that must renew it stays the
    /// same.
    fn invalidating_step<'b>(&self, request: &Request<'_, 'b>, present: Present<'_>) -> (Change<'b>, Ending)
    where
        Self: 'b,
    {
        let new = self.new_item(request, present.now);
        match (self.permits(request, present), present.item, request.flags.compare) {
            ((true, ending), _, _) => (Change::Put(new), ending),
            ((false, Ending::Exists), Some(item), Some(cas)) if cas < self.visible(item.cas) => {
                let marks = new.marks | Marks::STALE;
                (Change::Put(New { expiry: item.expiry, marks, inherits: Marks::WON, ..new }), Ending::Done)
            }
            ((false, ending), _, _) => (Change::Keep, ending),
        }
    }

    /// Executes an `ms` in mode append or prepend.
    fn join_step<'b>(&self, request: &Request<'_, 'b>, present: Present<'_>) -> (Change<'b>, Ending)
    where
        Self: 'b,
    {
        let Request { meta, flags, key } = request;
        let Some(item) = present.item else {
            let Some(exptime) = flags.vivify else { return (Change::Keep, Ending::NotStored) };
            let expiry = Expiry::from_protocol(exptime, present.now);
            return (Change::Put(New { expiry, ..self.new_item(request, present.now) }), Ending::Done);
        };
        if flags.compare.is_some_and(|cas| cas != self.visible(item.cas)) {
            return (Change::Keep, Ending::Exists);
        }
        if self.is_too_large(key, item.value.len() + meta.value.len()) {
            return (Change::Keep, Ending::NotStored);
        }
        let value =
            if flags.mode == MetaMode::Append { Value::Appended(meta.value) } else { Value::Prepended(meta.value) };
        (Change::Put(New { cas: request.cas(), ..item.joined(value) }), Ending::Done)
    }

    fn meta_delete(&self, session: &Session, request: &Request<'_, '_>, out: &mut Vec<u8>) {
        if self.is_observed {
            self.observe_lookup(session, request.key);
        }
        let mut size = None;
        let decide = |present: Present<'_>| {
            let Some(item) = present.item else { return (Change::Keep, Ending::NotFound) };
            if request.flags.compare.is_some_and(|cas| cas != self.visible(item.cas)) {
                return (Change::Keep, Ending::Exists);
            }
            size = Some(item.value.len());
            (delete_step(request, &item), Ending::Done)
        };
        let Ok(ending) = self.shared.cache.update(request.key, decide, |_| ()) else {
            self.counters.store_no_memory.bump();
            self.shared.cache.delete(request.key);
            return out.extend_from_slice(reply::OUT_OF_MEMORY);
        };
        self.count_delete(ending != Ending::NotFound);
        if self.is_observed {
            self.observe_delete(request.key, "md", size);
        }
        match ending {
            Ending::Done if request.flags.is_quiet() => (),
            Ending::Done => request.fail(b"HD", out),
            Ending::NotFound => request.fail(b"NF", out),
            _ => request.fail(b"EX", out),
        }
    }

    fn meta_arithmetic(&self, session: &Session, request: &Request<'_, '_>, out: &mut Vec<u8>) {
        let flags = &request.flags;
        if self.is_observed {
            self.observe_lookup(session, request.key);
        }
        let direction = if flags.mode == MetaMode::Increment { Direction::Up } else { Direction::Down };
        let (mut number, mut ttl_before, mut is_created) = (0, None, false);
        let decide = |present: Present<'_>| {
            let expiry = |exptime| Expiry::from_protocol(exptime, present.now);
            let Some(item) = present.item else {
                let Some(exptime) = flags.vivify else { return (Change::Keep, Ending::NotFound) };
                (number, is_created) = (flags.initial, true);
                let new = New {
                    expiry: expiry(exptime),
                    cas: request.cas(),
                    marks: request.marks(),
                    ..New::plain(0, Value::Number(number))
                };
                return (Change::Put(new), Ending::Done);
            };
            if flags.compare.is_some_and(|cas| cas != 0 && cas != self.visible(item.cas)) {
                return (Change::Keep, Ending::Exists);
            }
            let Some(present) = parse(item.value) else { return (Change::Keep, Ending::NotANumber) };
            (number, ttl_before, is_created) = (apply(direction, present, flags.delta), item.ttl(), false);
            let new = New { cas: request.cas(), ..item.counted(number) };
            (Change::Put(New { expiry: flags.exptime.map_or(new.expiry, expiry), ..new }), Ending::Done)
        };
        let mut after = None;
        let show = |hit: Hit<'_>| after = Some((hit.ttl(), self.visible(hit.cas), hit.marks));
        let outcome = self.shared.cache.update(request.key, decide, show);
        let counted = match outcome {
            Ok(Ending::Done) if is_created => Err(CountError::NotFound),
            Ok(Ending::NotFound) => Err(CountError::NotFound),
            Ok(Ending::Done) => Ok(()),
            Ok(_) => Err(CountError::NotANumber),
            Err(full) => Err(full.into()),
        };
        self.count_arithmetic(direction, counted);
        if self.is_observed && is_created && outcome == Ok(Ending::Done) {
            self.observe_initial(session, request.key, number, flags.vivify.unwrap_or(0).into());
        }
        match outcome {
            Err(_) => out.extend_from_slice(reply::OUT_OF_MEMORY),
            Ok(Ending::NotANumber) => out.extend_from_slice(reply::NON_NUMERIC),
            Ok(Ending::NotFound) => request.fail(b"NF", out),
            Ok(Ending::Done) => {
                if !flags.is_quiet()
                    && let Some((ttl, cas, marks)) = after
                {
                    let ttl_before = if is_created { ttl } else { ttl_before };
                    append_counted(request, number, [ttl_before, ttl], cas, marks, out);
                }
            }
            Ok(_) => request.fail(b"EX", out),
        }
    }

    pub(super) fn meta_debug(&self, session: &Session, key: &[u8], out: &mut Vec<u8>) {
        self.counters.cmd_meta.bump();
        if self.is_observed {
            self.observe_lookup(session, key);
        }
        let lookup = self.shared.cache.peek(key, |hit| {
            out.extend_from_slice(b"ME ");
            if hit.marks.has(Marks::ENCODED_KEY) {
                encode_key(out, key)
            } else {
                out.extend_from_slice(key)
            }
            let ttl = hit.ttl().map_or(-1, i64::from);
            let fetched = if hit.marks.has(Marks::FETCHED) { "yes" } else { "no" };
            let (idle, cas, size) = (hit.idle, self.visible(hit.cas), hit.size);
            write!(out, " exp={ttl} la={idle} cas={cas} fetch={fetched} cls={CLASS} size={size}\r\n")
                .expect("writing to a Vec does not fail");
        });
        if lookup != Lookup::Hit {
            out.extend_from_slice(b"EN\r\n");
        }
    }
}

/// The change that a permitted `md` makes to the item.
fn delete_step<'a>(request: &Request<'_, '_>, item: &Hit<'_>) -> Change<'a> {
    let flags = &request.flags;
    let (invalidates, empties) = (flags.marks_stale(), flags.removes_value_only());
    if !invalidates && !empties {
        return Change::Remove;
    }
    let new = if empties {
        item.successor(Value::Whole(b""), Marks::ENCODED_KEY)
    } else {
        item.successor(Value::Kept, Marks::ENCODED_KEY | Marks::FETCHED)
    };
    let kept = if empties { Expiry::NEVER } else { item.expiry };
    Change::Put(New {
        flags: if empties { flags.client_flags.unwrap_or(0) } else { item.flags },
        expiry: flags.exptime.map_or(kept, |exptime| Expiry::from_protocol(exptime, item.now)),
        // Clients that compare CAS values must notice an invalidation. An item that is only emptied
        // keeps its CAS value, as in memcached.
        cas: request.cas().or((!invalidates).then_some(item.cas)),
        marks: if invalidates { Marks::STALE } else { Marks::NONE },
        ..new
    })
}

/// Appends the reply to an `ms` that stored an item with this CAS value and length.
fn append_stored(request: &Request<'_, '_>, (cas, length): (u64, usize), out: &mut Vec<u8>) {
    out.extend_from_slice(b"HD");
    for word in request.meta.words() {
        match word[0] {
            b'O' => append_word(out, word),
            b'c' => append_number(out, b'c', cas),
            b'k' => append_key(out, request.key, request.flags.has_base64_key()),
            b's' => append_number(out, b's', length as u64),
            _ => (),
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the reply to an `ma` that stored `number`. `ttls` are the times to live before and
/// after.
fn append_counted(
    request: &Request<'_, '_>,
    number: u64,
    ttls: [Option<u32>; 2],
    cas: u64,
    marks: Marks,
    out: &mut Vec<u8>,
) {
    let mut text = itoa::Buffer::new();
    let text = text.format(number).as_bytes();
    let returns_value = request.flags.returns_value();
    if returns_value {
        out.extend_from_slice(b"VA");
        append_number(out, b' ', text.len() as u64);
    } else {
        out.extend_from_slice(b"HD");
    }
    let mut ttl = ttls[0];
    for word in request.meta.words() {
        match word[0] {
            b'O' => append_word(out, word),
            b'T' => ttl = ttls[1],
            b'c' => append_number(out, b'c', cas),
            b'k' => append_key(out, request.key, marks.has(Marks::ENCODED_KEY)),
            b't' => append_ttl(out, ttl),
            _ => (),
        }
    }
    out.extend_from_slice(b"\r\n");
    if returns_value {
        out.extend_from_slice(text);
        out.extend_from_slice(b"\r\n");
    }
}

fn append_word(out: &mut Vec<u8>, word: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(word);
}

/// Appends a space, the letter (unless that is a space, too) and the number.
fn append_number(out: &mut Vec<u8>, letter: u8, number: u64) {
    out.push(b' ');
    if letter != b' ' {
        out.push(letter);
    }
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn append_ttl(out: &mut Vec<u8>, ttl: Option<u32>) {
    match ttl {
        Some(ttl) => append_number(out, b't', ttl.into()),
        None => out.extend_from_slice(b" t-1"),
    }
}

fn append_key(out: &mut Vec<u8>, key: &[u8], is_encoded: bool) {
    out.extend_from_slice(b" k");
    if is_encoded {
        encode_key(out, key);
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(key);
    }
}
