//! `ma`. It can also create the item, and set its expiry.

use super::{Ending, Request, append_key, append_number, append_ttl, append_word};
use crate::execute::{Executor, Session};
use relativist_memcache::{MetaMode, reply};
use relativist_store::{Change, CountError, Direction, Expiry, Hit, Marks, New, Present, Value, apply, parse};

impl Executor<'_> {
    pub(super) fn meta_arithmetic(&self, session: &Session, request: &Request<'_, '_>, out: &mut Vec<u8>) {
        let flags = &request.flags;
        self.record_lookup(session, request.key);
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
            if flags.compare.is_some_and(|cas| cas != 0 && cas != self.visible(item.cas())) {
                return (Change::Keep, Ending::Exists);
            }
            let Some(present) = parse(item.value) else { return (Change::Keep, Ending::NotANumber) };
            (number, ttl_before, is_created) = (apply(direction, present, flags.delta), item.ttl(), false);
            let new = New { cas: request.cas(), ..item.counted(number) };
            (Change::Put(New { expiry: flags.exptime.map_or(new.expiry, expiry), ..new }), Ending::Done)
        };
        let mut after = None;
        let show = |hit: Hit<'_>| after = Some((hit.ttl(), self.visible(hit.cas()), hit.marks));
        let outcome = self.tenant.cache.update(request.key, decide, show);
        let counted = match outcome {
            Ok(Ending::Done) if is_created => Err(CountError::NotFound),
            Ok(Ending::NotFound) => Err(CountError::NotFound),
            Ok(Ending::Done) => Ok(()),
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
                    && let Some((ttl, cas, marks)) = after
                {
                    let ttl_before = if is_created { ttl } else { ttl_before };
                    append_counted(request, number, [ttl_before, ttl], cas, marks, out);
                }
            }
            Ok(_) => request.append_status(b"EX", out),
        }
    }
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
