//! `/metrics`: statistics in the text format of Prometheus. Counters have the names that they have
//! in `stats`.

use super::Panel;
use crate::observability::latency::Kind;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::{SysconfVar, sysconf};
use relativist_cache::TableStats;
use std::fmt::{Display, Write};
use std::fs;
use std::sync::atomic::Ordering;

/// Metrics as text.
struct Text(String);

impl Text {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a string does not fail");
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP relativistd_{name} {help}"));
        self.line(format_args!("# TYPE relativistd_{name} {kind}"));
    }

    fn metric(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.line(format_args!("relativistd_{name} {value}"));
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.metric(name, "gauge", help, value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.metric(name, "counter", help, value);
    }
}

pub(super) fn text(panel: &Panel) -> String {
    let shared = &panel.shared;
    let mut text = Text(String::new());
    text.head("info", "gauge", "The version, as a label.");
    text.line(format_args!("relativistd_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")));
    process(panel, &mut text);
    connections(panel, &mut text);
    memory(panel, &mut text);
    for (name, help, value) in shared.counters.since_start().each() {
        let name = name.strip_prefix("total_").unwrap_or(name);
        text.counter(&format!("{name}_total"), help, value);
    }
    resizes(panel, &mut text);
    latencies(panel, &mut text);
    text.0
}

fn process(panel: &Panel, text: &mut Text) {
    let shared = &panel.shared;
    text.gauge("start_time_seconds", "When the server started, in Unix seconds.", shared.started);
    text.gauge("threads", "Threads that execute commands.", shared.options.threads);
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        let seconds = |time: TimeVal| format!("{}.{:06}", time.tv_sec(), time.tv_usec());
        text.counter("cpu_user_seconds_total", "CPU time in user mode.", seconds(usage.user_time()));
        text.counter("cpu_system_seconds_total", "CPU time in the kernel.", seconds(usage.system_time()));
    }
    if let Some(bytes) = resident_bytes() {
        text.gauge("resident_memory_bytes", "Resident memory of the process.", bytes);
    }
    if let Some(tls) = &shared.tls {
        text.gauge("certificate_age_seconds", "Seconds since the certificates were read.", tls.age().as_secs());
        if let Some(expiry) = tls.expiry() {
            text.gauge(
                "certificate_expiry_seconds",
                "When a certificate of the chain expires first, in Unix seconds.",
                expiry,
            );
        }
    }
    // Relaxed: no other data depends on this number.
    let written = shared.snapshot_written.load(Ordering::Relaxed);
    if written > 0 {
        text.gauge("snapshot_written_seconds", "When the last snapshot was written, in Unix seconds.", written);
        let age = shared.ticker.clock().now().saturating_sub(written);
        text.gauge("snapshot_age_seconds", "Seconds since the last snapshot was written.", age);
    }
}

/// The resident memory of this process, where the system reports it.
fn resident_bytes() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    pages.checked_mul(page.try_into().ok()?)
}

fn connections(panel: &Panel, text: &mut Text) {
    let shared = &panel.shared;
    let limit = &shared.connection_limit;
    text.gauge("connections", "Open connections.", limit.open());
    text.gauge("connections_limit", "Maximum number of open connections.", limit.limit());
    text.gauge("accepting_connections", "0 while clients have to wait because of -c.", u8::from(!limit.is_paused()));
    text.counter("listen_disabled_num_total", "How often clients had to wait because of -c.", limit.pauses());
    text.counter(
        "listen_disabled_seconds_total",
        "Time in which clients had to wait because of -c.",
        limit.paused_for().as_secs_f64(),
    );
    let buffers = shared.buffer_limit.held();
    text.gauge("buffers_in_bytes", "Bytes of request buffers.", buffers.inputs);
    text.gauge("buffers_out_bytes", "Bytes of reply buffers.", buffers.outputs);
    let help = "Connections closed because all buffers together exceeded their limit.";
    text.counter("read_buf_oom_total", help, shared.buffer_limit.closed());
    let (watchers, sent, skipped) = shared.watch.counts();
    text.gauge("log_watchers", "Clients that receive log lines (watch).", watchers);
    text.counter("log_watcher_sent_total", "Log lines sent to these clients.", sent);
    text.counter("log_watcher_skipped_total", "Log lines lost because such a client read too slowly.", skipped);
}

