//! Execution: a decoded command goes in, the cache executes it, and the reply is appended to an
//! output buffer.
//!
//! Nothing here knows sockets. [`SharedState`] is shared by all threads: the time, the options, the
//! items and counters of each [`Tenant`]. Each thread executes through an [`Executor`], which has
//! the tenant of the client, and adds to the counters of that thread. The state of one connection
//! is its [`Session`].
//!
//! One command can ask for more output than a connection should hold (`get` with thousands of keys
//! of large values, a dump of all keys), or for more time than other connections should wait. Such
//! a command pauses at a limit and returns its position. The caller sends the output and resumes
//! it.

mod admin;
mod binary;
mod classic;
mod dump;
mod login;
mod meta;
mod observe;
mod permission;
mod prefixes;
mod record;
mod replies;
mod sasl;
mod session;
mod statistics;
mod tenant;
pub mod trace;
mod tuning;
mod watch;

use crate::limits::buffers::BufferLimit;
use crate::limits::connections::ConnectionLimit;
use crate::observability::hot_keys;
use crate::observability::latency::{Kind, Latencies};
use crate::observability::log::{Level, Log};
use crate::observability::stats::{Counters, Totals};
use crate::options::{LiveOptions, Options, PROTOCOL_VERSION};
use crate::process::gate::Gate;
use crate::security::auth::Users;
use crate::security::tls::Tls;
use crate::snapshot::record::SnapshotRecord;
use relativist_memcache::binary as packets;
use relativist_memcache::{Command, Limits, PendingStore, Rejection, RequestError, decode_key, number, reply};
use relativist_store::Ticker;
use relativist_store::{Cache, Hit, ItemShape, LARGE_VALUE, ReservedValue, Usage, Value, ValueRef};
use std::sync::Arc;

pub use classic::Fetch;
pub use dump::Dump;
pub use login::Verdict;
use permission::NOT_WITH_TENANTS;
pub use prefixes::Prefixes;
pub use replies::Replies;
pub use sasl::Login;
pub use session::{ConnectionState, Listed, Session, SessionRegistry, Transport};
pub use tenant::{Tenant, Tenants};
pub use trace::Extent;
pub use tuning::Tuning;
pub use watch::{Subscription, Topic, Watch};

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

    /// Limits on what a client can make a connection buffer.
    pub fn limits(&self) -> Limits {
        // A key has at least one byte. Longer keys leave less room for the value, which is checked
        // when the key is known.
        Limits { max_value: self.options.max_key_and_value() - 1 }
    }
}

/// How an execution ended.
#[derive(Clone, Debug)]
pub enum Outcome<'b> {
    /// The command is done.
    Done,
    /// The output is full, or other connections must be served. Resume the fetch when the output
    /// has been sent.
    PausedFetch {
        /// What to do with the remaining keys.
        fetch: Fetch,
        /// The first remaining key, within the command line.
        next: &'b [u8],
    },
    /// A dump was paused. Resume it when the output has been sent.
    PausedDump(Box<Dump>),
    /// The client has logged in. Make a new executor for what follows.
    LoggedIn,
    /// The client wants the connection closed.
    Quit,
    /// The connection receives log lines from now on, and nothing else.
    Watching(Arc<Subscription>),
    /// The client wants the server to end.
    Shutdown,
}

/// Executes commands on one thread.
#[derive(Clone, Copy)]
pub struct Executor<'s> {
    shared: &'s SharedState,
    tenant: &'s Tenant,
    counters: &'s Counters,
    output_limit: usize,
    /// Whether large values may be pinned and sent without a copy.
    pins_values: bool,
    /// The value of the next command, if it was received directly into memory of the cache.
    reserved: Option<&'s ReservedValue>,
    /// Whether there are watchers or prefixes are counted.
    is_observed: bool,
    /// Whether the tenant may use only keys with its prefix.
    has_key_prefix: bool,
    /// Whether the log has requests and replies.
    is_traced: bool,
    /// The histograms that record how long commands take, if this turn is sampled.
    latencies: Option<&'s Latencies>,
}

