//! `stats settings`: the options that clients may see, and the settings that clients have changed.

use super::super::Executor;
use super::super::report::Report;
use crate::options::{Extended, Ssl};
use relativist_store::policy::EvictFor;
use std::path::Path;

impl Executor<'_> {
    /// Reports all settings, in the order of memcached.
    pub(super) fn settings(&self, report: &mut Report<'_>) {
        let options = self.shared.live.get();
        let tuning = self.shared.tuning.get();
        self.fixed_settings(report);
        self.tuned_settings(report, &tuning);
        flash(report, tuning.ignored.slab_automove_freeratio);
        encryption(report, options.enable_ssl, &options.extended.ssl);
        stats! { report,
            num_napi_ids: options.napi_ids,
            memory_file: options.snapshot.as_ref().map_or("(null)".into(), |path| path.display().to_string()),
            client_flags_size: size_of::<u32>(),
        }
    }

    /// The settings up to the first one that `Tuning` has.
    fn fixed_settings(&self, report: &mut Report<'_>) {
        let shared = self.shared;
        let options = shared.live.get();
        stats! { report,
            maxbytes: self.tenant.cache.usage().limit,
            maxconns: shared.connection_limit.limit(),
            tcpport: shared.port,
            udpport: options.udp_port().unwrap_or(0),
            inter: options.listen_text().unwrap_or_else(|| NONE.into()),
            verbosity: shared.log.verbosity(),
            oldest: 0,
            evictions: if options.disable_evictions { "off" } else { "on" },
            domain_socket: path(options.unix_socket.as_deref()),
            umask: format_args!("{:o}", options.unix_mask),
            shutdown_command: yes(options.enable_shutdown),
            growth_factor: format_args!("{:.2}", options.slab_growth_factor),
            chunk_size: options.slab_min_size,
            num_threads: options.threads,
            num_threads_per_udp: options.threads,
            stat_key_prefix: self.tenant.prefixes.delimiter(),
            detail_enabled: yes(self.tenant.prefixes.is_counting()),
            reqs_per_event: options.max_reqs_per_event,
            cas_enabled: yes(!options.disable_cas),
            tcp_backlog: options.listen_backlog,
            binding_protocol: options.binding_protocol().name(),
            auth_enabled_sasl: yes(options.enable_sasl),
            auth_enabled_ascii: options.auth_file.as_ref().map_or("no".into(), |path| path.display().to_string()),
            item_size_max: options.max_item_size,
        }
    }

    fn tuned_settings(&self, report: &mut Report<'_>, tuning: &Extended) {
        let options = self.shared.live.get();
        stats! { report,
            maxconns_fast: yes(tuning.maxconns_fast),
            hashpower_init: tuning.ignored.hashpower,
            slab_reassign: yes(tuning.ignored.slab_reassign),
            slab_automove: tuning.ignored.slab_automove,
            slab_automove_ratio: format_args!("{:.2}", tuning.ignored.slab_automove_ratio),
            slab_automove_window: tuning.ignored.slab_automove_window,
            slab_chunk_max: tuning.ignored.chunk_bytes(),
            lru_crawler: yes(tuning.lru_crawler),
            lru_crawler_sleep: tuning.ignored.lru_crawler_sleep,
            lru_crawler_tocrawl: tuning.ignored.lru_crawler_tocrawl,
            tail_repair_time: tuning.ignored.tail_repair_time,
            flush_enabled: yes(!options.disable_flush_all),
            dump_enabled: yes(!options.disable_dumping),
            hash_algorithm: &tuning.ignored.hash_algorithm,
            lru_maintainer_thread: yes(tuning.ignored.lru_maintainer),
            lru_segmented: yes(tuning.ignored.lru_segmented),
            hot_lru_pct: tuning.ignored.hot_lru_pct,
            warm_lru_pct: tuning.ignored.warm_lru_pct,
            hot_max_factor: format_args!("{:.2}", tuning.ignored.hot_max_factor),
            warm_max_factor: format_args!("{:.2}", tuning.ignored.warm_max_factor),
            temp_lru: yes(tuning.ignored.temporary_ttl.is_some()),
            temporary_ttl: tuning.ignored.temporary_ttl.unwrap_or(DEFAULT_TEMPORARY_TTL),
            idle_timeout: tuning.idle_timeout,
            watcher_logbuf_size: kibibytes(tuning.watcher_logbuf_size),
            worker_logbuf_size: kibibytes(tuning.ignored.worker_logbuf_size),
            read_buf_mem_limit: u64::from(tuning.read_buf_mem_limit) << 20,
            track_sizes: yes(tuning.track_sizes),
            evict_for: match tuning.evict_for {
                EvictFor::Requests => "requests",
                EvictFor::Bytes => "bytes",
            },
            inline_ascii_response: "no",
        }
    }
}

/// The value of a text setting that is not set.
const NONE: &str = "NULL";

/// The value reported while the segment of short-lived items is disabled.
const DEFAULT_TEMPORARY_TTL: u32 = 61;

/// Reports the flash storage of memcached (extstore) as disabled. `slab_automove_freeratio` is one
/// of its settings.
fn flash(report: &mut Report<'_>, automove_freeratio: f64) {
    stats! { report,
        ext_item_size: 0,
        ext_item_age: 0,
        ext_low_ttl: 0,
        ext_recache_rate: 0,
        ext_wbuf_size: 0,
        ext_compact_under: 0,
        ext_drop_under: 0,
        ext_max_sleep: 0,
        ext_max_frag: "0.00",
        slab_automove_freeratio: format_args!("{automove_freeratio:.3}"),
        ext_drop_unread: "no",
    }
}

fn encryption(report: &mut Report<'_>, is_on: bool, ssl: &Ssl) {
    stats! { report,
        ssl_enabled: yes(is_on),
        ssl_chain_cert: path(ssl.chain_cert.as_deref()),
        ssl_key: path(ssl.key.as_deref()),
        ssl_verify_mode: ssl.verify_mode,
        ssl_keyformat: ssl.keyformat,
        ssl_ciphers: ssl.ciphers.as_deref().unwrap_or(NONE),
        ssl_ca_cert: path(ssl.ca_cert.as_deref()),
        ssl_wbuf_size: kibibytes(ssl.wbuf_size),
        ssl_session_cache: yes(ssl.session_cache),
        ssl_kernel_tls: yes(ssl.kernel_tls),
        ssl_min_version: ssl.min_version_name(),
    }
}

fn path(path: Option<&Path>) -> String {
    path.map_or_else(|| NONE.into(), |path| path.display().to_string())
}

/// Converts kibibytes to bytes.
fn kibibytes(count: u32) -> u64 {
    u64::from(count) << 10
}

fn yes(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}
