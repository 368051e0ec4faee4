//! `mg`. It can also set the expiry of the item, create it, and ask the client to renew it.
//!
//! The reply has three flags even if the request lacks them: `Z` (another client was asked to renew
//! the item), `X` (the item is stale) and `W` (this client must renew the item: it has won).
//!
//! The first client wins, which is decided under the lock of the key. The command takes this lock
//! only if the client may win, or to change the expiry. Otherwise it is a lookup without a lock.

use super::{Request, append_key, append_number, append_ttl, append_word, shows_encoded, ttl_of};
use crate::execute::{Executor, Replies, Session};
use relativist_memcache::reply;
use relativist_store::{Change, Expiry, Hit, Lookup, Marks, New, Present, Value};
use std::cell::Cell;

/// The item that the first lookup found, without a lock.
struct Seen {
    number: u64,
    idle: u32,
    marks: Marks,
}

/// The state of an item before an `mg`, as the reply reports it.
#[derive(Clone, Copy)]
struct Before {
    /// The CAS value, if the request compares it.
    cas: Option<u64>,
    ttl: Option<u32>,
    idle: u32,
    marks: Marks,
    /// Whether this client is to renew the item.
    wins: bool,
    /// Whether the command created the item.
    is_created: bool,
}

impl Before {
    fn of(item: &Hit<'_>, request: &Request<'_, '_>, wins: bool) -> Before {
        let cas = request.flags.compare.map(|_| item.cas());
        Before { cas, ttl: item.ttl(), idle: item.idle, marks: item.marks, wins, is_created: false }
    }

    /// The state of an item that the command created, before its flags set the expiry. This client
    /// must fill it.
    fn created(item: &Hit<'_>, request: &Request<'_, '_>) -> Before {
        let marks = item.marks & Marks::ENCODED_KEY;
        Before { ttl: None, marks, is_created: true, ..Before::of(item, request, true) }
    }
}

impl Request<'_, '_> {
    /// Whether this client is to renew `hit`. An `R` that follows `T` compares with the new expiry.
    fn wins(&self, hit: &Hit<'_>) -> bool {
        if hit.marks.has(Marks::WON) {
            return false;
        }
        let mut ttl = hit.ttl();
        let mut ends_soon = false;
        for word in self.meta.words() {
            match (word[0], self.flags.recache) {
                (b'T', _) => ttl = self.flags.exptime.and_then(|exptime| ttl_of(exptime, hit.now)),
                (b'R', Some(limit)) => ends_soon |= ttl.is_some_and(|ttl| i64::from(ttl) < limit.into()),
                _ => (),
            }
        }
        ends_soon || hit.marks.has(Marks::STALE)
    }
}

