//! Events of items, for watchers and for the counts by prefix. A command pays for this only while
//! there are watchers or prefixes are counted.

use super::watch::Topic;
use super::{CLASS, Executor, Session};
use relativist_memcache::encode_percent;
use relativist_store::{Lookup, Store};

/// The fields in the log line of a store, besides key and outcome.
pub(super) struct Stored {
    pub(super) command: &'static str,
    pub(super) ttl: i64,
    pub(super) size: usize,
}

impl Executor<'_> {
    #[cold]
    pub(super) fn observe_get(&self, session: &Session, key: &[u8], lookup: Lookup, size: usize) {
        let is_hit = lookup == Lookup::Hit;
        self.tenant.prefixes.count(key, |counts| {
            counts.gets += 1;
            counts.hits += u64::from(is_hit);
        });
        self.publish_get(session, key, lookup, size);
    }

    /// Logs the lookup that precedes every change of an item, as memcached does.
    #[cold]
    pub(super) fn observe_lookup(&self, session: &Session, key: &[u8]) {
        let watch = &self.tenant.watch;
        if !watch.has_room(Topic::Fetchers) {
            return watch.miss(Topic::Fetchers);
        }
        let mut size = 0;
        let lookup = self.tenant.cache.peek(key, |hit| size = hit.value.len());
        self.publish_get(session, key, lookup, size);
    }

    /// The size of an item, for a line about its deletion. 0 if nobody has room for that line.
    #[cold]
    pub(super) fn size_for_line(&self, key: &[u8]) -> usize {
        let mut size = 0;
        if self.tenant.watch.has_room(Topic::Deletions) {
            self.tenant.cache.peek(key, |hit| size = hit.value.len());
        }
        size
    }

    fn publish_get(&self, session: &Session, key: &[u8], lookup: Lookup, size: usize) {
        let status = match lookup {
            Lookup::Hit => "found",
            Lookup::Miss => "not_found",
            Lookup::Expired => "expired",
            Lookup::Flushed => "flushed",
        };
        let class = if lookup == Lookup::Hit { CLASS } else { 0 };
        self.publish(
            Topic::Fetchers,
            format_args!(
                "type=item_get key={} status={status} clsid={class} cfd={} size={size}",
                encode_percent(key),
                session.id
            ),
        );
    }

    #[cold]
    pub(super) fn observe_store(&self, session: &Session, key: &[u8], store: Store, stored: Stored) {
        self.tenant.prefixes.count(key, |counts| counts.sets += 1);
        let status = match store {
            Store::Stored => "stored",
            Store::NotStored => "not_stored",
            Store::Exists => "exists",
            Store::NotFound => "not_found",
            Store::OutOfMemory => "no_memory",
        };
        self.publish_store(session, key, status, stored);
    }

    /// Logs that arithmetic created an item with `number`. memcached reports an `add`.
    #[cold]
    pub(super) fn observe_initial(&self, session: &Session, key: &[u8], number: u64, ttl: i64) {
        let size = itoa::Buffer::new().format(number).len();
        self.observe_store(session, key, Store::Stored, Stored { command: "add", ttl, size });
    }

    /// Logs a store that was rejected as too large. Reports size 0, as memcached does.
    #[cold]
    pub(super) fn observe_too_large(&self, session: &Session, key: &[u8], command: &'static str, ttl: i64) {
        self.publish_store(session, key, "too_large", Stored { command, ttl, size: 0 });
    }

    fn publish_store(&self, session: &Session, key: &[u8], status: &str, stored: Stored) {
        let Stored { command, ttl, size } = stored;
        self.publish(
            Topic::Mutations,
            format_args!(
                "type=item_store key={} status={status} cmd={command} ttl={ttl} clsid={CLASS} cfd={} size={size}",
                encode_percent(key),
                session.id
            ),
        );
    }

    /// Logs a deletion. `size` is the size of the deleted item; none if there was no item.
    #[cold]
    pub(super) fn observe_delete(&self, key: &[u8], command: &str, size: Option<usize>) {
        self.tenant.prefixes.count(key, |counts| counts.deletes += 1);
        if let Some(size) = size {
            self.publish(
                Topic::Deletions,
                format_args!("type=deleted key={} cmd={command} clsid={CLASS} size={size}", encode_percent(key)),
            );
        }
    }

    fn publish(&self, topic: Topic, line: std::fmt::Arguments<'_>) {
        self.tenant.watch.publish(topic, line);
    }
}
