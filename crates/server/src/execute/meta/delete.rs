//! `md`. It can also mark the item stale, or remove only its value.

use super::{Ending, Request};
use crate::execute::{Executor, Session};
use relativist_memcache::reply;
use relativist_store::{Change, Expiry, Hit, Marks, New, Present, Value};

impl Executor<'_> {
    pub(super) fn meta_delete(&self, session: &Session, request: &Request<'_, '_>, out: &mut Vec<u8>) {
        let empties = request.flags.removes_value_only();
        let keeps = empties || request.flags.marks_stale();
        self.record_lookup(session, request.key);
        let mut size = None;
        let decide = |present: Present<'_>| {
            let Some(item) = present.item else { return (Change::Keep, Ending::NotFound) };
            if request.flags.compare.is_some_and(|cas| cas != self.visible(item.cas())) {
                return (Change::Keep, Ending::Exists);
            }
            size = (!keeps).then_some(item.value.len());
            (delete_step(request, &item), Ending::Done)
        };
        let Ok(ending) = self.tenant.cache.update(request.key, decide, |_| ()) else {
            self.counters.store_no_memory.bump();
            self.tenant.cache.delete(request.key);
            return out.extend_from_slice(reply::OUT_OF_MEMORY);
        };
        // As in memcached, another CAS value is a miss, and an item that stays is neither.
        let is_done = ending == Ending::Done;
        self.record_delete(request.key, "md", (!is_done || !keeps).then_some(is_done), size);
        if is_done && empties {
            self.counters.total_items.bump();
        }
        match ending {
            Ending::Done if request.flags.is_quiet() => (),
            Ending::Done => request.append_status(b"HD", out),
            Ending::NotFound => request.append_status(b"NF", out),
            _ => request.append_status(b"EX", out),
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
        cas: request.cas().or((!invalidates).then_some(item.cas())),
        marks: if invalidates { Marks::STALE } else { Marks::NONE },
        ..new
    })
}
