//! `ms`, which stores in the modes set, add, replace, append and prepend.

use super::{Ending, Request, append_key, append_number, append_word};
use crate::execute::observe::Stored;
use crate::execute::{Executor, Session};
use relativist_memcache::{MetaMode, reply};
use relativist_store::{Change, Expiry, Hit, Marks, New, Present, Store, Value};

impl Executor<'_> {
    pub(super) fn meta_set(&self, session: &Session, request: &Request<'_, '_>, out: &mut Vec<u8>) {
        let Request { meta, flags, key } = request;
        let ttl = flags.exptime.unwrap_or(0).into();
        let mut stored = None;
        let show = |hit: Hit<'_>| stored = Some((self.visible(hit.cas()), hit.value.len()));
        if self.is_too_large(key, meta.value.len()) {
            self.refuse_too_large(session, key, ("ms", ttl), true);
            return out.extend_from_slice(reply::TOO_LARGE);
        }
        self.counters.cmd_set.bump();
        self.record_lookup(session, key);
        let ending = match flags.mode {
            MetaMode::Append | MetaMode::Prepend => {
                self.tenant.cache.update(key, |present| self.join_step(request, present), show)
            }
            _ if flags.stores_stale() => {
                self.tenant.cache.update(key, |present| self.invalidating_step(request, present), show)
            }
            _ => {
                let new = self.new_item(request, self.tenant.cache.now());
                self.tenant.cache.put(key, &new, |present| self.permits(request, present), show)
            }
        };
        let store = match ending {
            Ok(Ending::Done) => Store::Stored,
            Ok(Ending::Exists) => Store::Exists,
            Ok(Ending::NotFound) => Store::NotFound,
            Ok(Ending::NotStored | Ending::NotANumber) => Store::NotStored,
            Err(_) => {
                self.tenant.cache.delete(key);
                Store::OutOfMemory
            }
        };
        let compares = flags.compare.is_some() && matches!(flags.mode, MetaMode::Set | MetaMode::Replace);
        self.record_store(session, key, store, Stored { command: "ms", ttl, size: meta.value.len() }, compares);
        match store {
            Store::OutOfMemory => out.extend_from_slice(reply::OUT_OF_MEMORY),
            Store::Stored if flags.is_quiet() => (),
            Store::Stored => append_stored(request, stored.unwrap_or_default(), out),
            Store::Exists => request.append_status(b"EX", out),
            Store::NotFound => request.append_status(b"NF", out),
            Store::NotStored => request.append_status(b"NS", out),
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
            (_, Some(cas), Some(item)) if cas == 0 || cas != self.visible(item.cas()) => Ending::Exists,
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
            ((false, Ending::Exists), Some(item), Some(cas)) if self.is_older(cas, &item) => {
                let marks = new.marks | Marks::STALE;
                (Change::Put(New { expiry: item.expiry, marks, inherits: Marks::WON, ..new }), Ending::Done)
            }
            ((false, ending), _, _) => (Change::Keep, ending),
        }
    }

    /// Whether a CAS value that is not the item's is older. 0 is no CAS value. Those that the cache
    /// has given to a key do not rise. But once the item has one of them, all others were given
    /// to earlier items, or not to this key.
    fn is_older(&self, cas: u64, item: &Hit<'_>) -> bool {
        let is_from_client = item.marks.has(Marks::CLIENT_CAS);
        let newest = if is_from_client { item.cas() } else { self.tenant.cache.last_cas() };
        cas != 0 && !self.shared.options.disable_cas && cas <= newest
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
        // Unlike a store in mode set, this does not compare with 0.
        if flags.compare.is_some_and(|cas| cas != 0 && cas != self.visible(item.cas())) {
            return (Change::Keep, Ending::Exists);
        }
        if self.is_too_large(key, item.value.len() + meta.value.len()) {
            return (Change::Keep, Ending::NotStored);
        }
        let value =
            if flags.mode == MetaMode::Append { Value::Appended(meta.value) } else { Value::Prepended(meta.value) };
        (Change::Put(New { cas: request.cas(), ..item.joined(value) }), Ending::Done)
    }
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
