//! The state that all threads share.

use super::session::{Session, SessionRegistry};
use super::tenant::{Tenant, Tenants};
use super::tuning::Tuning;
use super::watch::Topic;
use crate::limits::buffers::BufferLimit;
use crate::limits::connections::ConnectionLimit;
use crate::limits::long_turns::LongTurns;
use crate::observability::hot_keys;
use crate::observability::log::Log;
use crate::observability::stats::Totals;
use crate::options::{LiveOptions, Options};
use crate::process::gate::Gate;
use crate::security::auth::Users;
use crate::security::tls::Tls;
use crate::snapshot::record::SnapshotRecord;
use relativist_memcache::Limits;
use relativist_store::{Cache, Ticker, Usage};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What all threads of a server share.
pub struct SharedState {
    /// The items of the users without a tenant, which are all users if there are no tenants.
    pub common: Tenant,
    /// All other items.
    pub tenants: Tenants,
    /// The ticker that advances the clock of all caches.
    pub ticker: Ticker,
    /// Second in which the service was started.
    pub started: u32,
    /// The limit on connections.
    pub connection_limit: Arc<ConnectionLimit>,
    /// The limit on the buffers of all connections.
    pub buffer_limit: BufferLimit,
    /// The workers that are within long commands.
    pub long_turns: LongTurns,
    /// Messages to the operator.
    pub log: Log,
    /// The options of the start. A reload changes only those in `live`.
    pub options: Options,
    /// The options in force.
    pub live: LiveOptions,
    /// The TCP port in use, 0 for none.
    pub port: u16,
    /// Settings that clients can change.
    pub tuning: Tuning,
    /// The users that may log in; none if no login is required.
    pub users: Option<Users>,
    /// TLS settings; none if all connections are plain text.
    pub tls: Option<Tls>,
    /// All sessions.
    pub connections: SessionRegistry,
    /// Where threads wait while the items are handed over to another process.
    pub(crate) gate: Gate,
    /// The snapshots that were written.
    pub snapshots: SnapshotRecord,
}

impl SharedState {
    /// The memory in use by all caches together.
    pub fn usage(&self) -> Usage {
        self.tenants.usage(self.common.cache.usage())
    }

    /// The counters of all threads and tenants since the start.
    pub fn since_start(&self) -> Totals {
        let mut totals = self.common.counters.since_start();
        totals.add(&self.tenants.since_start());
        totals
    }

    /// The caches of the users without a tenant, and of `tenants`, with their names.
    pub(crate) fn caches<'t>(&'t self, tenants: &'t [Arc<Tenant>]) -> impl Iterator<Item = (&'t str, &'t Cache)> {
        let all = std::iter::once(&self.common).chain(tenants.iter().map(|tenant| &**tenant));
        all.map(|tenant| (&*tenant.name, &tenant.cache))
    }

    /// Passes each tenant to `visit`, that of the users without one first.
    pub(crate) fn each_tenant(&self, mut visit: impl FnMut(&Tenant)) {
        visit(&self.common);
        self.tenants.all().iter().for_each(|tenant| visit(tenant));
    }

    /// The number of open connections of a tenant. A client belongs to the users without a tenant
    /// until it has logged in.
    pub(crate) fn connections_of(&self, tenant: &Tenant) -> usize {
        // Relaxed: a count.
        let count = |tenant: &Tenant| tenant.connections.load(Ordering::Relaxed);
        if !tenant.name.is_empty() {
            return count(tenant);
        }
        self.connections.len().saturating_sub(self.tenants.all().iter().map(|tenant| count(tenant)).sum())
    }

    /// Logs storms on single keys that have begun.
    pub(crate) fn log_storms(&self) {
        self.each_tenant(|tenant| {
            tenant.counters.log_storms(&tenant.name, (self.started, self.ticker.clock().now()), &self.log);
        });
    }

    /// The most used keys of the last minute, of all tenants together. Those of a tenant have its
    /// name in front.
    pub(crate) fn hot_keys(&self, kind: hot_keys::Kind) -> Option<hot_keys::Report> {
        let now = self.ticker.clock().now();
        let mut all = self.common.counters.hot_keys(kind, self.started, now)?;
        for tenant in self.tenants.all().iter() {
            let report = tenant.counters.hot_keys(kind, self.started, now);
            report.into_iter().for_each(|report| all.join(&tenant.name, report));
        }
        Some(all)
    }

    /// Passes what has happened to sampled keys on to the estimates of other memory limits.
    pub(crate) fn advance_sizing(&self) {
        self.each_tenant(|tenant| {
            let totals = tenant.counters.since_start();
            let (lookups, misses) = (totals.cmd_get + totals.cmd_touch, totals.get_misses + totals.touch_misses);
            tenant.cache.advance_sizing(lookups, misses);
        });
    }

    /// Notifies those that watch connections: those of the session's tenant, because others must
    /// not see its clients. While there are tenants, no watcher sees a client that has not logged
    /// in.
    pub(crate) fn publish_connection(&self, session: &Session, event: &str, reason: &str) {
        let tenant = session.tenant().map_or(&self.common, |tenant| tenant);
        if !tenant.watch.has_watchers(Topic::Connections) || !(session.has_logged_in() || self.tenants.is_empty()) {
            return;
        }
        let (address, port) = session.transport.peer();
        let (transport, id) = (session.transport.name(), session.id);
        tenant.watch.publish(
            Topic::Connections,
            format_args!("type={event} rip={address} rport={port} transport={transport}{reason} cfd={id}"),
        );
    }

    /// Limits on what a client can make a connection buffer.
    pub fn limits(&self) -> Limits {
        // A key has at least one byte. Longer keys leave less room for the value, which is checked
        // when the key is known.
        Limits { max_value: self.options.max_key_and_value() - 1 }
    }
}