fn memory(panel: &Panel, text: &mut Text) {
    let usage = panel.shared.cache.usage();
    text.gauge("items", "Items stored.", usage.items);
    text.gauge("items_bytes", "Bytes of these items.", usage.item_bytes);
    text.gauge("memory_limit_bytes", "Limit on the memory of items and table.", usage.limit);
    text.gauge("memory_heap_bytes", "Memory for items, free parts included.", usage.mapped_bytes);
    text.gauge(
        "memory_pinned_bytes",
        "Part of memory_heap_bytes: large values being sent or received in place.",
        usage.pinned_bytes,
    );
    text.gauge("table_buckets", "Buckets of the hash table.", usage.buckets);
    text.gauge("table_bytes", "Bytes of the hash table.", usage.table_bytes);
    text.gauge("table_is_resizing", "1 while the hash table is resized.", u8::from(usage.is_resizing));
    let sweeps = usage.sweeps;
    text.counter("evictions_total", "Items evicted.", sweeps.evictions);
    text.counter("evicted_unfetched_total", "Evicted items that were never fetched.", sweeps.evicted_unfetched);
    text.counter(
        "evicted_active_total",
        "Evicted items that were fetched since the last sweep.",
        sweeps.evicted_active,
    );
    text.counter("evicted_nonzero_total", "Evicted items that had an expiry.", sweeps.evicted_nonzero);
    text.gauge(
        "evicted_age_seconds",
        "Age of the last evicted item: seconds since its last access.",
        sweeps.evicted_time,
    );
    text.counter("reclaimed_total", "Expired or flushed items that a store freed or replaced.", sweeps.reclaimed);
    text.counter(
        "crawler_reclaimed_total",
        "Expired or flushed items freed in the background.",
        sweeps.crawler_reclaimed,
    );
    text.counter(
        "expired_unfetched_total",
        "Reclaimed items that had expired and were never fetched.",
        sweeps.expired_unfetched,
    );
    text.counter("lru_crawler_starts_total", "Background passes that examined items.", sweeps.passes);
    text.counter("crawler_items_checked_total", "Items examined in the background.", sweeps.crawled);
}

/// Examines only a few buckets. Metrics that need all buckets are as old as the last survey.
fn resizes(panel: &Panel, text: &mut Text) {
    let mut now = TableStats::default();
    panel.shared.cache.sample_buckets(&mut now, 0);
    text.counter("table_grows_total", "Resizes to more buckets.", now.grows);
    text.counter("table_shrinks_total", "Resizes to fewer buckets.", now.shrinks);
    text.counter("table_grace_periods_total", "Grace periods that resizes have waited for.", now.grace_periods);
    let (surveyed, _) = panel.look();
    text.gauge("table_longest_chain", "Maximum number of items in a bucket.", surveyed.longest_chain);
}

fn latencies(panel: &Panel, text: &mut Text) {
    text.head(
        "command_seconds",
        "histogram",
        "Execution times of a sample of the commands. Time after a pause is not included.",
    );
    for kind in Kind::ALL {
        let (times, name) = (panel.shared.counters.latencies(kind), kind.name());
        let mut bucket = |bound: &dyn Display, count: u64| {
            text.line(format_args!("relativistd_command_seconds_bucket{{command=\"{name}\",le=\"{bound}\"}} {count}"));
        };
        for (nanoseconds, below) in times.cumulative() {
            bucket(&(nanoseconds as f64 / 1e9), below);
        }
        bucket(&"+Inf", times.count());
        let (seconds, count) = (times.total().as_secs_f64(), times.count());
        text.line(format_args!("relativistd_command_seconds_sum{{command=\"{name}\"}} {seconds}"));
        text.line(format_args!("relativistd_command_seconds_count{{command=\"{name}\"}} {count}"));
    }
}
