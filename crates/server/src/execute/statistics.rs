//! The `stats` command.
//!
//! Names, order and types are memcached's. Statistics about parts that this server does not have
//! are zero: pages that move between slab classes, segments of an LRU, reply objects. There is one
//! size class, which has all items. Five groups are not in memcached: `table` surveys every bucket,
//! `memory` every item, `hotkeys` has the most used keys, `sizing` the hit ratios of other memory
//! limits, and `contention` reports lock contention, if that feature is enabled.

use super::CLASS;
use super::report::Report;
use super::session::ListeningSocket;
use super::{Dump, Executor, Outcome, Session};
use crate::observability::hot_keys::Kind;
use crate::observability::log;
use crate::observability::stats::Totals;
use crate::options::PROTOCOL_VERSION;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use relativist_memcache::binary::Header;
use relativist_memcache::{Words, number, reply};
use relativist_rcu::contention::{self, Counts};
use relativist_store::work::{self, Work};
use relativist_store::{MemoryUse, SweepStats, TableStats, Usage};
use std::fmt::Display;

/// The keys that a list of the most used ones is made from, about.
const MERGED_KEYS: usize = 500;

/// The page size of memcached, the unit of `stats slabs`.
const PAGE: usize = 1 << 20;

macro_rules! stats {
    ($report:ident, $($name:ident: $value:expr,)*) => {
        $($report.stat(stringify!($name), $value);)*
    };
}

// Declared after the macro, because they use it.
mod settings;
mod sizing;

