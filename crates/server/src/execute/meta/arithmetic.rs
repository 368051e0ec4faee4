//! `ma`. It can also create the item, and set its expiry.

use super::{Ending, Request, append_key, append_number, append_ttl, append_word, ttl_of};
use crate::execute::{Executor, Session};
use relativist_memcache::{MetaMode, reply};
use relativist_store::{Change, CountError, Direction, Expiry, Hit, New, Present, Value, apply, parse};

impl Executor<'_> {
    pub(super) fn meta_arithmetic(&self, session: &Session, request: &Request<'_, '_>, out: &mut Vec<u8>) {
        let flags = &request.flags;
        self.record_lookup(session, request.key);
        let direction = if flags.mode == MetaMode::Increment { Direction::Up } else { Direction::Down };
        let (mut number, mut ttl, mut is_created) = (0, None, false);
        let decide = |present: Present<'_>| {
            let Some(item) = present.item else {
                if flags.vivify.is_none() {
                    return (Change::Keep, Ending::NotFound);
                }
                (number, ttl, is_created) = (flags.initial, None, true);
                let new = New {
                    expiry: request.created_expiry(present.now),
                    cas: request.cas(),
                    marks: request.marks(),
                    ..New::plain(0, Value::Number(number))
                };
                return (Change::Put(new), Ending::Done);
            };
            // memcached compares the CAS value first, but finds an empty value before.
            let is_other = |cas| cas != 0 && cas != self.visible(item.cas()) && !item.value.is_empty();
            if flags.compare.is_some_and(is_other) {
                return (Change::Keep, Ending::Exists);
            }
            let Some(old) = parse(item.value) else { return (Change::Keep, Ending::NotANumber) };
            (number, ttl, is_created) = (apply(direction, old, flags.delta), item.ttl(), false);
            let new = New { cas: request.cas(), ..item.counted(number) };
            let expiry = |exptime| Expiry::from_protocol(exptime, present.now);
            (Change::Put(New { expiry: flags.exptime.map_or(new.expiry, expiry), ..new }), Ending::Done)
        };
        let mut after = None;
        let show = |hit: Hit<'_>| after = Some((hit.now, self.visible(hit.cas())));
        let outcome = self.tenant.cache.update(request.key, decide, show);
        let counted = match outcome {
            Ok(Ending::Done) => Ok(is_created),
            Ok(Ending::NotFound) => Err(CountError::NotFound),
            Ok(_) => Err(CountError::NotANumber),
            Err(full) => Err(full.into()),
        };
        self.record_arithmetic(request.key, direction, counted);
        if self.is_observed && is_created && outcome == Ok(Ending::Done) {
            self.observe_initial(session, request.key, number, flags.vivify.unwrap_or(0).into());
        }
        match outcome {
            Err(_) => out.extend_from_slice(reply::OUT_OF_MEMORY),
            Ok(Ending::NotANumber) => out.extend_from_slice(reply::NON_NUMERIC),
            Ok(Ending::NotFound) => request.append_status(b"NF", out),
            Ok(Ending::Done) => {
                if !flags.is_quiet()
                    && let Some((now, cas)) = after
                {
                    append_counted(request, &Counted { number, ttl, is_created, now, cas }, out);
                }
            }
            Ok(_) => request.append_status(b"EX", out),
        }
    }
}

/// What an `ma` has stored.
struct Counted {
    number: u64,
    /// The time to live before the flags set it.
    ttl: Option<u32>,
    is_created: bool,
    now: u32,
    cas: u64,
}

/// Appends the reply to an `ma` that stored a number.
fn append_counted(request: &Request<'_, '_>, counted: &Counted, out: &mut Vec<u8>) {
    let mut text = itoa::Buffer::new();
    let text = text.format(counted.number).as_bytes();
    let flags = &request.flags;
    let returns_value = flags.returns_value();
    if returns_value {
        out.extend_from_slice(b"VA");
        append_number(out, b' ', text.len() as u64);
    } else {
        out.extend_from_slice(b"HD");
    }
    let mut ttl = counted.ttl;
    for word in request.meta.words() {
        match word[0] {
            b'O' => append_word(out, word),
            b'N' if counted.is_created => ttl = flags.vivify.and_then(|exptime| ttl_of(exptime, counted.now)),
            b'T' => ttl = flags.exptime.and_then(|exptime| ttl_of(exptime, counted.now)),
            b'c' => append_number(out, b'c', counted.cas),
            b'k' => append_key(out, request.key, flags.has_base64_key()),
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