impl<'s> Executor<'s> {
    /// An executor for users without a tenant, and for clients that have not logged in. It
    /// increments `counters`, and pauses when the output has reached `output_limit` bytes.
    pub fn new(shared: &'s SharedState, counters: &'s Counters, output_limit: usize) -> Executor<'s> {
        let tenant = &shared.common;
        let latencies = counters.latencies.as_deref().filter(|latencies| latencies.samples_turn());
        let is_traced = shared.log.wants(Level::Connection);
        Executor {
            shared,
            tenant,
            counters,
            output_limit,
            pins_values: true,
            reserved: None,
            is_observed: tenant.is_observed(),
            has_key_prefix: false,
            is_traced,
            latencies,
        }
    }

    /// The same executor for users of `tenant`, on the thread with this number.
    #[must_use]
    pub fn of_tenant(self, tenant: &'s Tenant, thread: usize) -> Self {
        let counters = tenant.counters.thread(thread);
        let has_key_prefix = !tenant.key_prefix.is_empty();
        Executor { tenant, counters, is_observed: tenant.is_observed(), has_key_prefix, ..self }
    }

    /// An executor for replies in one piece: it copies values, however large.
    #[must_use]
    pub fn copying(self) -> Self {
        Executor { pins_values: false, ..self }
    }

    /// Reserves memory for the value of a store that has arrived in part. None if few bytes are
    /// missing, or if there is no memory.
    pub fn reserve(&self, store: &PendingStore<'_>, missing: usize) -> Option<ReservedValue> {
        let mut room = [0; _];
        let key = if store.is_base64 { decode_key(store.key, &mut room)? } else { store.key };
        let (has_flags, has_cas) = (store.flags != 0, store.has_cas);
        let shape = ItemShape { key_len: key.len(), value_len: store.length, has_flags, has_cas };
        // A small remainder is collected in the input buffer.
        (missing >= LARGE_VALUE).then(|| self.tenant.cache.reserve(&shape)).flatten()
    }

    /// The executor for the one command whose value is in `reserved`.
    #[must_use]
    pub fn storing<'a>(&self, reserved: &'a ReservedValue) -> Executor<'a>
    where
        's: 'a,
    {
        Executor { reserved: Some(reserved), ..*self }
    }

    /// The value of a store.
    fn value<'v>(&self, bytes: &'v [u8]) -> Value<'v>
    where
        's: 'v,
    {
        self.reserved.map_or(Value::Whole(bytes), Value::Reserved)
    }

    /// Executes a command of the text protocol and appends the reply to `replies`.
    pub fn execute<'b>(&self, session: &Session, command: Command<'b>, replies: &mut Replies) -> Outcome<'b> {
        let _timing = self.latencies.map(|latencies| latencies.time(Kind::from(&command)));
        let out = &mut replies.bytes;
        if self.has_key_prefix && self.refuse_command(&command, out) {
            return Outcome::Done;
        }
        match command {
            Command::Get { keys, with_cas } => {
                return self.fetch(session, Fetch::get(with_cas), keys, replies);
            }
            Command::GetAndTouch { exptime, keys, with_cas } => {
                return self.fetch(session, Fetch::get_and_touch(exptime, with_cas), keys, replies);
            }
            Command::Store { verb, key, flags, exptime, value, noreply } => {
                let content = relativist_store::Content { flags, exptime, value };
                append_reply(out, noreply, self.store(session, verb, key, content));
            }
            Command::Arithmetic { key, op, delta, noreply } => {
                classic::append_count(self.count(session, key, op, delta), noreply, out);
            }
            Command::Delete { key, noreply } => append_reply(out, noreply, self.delete(session, key)),
            Command::Touch { key, exptime, noreply } => append_reply(out, noreply, self.touch(session, key, exptime)),
            Command::FlushAll { exptime, noreply } => append_reply(out, noreply, self.flush(exptime)),
            Command::Version => reply::version(out, PROTOCOL_VERSION),
            Command::Verbosity { noreply, .. } if self.is_shared() => append_reply(out, noreply, NOT_WITH_TENANTS),
            Command::Verbosity { level, noreply } => {
                self.shared.log.set_verbosity(u8::try_from(level).unwrap_or(u8::MAX));
                append_reply(out, noreply, reply::OK);
            }
            Command::Stats { args } => return self.stats(args, out),
            Command::Quit => return Outcome::Quit,
            Command::Meta(command) => self.meta(session, &command, replies),
            Command::MetaNoop => out.extend_from_slice(b"MN\r\n"),
            Command::MetaDebug { key } => self.meta_debug(session, key, out),
            Command::Admin { verb, args } => return self.admin(session, verb, args, out),
        }
        Outcome::Done
    }

    /// Limits on what a client can make a connection buffer.
    pub fn limits(&self) -> Limits {
        self.shared.limits()
    }

    /// The current second of the cache's clock.
    pub fn now(&self) -> u32 {
        self.shared.ticker.clock().now()
    }

    /// The number of consecutive requests of one connection after which other connections are
    /// served (`-R`).
    pub fn requests_until_yield(&self) -> u32 {
        self.shared.options.max_reqs_per_event
    }

    /// Counts that a connection has more requests after `-R` of them in a row.
    pub fn count_yield(&self) {
        self.counters.conn_yields.bump();
    }

    /// Answers a request that the decoder refused; `line` is what it consumed.
    pub fn reject(&self, line: &[u8], rejection: &Rejection, out: &mut Vec<u8>) {
        match rejection.error {
            RequestError::TooLarge => self.counters.store_too_large.bump(),
            RequestError::InvalidExptime if line.starts_with(b"flush_all") => {
                self.counters.cmd_flush.bump();
                if self.shared.live.get().disable_flush_all {
                    return append_reply(out, rejection.noreply, classic::FLUSH_NOT_ALLOWED);
                }
            }
            _ => (),
        }
        out.extend_from_slice(rejection.reply());
    }

    /// Begins to refuse a store with the command line `line`, whose value is too large. Removes the
    /// item that it would have replaced, if it `replaces` one.
    pub fn refuse_large(&self, session: &Session, line: &[u8], key: &[u8], is_base64: bool, replaces: bool) {
        let mut room = [0; _];
        let key = if is_base64 { decode_key(key, &mut room) } else { Some(key) };
        let Some(key) = key else { return };
        if self.is_observed {
            let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
            let command = words.next().and_then(classic::store_name).unwrap_or("ms");
            // The expiry follows key and flags. In an `ms` there is a flag instead, which is not a
            // number.
            let exptime = words.nth(2).and_then(number::signed_32).unwrap_or(0);
            self.observe_too_large(session, key, command, exptime.into());
        }
        self.remove_replaced(session, key, replaces);
    }

    /// Like [`refuse_large`](Self::refuse_large), for the binary protocol. `front` precedes the
    /// value.
    pub fn refuse_large_binary(&self, session: &Session, front: &[u8], key: &[u8], replaces: bool) {
        if self.is_observed
            && let Some(request) = packets::Request::of_front(front)
        {
            self.observe_too_large(session, key, binary::name(request.opcode), request.extra_32(4).into());
        }
        self.remove_replaced(session, key, replaces);
    }

    fn remove_replaced(&self, session: &Session, key: &[u8], replaces: bool) {
        if !replaces || !self.allows(key) {
            return;
        }
        self.record_lookup(session, key);
        self.tenant.cache.delete(key);
    }

    /// Pins the value of `hit`, if it is large enough to be sent without a copy.
    #[inline(always)]
    fn pin_large(&self, hit: &Hit<'_>) -> Option<ValueRef> {
        if hit.value.len() >= LARGE_VALUE && self.pins_values { hit.pin() } else { None }
    }

    /// Whether a key and a value make an item that is too large.
    fn is_too_large(&self, key: &[u8], value: usize) -> bool {
        key.len() + value > self.tenant.cache.max_item()
    }

    /// The CAS value that clients see: 0 with `-C`.
    fn visible(&self, cas: u64) -> u64 {
        if self.shared.options.disable_cas { 0 } else { cas }
    }
}

/// Appends the reply, unless the client has sent `noreply`.
fn append_reply(out: &mut Vec<u8>, noreply: bool, reply: &[u8]) {
    if !noreply {
        out.extend_from_slice(reply);
    }
}