impl Executor<'_> {
    /// Answers `stats` of the text protocol.
    pub(super) fn stats(&self, mut args: Words<'_>, out: &mut Vec<u8>) -> Outcome<'static> {
        let all = args.clone();
        let reply: &[u8] = match args.next() {
            Some(b"reset") => {
                self.reset_stats();
                reply::RESET
            }
            Some(b"detail") => return self.stats_detail(args, out),
            Some(name @ (b"conns" | b"table" | b"memory")) => return self.long_report(name, None, out),
            Some(b"cachedump") => return self.stats_cachedump(args, out),
            Some(b"sizes") if self.shared.options.extended.track_sizes => {
                return self.dump(Box::new(Dump::sizes(&self.tenant.surveys)), out);
            }
            _ if self.report(all, &mut Report::new(out, None)) => reply::END,
            _ => reply::ERROR,
        };
        out.extend_from_slice(reply);
        Outcome::Done
    }

    /// Answers `conns`, `table` or `memory` piece by piece, because these groups may be long, or
    /// take long.
    pub(super) fn long_report(&self, name: &[u8], request: Option<Header>, out: &mut Vec<u8>) -> Outcome<'static> {
        let dump = match name {
            b"conns" => {
                self.listeners(&mut Report::new(out, request));
                Dump::connections()
            }
            b"memory" => Dump::memory(&self.tenant.surveys),
            _ => Dump::table(&self.tenant.surveys),
        };
        self.dump(Box::new(dump.replying_to(request)), out)
    }

    /// Reports a short group of statistics, without the end of the list. False if there is no such
    /// group.
    pub(super) fn report(&self, mut args: Words<'_>, report: &mut Report<'_>) -> bool {
        match args.next() {
            None => self.general(report),
            Some(b"settings") => self.settings(report),
            Some(b"items") => self.items(report),
            Some(b"slabs") => self.slabs(report),
            Some(b"sizes") => report.stat("sizes_status", "disabled"),
            Some(b"contention") => locks(report),
            Some(b"hotkeys") => self.hot_keys(report),
            Some(b"sizing") => self.sizing(report),
            Some(b"reset") => self.reset_stats(),
            Some(b"detail") => return self.detail(args.next()),
            Some(_) => return false,
        }
        true
    }

    fn reset_stats(&self) {
        self.tenant.counters.reset(self.tenant.cache.usage().sweeps);
        self.tenant.prefixes.clear();
    }

    fn stats_detail(&self, mut args: Words<'_>, out: &mut Vec<u8>) -> Outcome<'static> {
        let prefixes = &self.tenant.prefixes;
        let reply: &[u8] = match args.next() {
            _ if self.shared.live.get().disable_dumping => b"CLIENT_ERROR stats detail not allowed\r\n",
            Some(b"on") => {
                prefixes.set_counting(true);
                reply::OK
            }
            Some(b"off") => {
                prefixes.set_counting(false);
                reply::OK
            }
            Some(b"dump") => return self.dump(Box::new(Dump::prefixes()), out),
            _ => b"CLIENT_ERROR usage: stats detail on|off|dump\r\n",
        };
        out.extend_from_slice(reply);
        Outcome::Done
    }

    /// `stats detail` in the binary protocol, which has no text for errors. (Dumps are handled
    /// elsewhere.)
    fn detail(&self, verb: Option<&[u8]>) -> bool {
        let prefixes = &self.tenant.prefixes;
        match verb {
            _ if self.shared.live.get().disable_dumping => return false,
            Some(b"on") => prefixes.set_counting(true),
            Some(b"off") => prefixes.set_counting(false),
            _ => return false,
        }
        true
    }

    fn stats_cachedump(&self, mut args: Words<'_>, out: &mut Vec<u8>) -> Outcome<'static> {
        let (class, limit) = (args.next().map(number::unsigned_32), args.next().map(number::unsigned_32));
        let problem: &[u8] = match (class, limit) {
            _ if self.shared.live.get().disable_dumping => b"CLIENT_ERROR stats cachedump not allowed\r\n",
            (None, _) | (_, None) => b"CLIENT_ERROR bad command line\r\n",
            (Some(Some(class @ 0..=63)), Some(Some(limit))) => {
                let dump = Dump::cache(if limit == 0 { usize::MAX } else { limit as usize });
                return self.dump(Box::new(if class == u32::from(CLASS) { dump } else { dump.emptied() }), out);
            }
            (Some(Some(_)), Some(Some(_))) => b"CLIENT_ERROR Illegal slab id\r\n",
            _ => b"CLIENT_ERROR bad command line format\r\n",
        };
        out.extend_from_slice(problem);
        Outcome::Done
    }

    fn general(&self, report: &mut Report<'_>) {
        let totals = self.totals();
        let usage = self.tenant.cache.usage();
        let sweeps = self.tenant.counters.sweeps(&usage.sweeps);
        self.process(report);
        self.connections(&totals, report);
        commands(&totals, report);
        self.network_and_table(&totals, &usage, report);
        self.slabs_and_crawler(&sweeps, report);
        self.watchers_and_tls(&totals, report);
        self.stored_items(&totals, &usage, &sweeps, report);
    }

    /// The counters of this tenant. Those of connections are the server's: bytes are received
    /// before their sender is known.
    fn totals(&self) -> Totals {
        let server = self.shared.common.counters.totals();
        Totals {
            total_connections: server.total_connections,
            rejected_connections: server.rejected_connections,
            auth_cmds: server.auth_cmds,
            auth_errors: server.auth_errors,
            idle_kicks: server.idle_kicks,
            ssl_handshake_errors: server.ssl_handshake_errors,
            ssl_proto_errors: server.ssl_proto_errors,
            ssl_new_sessions: server.ssl_new_sessions,
            ssl_resumed_sessions: server.ssl_resumed_sessions,
            bytes_read: server.bytes_read,
            bytes_written: server.bytes_written,
            ..self.tenant.counters.totals()
        }
    }

    fn connections(&self, totals: &Totals, report: &mut Report<'_>) {
        let shared = self.shared;
        let buffers = shared.buffer_limit.held();
        stats! { report,
            max_connections: shared.connection_limit.limit(),
            curr_connections: shared.connection_limit.open(),
            total_connections: totals.total_connections,
        }
        if shared.live.get().extended.maxconns_fast {
            report.stat("rejected_connections", totals.rejected_connections);
        }
        stats! { report,
            connection_structures: shared.connection_limit.open(),
            response_obj_oom: 0,
            response_obj_count: 0,
            response_obj_bytes: buffers.outputs,
            read_buf_count: 0,
            read_buf_bytes: buffers.inputs,
            read_buf_bytes_free: shared.buffer_limit.idle(),
            read_buf_oom: shared.buffer_limit.closed(),
            reserved_fds: crate::process::resources::descriptors_of_our_own(shared.options.threads),
        }
        if !shared.tenants.is_empty() {
            report.stat("tenant_connections", shared.connections_of(self.tenant));
        }
    }

    fn network_and_table(&self, totals: &Totals, usage: &Usage, report: &mut Report<'_>) {
        let shared = self.shared;
        if shared.live.get().extended.idle_timeout > 0 {
            report.stat("idle_kicks", totals.idle_kicks);
        }
        stats! { report,
            bytes_read: totals.bytes_read,
            bytes_written: totals.bytes_written,
            limit_maxbytes: usage.limit,
            accepting_conns: u8::from(!shared.connection_limit.is_paused()),
            listen_disabled_num: shared.connection_limit.pauses(),
            time_in_listen_disabled_us: shared.connection_limit.paused_for().as_micros(),
            threads: shared.options.threads,
            conn_yields: totals.conn_yields,
            hash_power_level: usage.buckets.ilog2(),
            hash_bytes: usage.table_bytes,
            hash_is_expanding: u8::from(usage.is_resizing),
        }
    }

    fn slabs_and_crawler(&self, sweeps: &SweepStats, report: &mut Report<'_>) {
        let extended = &self.shared.live.get().extended;
        if extended.ignored.slab_reassign {
            stats! { report,
                slab_reassign_rescues: 0,
                slab_reassign_chunk_rescues: 0,
                slab_reassign_inline_reclaim: 0,
                slab_reassign_busy_items: 0,
                slab_reassign_busy_deletes: 0,
                slab_reassign_busy_nomem: 0,
                slab_reassign_last_busy_status: "none",
                slab_reassign_running: 0,
                slabs_moved: 0,
            }
        }
        if extended.lru_crawler {
            stats! { report, lru_crawler_running: 0, lru_crawler_starts: sweeps.passes, }
        }
        if extended.ignored.lru_maintainer {
            report.stat("lru_maintainer_juggles", 0);
        }
    }

    fn watchers_and_tls(&self, totals: &Totals, report: &mut Report<'_>) {
        let (watchers, lines_sent, lines_skipped) = self.tenant.watch.counts();
        stats! { report,
            malloc_fails: 0,
            log_worker_dropped: log::dropped(),
            log_worker_written: lines_sent,
            log_watcher_skipped: lines_skipped,
            log_watcher_sent: lines_sent,
            log_watchers: watchers,
        }
        if let Some(tls) = &self.shared.tls {
            if self.shared.options.extended.ssl.session_cache {
                report.stat("ssl_new_sessions", totals.ssl_new_sessions);
            }
            stats! { report,
                ssl_handshake_errors: totals.ssl_handshake_errors,
                ssl_proto_errors: totals.ssl_proto_errors,
                time_since_server_cert_refresh: tls.age().as_secs(),
            }
        }
    }

    fn stored_items(&self, totals: &Totals, usage: &Usage, sweeps: &SweepStats, report: &mut Report<'_>) {
        let has_maintainer = self.shared.options.extended.ignored.lru_maintainer;
        stats! { report,
            unexpected_napi_ids: 0,
            round_robin_fallback: 0,
            bytes: usage.item_bytes,
            curr_items: usage.items,
            total_items: totals.total_items,
            slab_global_page_pool: 0,
            expired_unfetched: sweeps.expired_unfetched,
            evicted_unfetched: sweeps.evicted_unfetched,
        }
        if has_maintainer {
            report.stat("evicted_active", sweeps.evicted_active);
        }
        stats! { report,
            evictions: sweeps.evictions,
            reclaimed: sweeps.reclaimed,
            crawler_reclaimed: sweeps.crawler_reclaimed,
            crawler_items_checked: sweeps.crawled,
            lrutail_reflocked: 0,
        }
        if has_maintainer {
            stats! { report,
                moves_to_cold: 0,
                moves_to_warm: 0,
                moves_within_lru: 0,
                direct_reclaims: 0,
                lru_bumps_dropped: 0,
            }
        }
    }

    fn process(&self, report: &mut Report<'_>) {
        let now = self.shared.ticker.clock().now();
        stats! { report,
            pid: std::process::id(),
            uptime: now.saturating_sub(self.shared.started),
            time: now,
            version: PROTOCOL_VERSION,
            libevent: "none",
            pointer_size: usize::BITS,
        }
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            stats! { report,
                rusage_user: seconds(usage.user_time()),
                rusage_system: seconds(usage.system_time()),
            }
        }
    }

    fn items(&self, report: &mut Report<'_>) {
        let usage = self.tenant.cache.usage();
        if usage.items == 0 {
            return;
        }
        let mut stat = |name: &str, value: usize| report.stat(format_args!("items:{CLASS}:{name}"), value);
        stat("number", usage.items);
        for name in ["number_hot", "number_warm"] {
            stat(name, 0);
        }
        stat("number_cold", usage.items);
        for name in ["age_hot", "age_warm"] {
            stat(name, 0);
        }
        stat("age", self.tenant.longest_idle() as usize);
        stat("mem_requested", usage.item_bytes);
        let totals = self.totals();
        let sweeps = self.tenant.counters.sweeps(&usage.sweeps);
        for (name, value) in [
            ("evicted", sweeps.evictions),
            ("evicted_nonzero", sweeps.evicted_nonzero),
            ("evicted_time", sweeps.evicted_time.into()),
            ("outofmemory", totals.store_no_memory),
            ("tailrepairs", 0),
            ("reclaimed", sweeps.reclaimed),
            ("expired_unfetched", sweeps.expired_unfetched),
            ("evicted_unfetched", sweeps.evicted_unfetched),
            ("evicted_active", sweeps.evicted_active),
            ("crawler_reclaimed", sweeps.crawler_reclaimed),
            ("crawler_items_checked", sweeps.crawled),
        ] {
            stat(name, value as usize);
        }
        for name in [
            "lrutail_reflocked",
            "moves_to_cold",
            "moves_to_warm",
            "moves_within_lru",
            "direct_reclaims",
            "hits_to_hot",
            "hits_to_warm",
        ] {
            stat(name, 0);
        }
        stat("hits_to_cold", totals.get_hits as usize);
        stat("hits_to_temp", 0);
    }

    fn slabs(&self, report: &mut Report<'_>) {
        let usage = self.tenant.cache.usage();
        if let Some(average) = usage.item_bytes.checked_div(usage.items) {
            let totals = self.totals();
            let mut stat = |name: &str, value: u64| report.stat(format_args!("{CLASS}:{name}"), value);
            stat("chunk_size", average as u64);
            stat("chunks_per_page", (PAGE / average.max(1)) as u64);
            stat("total_pages", usage.item_bytes.div_ceil(PAGE) as u64);
            stat("total_chunks", usage.items as u64);
            stat("used_chunks", usage.items as u64);
            stat("free_chunks", 0);
            stat("free_chunks_end", 0);
            stat("get_hits", totals.get_hits);
            stat("cmd_set", totals.cmd_set);
            stat("delete_hits", totals.delete_hits);
            stat("incr_hits", totals.incr_hits);
            stat("decr_hits", totals.decr_hits);
            stat("cas_hits", totals.cas_hits);
            stat("cas_badval", totals.cas_badval);
            stat("touch_hits", totals.touch_hits);
        }
        report.stat("active_slabs", u8::from(usage.items > 0));
        report.stat("total_malloced", usage.item_bytes);
    }

    fn listeners(&self, report: &mut Report<'_>) {
        let uptime = self.now().saturating_sub(self.shared.started);
        for ListeningSocket { id, address, state } in self.shared.connections.listeners() {
            report.stat(format_args!("{id}:addr"), address);
            report.stat(format_args!("{id}:state"), state);
            report.stat(format_args!("{id}:secs_since_last_cmd"), uptime);
        }
    }

    pub(super) fn connection(&self, session: &Session, report: &mut Report<'_>) {
        let id = session.id;
        report.stat(format_args!("{id}:addr"), &session.transport);
        report.stat(format_args!("{id}:listen_addr"), session.transport.listener());
        report.stat(format_args!("{id}:state"), session.state());
        report.stat(format_args!("{id}:secs_since_last_cmd"), session.silence(self.now()));
    }

    pub(super) fn table(&self, table: &TableStats, report: &mut Report<'_>) {
        stats! { report,
            buckets: table.buckets,
            entries: table.entries,
            load_factor: format_args!("{:.3}", table.entries as f64 / table.buckets as f64),
            longest_chain: table.longest_chain,
            grows: table.grows,
            shrinks: table.shrinks,
            grace_periods: table.grace_periods,
        }
        for (length, buckets) in table.chain_lengths.iter().enumerate() {
            report.stat(format_args!("chains_of_{length}"), buckets);
        }
    }

    /// The most read and the most written keys of the last minute, the most used first.
    fn hot_keys(&self, report: &mut Report<'_>) {
        report.stat("hot_keys", self.shared.options.hot_keys.name());
        for kind in Kind::ALL {
            work::charge(Work::Items(MERGED_KEYS));
            let Some(hot) = self.tenant.counters.hot_keys(kind, self.shared.started, self.now()) else { return };
            let name = kind.name();
            report.stat(format_args!("{name}:seconds"), hot.seconds);
            report.stat(format_args!("{name}:per_second"), format_args!("{:.0}", hot.per_second(hot.events)));
            for (rank, key) in (1..).zip(&hot.keys) {
                let mut stat = |field: &str, value: &dyn Display| {
                    report.stat(format_args!("{name}:{rank}:{field}"), value);
                };
                stat("key", &key.name);
                stat("per_second", &format_args!("{:.0}", hot.per_second(key.events)));
                stat("bytes_per_second", &format_args!("{:.0}", hot.per_second(key.bytes)));
                stat("share", &format_args!("{:.4}", hot.share(key)));
            }
        }
    }

    pub(super) fn memory(&self, memory: &MemoryUse, report: &mut Report<'_>) {
        memory.parts().iter().for_each(|(name, bytes)| report.stat(name, bytes));
        stats! { report,
            mapped: memory.total(),
            limit: self.tenant.cache.usage().limit,
        }
    }
}