impl Executor<'_> {
    pub(super) fn meta_get(&self, session: &Session, request: &Request<'_, '_>, out: &mut Replies) {
        let (mut size, mut lookup, mut seen, mut is_created) = (0, None, None, false);
        // Why the first lookup found no item, if it found none. It unlinks an expired one.
        let mut absent = Lookup::Hit;
        if request.flags.exptime.is_none() {
            let visit = |hit: Hit<'_>| {
                if request.wins(&hit) {
                    seen = Some(Seen { number: hit.number(), idle: hit.idle, marks: hit.marks });
                } else {
                    size = hit.value.len();
                    lookup = Some(Lookup::Hit);
                    self.append_found(request, Before::of(&hit, request, false), &hit, out);
                }
            };
            let cache = &self.tenant.cache;
            let found =
                if request.flags.is_peek() { cache.peek(request.key, visit) } else { cache.get(request.key, visit) };
            absent = found;
            if found != Lookup::Hit && request.flags.vivify.is_none() {
                lookup = Some(found);
            }
        }
        let lookup = lookup.unwrap_or_else(|| {
            let lookup;
            (lookup, is_created) = self.get_and_change(request, seen, &mut size, out);
            lookup
        });
        if lookup != Lookup::Hit && request.flags.vivify.is_none() && !request.flags.is_quiet() {
            request.append_status(b"EN", &mut out.bytes);
        }
        let sets_expiry = request.flags.exptime.is_some();
        if is_created {
            let absent = if absent == Lookup::Hit { lookup } else { absent };
            self.record_vivified(session, request.key, absent, sets_expiry);
        } else if sets_expiry && lookup == Lookup::Hit {
            self.record_touch(session, request.key, lookup, size);
        } else {
            // memcached counts a miss as that of a fetch, even if a hit would have set the expiry.
            self.record_get(session, request.key, lookup, size);
        }
    }

    /// Executes an `mg` that sets the expiry, creates the item, or claims to renew it. The reply
    /// describes the item found under the lock, even if the first lookup found another one. Returns
    /// the outcome of the lookup, and whether the command created the item.
    fn get_and_change(
        &self,
        request: &Request<'_, '_>,
        seen: Option<Seen>,
        size: &mut usize,
        out: &mut Replies,
    ) -> (Lookup, bool) {
        let flags = &request.flags;
        // `h`, `l`, and a `t` that precedes `T`, report the item as it was before.
        let before: Cell<Option<Before>> = Cell::new(None);
        let decide = |present: Present<'_>| {
            let change = match (present.item, flags.vivify) {
                (Some(hit), _) => {
                    let wins = request.wins(&hit);
                    before.set(Some(Before::of(&hit, request, wins)));
                    let is_access = !flags.is_peek();
                    let add = if wins { Marks::WON } else { Marks::NONE };
                    let add = if is_access { add | Marks::FETCHED } else { add };
                    let expiry = flags.exptime.map(|exptime| Expiry::from_protocol(exptime, present.now));
                    Change::Mark { expiry, add, is_access }
                }
                (None, Some(_)) => {
                    let fetched = if flags.is_peek() { Marks::NONE } else { Marks::FETCHED };
                    Change::Put(New {
                        expiry: request.created_expiry(present.now),
                        cas: request.cas(),
                        marks: request.marks() | Marks::WON | fetched,
                        ..New::plain(0, Value::Whole(b""))
                    })
                }
                (None, None) => Change::Mark { expiry: None, add: Marks::NONE, is_access: !flags.is_peek() },
            };
            (change, present.lookup)
        };
        let lookup = self.tenant.cache.update(request.key, decide, |hit| {
            *size = hit.value.len();
            let Some(old) = before.get() else {
                return self.append_found(request, Before::created(&hit, request), &hit, out);
            };
            // If the first lookup found the same item, it was itself an access: report what it saw.
            let seen = seen.as_ref().filter(|seen| seen.number == hit.number());
            let (idle, fetched) = seen.map_or((hit.idle, hit.marks), |seen| (seen.idle, seen.marks));
            let decided = Marks::STALE | Marks::WON | Marks::ENCODED_KEY;
            let marks = old.marks & decided | fetched & Marks::FETCHED;
            self.append_found(request, Before { idle, marks, ..old }, &hit, out);
        });
        match lookup {
            Ok(lookup) => (lookup, lookup != Lookup::Hit && flags.vivify.is_some()),
            Err(_) => {
                self.counters.store_no_memory.bump();
                out.bytes.extend_from_slice(reply::OUT_OF_MEMORY);
                (Lookup::Miss, false)
            }
        }
    }

    /// Appends the reply to an `mg` that has found an item as `old` and left it as `new`.
    fn append_found(&self, request: &Request<'_, '_>, old: Before, new: &Hit<'_>, replies: &mut Replies) {
        let is_known = old.cas.is_some_and(|cas| request.flags.compare == Some(self.visible(cas)));
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
        let flags = &request.flags;
        for word in request.meta.words() {
            match word[0] {
                b'O' => append_word(out, word),
                b'N' if old.is_created => ttl = flags.vivify.and_then(|exptime| ttl_of(exptime, new.now)),
                b'T' => ttl = flags.exptime.and_then(|exptime| ttl_of(exptime, new.now)),
                b'c' => append_number(out, b'c', self.visible(new.cas())),
                b'f' => append_number(out, b'f', new.flags.into()),
                b'h' => append_number(out, b'h', old.marks.has(Marks::FETCHED).into()),
                b'k' => append_key(out, new.key, shows_encoded(new.key, new.marks)),
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
}
