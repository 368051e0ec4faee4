//! Records what the commands of all protocols did: in the counters, in a sample of the keys used
//! and, while there are watchers or prefixes are counted, as [events of items](super::observe).

use super::observe::Stored;
use super::{Executor, Session};
use crate::observability::counter::Counter;
use crate::observability::hot_keys::Kind;
use relativist_store::{CountError, Direction, Lookup, Store};

impl Executor<'_> {
    #[inline]
    pub(super) fn record_get(&self, session: &Session, key: &[u8], lookup: Lookup, size: usize) {
        self.counters.cmd_get.bump();
        self.count_lookup(lookup, &self.counters.get_hits, &self.counters.get_misses);
        self.sample_key(Kind::Read, key, size);
        if self.is_observed {
            self.observe_get(session, key, lookup, size);
        }
    }

    /// Records a fetch that sets the expiry.
    #[inline]
    pub(super) fn record_touch(&self, session: &Session, key: &[u8], lookup: Lookup, size: usize) {
        self.counters.cmd_touch.bump();
        self.count_lookup(lookup, &self.counters.touch_hits, &self.counters.touch_misses);
        self.sample_key(Kind::Read, key, size);
        if self.is_observed {
            self.observe_get(session, key, lookup, size);
        }
    }

    /// Records a fetch that has created the item, which counts as a hit. `lookup` says why there
    /// was none.
    pub(super) fn record_vivified(&self, session: &Session, key: &[u8], lookup: Lookup, sets_expiry: bool) {
        let (fetches, hits) = if sets_expiry {
            (&self.counters.cmd_touch, &self.counters.touch_hits)
        } else {
            (&self.counters.cmd_get, &self.counters.get_hits)
        };
        fetches.bump();
        hits.bump();
        self.counters.total_items.bump();
        self.count_absent(lookup);
        self.sample_key(Kind::Read, key, 0);
        if self.is_observed {
            self.observe_get(session, key, lookup, 0);
        }
    }

    /// Records a touch that fetches nothing.
    pub(super) fn record_touch_only(&self, key: &[u8], is_hit: bool) {
        self.counters.cmd_touch.bump();
        if is_hit {
            self.counters.touch_hits.bump();
        } else {
            self.counters.touch_misses.bump();
        }
        self.sample_key(Kind::Read, key, 0);
    }

    /// Counts the key among the most used ones. `bytes` were sent or received for it.
    #[inline]
    fn sample_key(&self, kind: Kind, key: &[u8], bytes: usize) {
        self.counters.hot_keys.record(kind, key, bytes, || self.now());
    }

    fn count_lookup(&self, lookup: Lookup, hits: &Counter, misses: &Counter) {
        if lookup == Lookup::Hit {
            return hits.bump();
        }
        misses.bump();
        self.count_absent(lookup);
    }

    fn count_absent(&self, lookup: Lookup) {
        match lookup {
            Lookup::Hit | Lookup::Miss => (),
            Lookup::Expired => self.counters.get_expired.bump(),
            Lookup::Flushed => self.counters.get_flushed.bump(),
        }
    }

    /// Records a lookup that is not counted: that before every change of an item, and that of `me`.
    #[inline]
    pub(super) fn record_lookup(&self, session: &Session, key: &[u8]) {
        if self.is_observed {
            self.observe_lookup(session, key);
        }
    }

    /// Records the outcome of a store. `compares`: whether the store compared CAS values.
    #[inline]
    pub(super) fn record_store(&self, session: &Session, key: &[u8], store: Store, stored: Stored, compares: bool) {
        self.sample_key(Kind::Write, key, stored.size);
        match store {
            Store::Stored => self.counters.total_items.bump(),
            Store::OutOfMemory => self.counters.store_no_memory.bump(),
            _ => (),
        }
        if compares {
            match store {
                Store::Stored => self.counters.cas_hits.bump(),
                Store::Exists => self.counters.cas_badval.bump(),
                Store::NotFound => self.counters.cas_misses.bump(),
                _ => (),
            }
        }
        if self.is_observed {
            self.observe_store(session, key, store, stored);
        }
    }

    /// Refuses a store that is too large. Removes the item that it would have replaced, if it
    /// `replaces` one.
    #[cold]
    pub(super) fn refuse_too_large(
        &self,
        session: &Session,
        key: &[u8],
        (command, ttl): (&'static str, i64),
        replaces: bool,
    ) {
        self.counters.store_too_large.bump();
        if self.is_observed {
            self.observe_too_large(session, key, command, ttl);
        }
        if replaces {
            self.tenant.cache.delete(key);
        }
    }

    /// Records an increment or decrement. `Ok(true)` means that it created the item: then it is
    /// neither a hit nor a miss.
    pub(super) fn record_arithmetic(&self, key: &[u8], direction: Direction, outcome: Result<bool, CountError>) {
        self.sample_key(Kind::Write, key, 0);
        let (hits, misses) = match direction {
            Direction::Up => (&self.counters.incr_hits, &self.counters.incr_misses),
            Direction::Down => (&self.counters.decr_hits, &self.counters.decr_misses),
        };
        match outcome {
            Ok(false) => hits.bump(),
            Ok(true) => self.counters.total_items.bump(),
            Err(CountError::NotFound) => misses.bump(),
            Err(CountError::NotANumber) => (),
            Err(CountError::OutOfMemory) => self.counters.store_no_memory.bump(),
        }
    }

    /// Records a deletion. `is_hit` says how it counts, if it does; `size` is that of the deleted
    /// item, if any.
    #[inline]
    pub(super) fn record_delete(&self, key: &[u8], command: &str, is_hit: Option<bool>, size: Option<usize>) {
        self.sample_key(Kind::Write, key, 0);
        match is_hit {
            Some(true) => self.counters.delete_hits.bump(),
            Some(false) => self.counters.delete_misses.bump(),
            None => (),
        }
        if self.is_observed {
            self.observe_delete(key, command, size);
        }
    }
}