fn locks(report: &mut Report<'_>) {
    if !contention::ENABLED {
        report.stat("contention_status", "disabled");
    }
    for Counts { site, acquisitions, contended, waited } in contention::counts() {
        report.stat(format_args!("{site}:acquisitions"), acquisitions);
        report.stat(format_args!("{site}:contended"), contended);
        report.stat(format_args!("{site}:waited_us"), waited.as_micros());
    }
}

fn commands(totals: &Totals, report: &mut Report<'_>) {
    stats! { report,
        cmd_get: totals.cmd_get,
        cmd_set: totals.cmd_set,
        cmd_flush: totals.cmd_flush,
        cmd_touch: totals.cmd_touch,
        cmd_meta: totals.cmd_meta,
        get_hits: totals.get_hits,
        get_misses: totals.get_misses,
        get_expired: totals.get_expired,
        get_flushed: totals.get_flushed,
        delete_misses: totals.delete_misses,
        delete_hits: totals.delete_hits,
        incr_misses: totals.incr_misses,
        incr_hits: totals.incr_hits,
        decr_misses: totals.decr_misses,
        decr_hits: totals.decr_hits,
        cas_misses: totals.cas_misses,
        cas_hits: totals.cas_hits,
        cas_badval: totals.cas_badval,
        touch_hits: totals.touch_hits,
        touch_misses: totals.touch_misses,
        store_too_large: totals.store_too_large,
        store_no_memory: totals.store_no_memory,
        auth_cmds: totals.auth_cmds,
        auth_errors: totals.auth_errors,
    }
}

fn seconds(time: TimeVal) -> String {
    format!("{}.{:06}", time.tv_sec(), time.tv_usec())
}
