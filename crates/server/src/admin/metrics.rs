//! `/metrics`: statistics for Prometheus, in its text format or in OpenMetrics. Counters have the
//! names that they have in `stats`, apart from units.
//!
//! The number of samples is bounded: labels have the values of an enumeration or the names of the
//! tenants, whose number is bounded, never those of clients.

mod sizing;
mod tenants;
mod text;

use super::panel::Panel;
use crate::observability::hot_keys::{self, HotKey, Report};
use crate::observability::latency::Kind as CommandKind;
use crate::observability::log;
use crate::options::PROTOCOL_VERSION;
use crate::process::resources;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::{SysconfVar, sysconf};
use relativist_rcu::GracePeriod;
use relativist_rcu::contention::{self, Counts};
use relativist_store::TableStats;
use std::fmt::Display;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};
pub(super) use text::Format;
use text::{Kind, Text};

/// Chains with at least as many items are counted together.
const LONG_CHAIN: usize = 16;

pub(super) fn text(panel: &Panel, format: Format) -> String {
    let mut text = Text::new(format);
    text.head("info", Kind::Info, "The version, and the version of memcached with which it is compatible.");
    let version = env!("CARGO_PKG_VERSION");
    text.sample("info", format_args!("version=\"{version}\",memcached=\"{PROTOCOL_VERSION}\""), 1);
    process(panel, &mut text);
    descriptors(panel, &mut text);
    certificates_and_snapshots(panel, &mut text);
    connections(panel, &mut text);
    memory(panel, &mut text);
    sweeps(panel, &mut text);
    tenants::all(panel, &mut text);
    for (name, help, value) in panel.shared.since_start().each() {
        text.counter(&format!("{}_total", base_name(name)), help, value);
    }
    hot_keys(panel, &mut text);
    sizing::all(panel, &mut text);
    resizes(panel, &mut text);
    locks(&mut text);
    latencies(panel, &mut text);
    text.finish()
}

/// The name of a counter of `stats` as a metric, without `_total`: a unit comes last.
fn base_name(statistic: &str) -> &str {
    match statistic {
        "bytes_read" => "read_bytes",
        "bytes_written" => "written_bytes",
        _ => statistic.strip_prefix("total_").unwrap_or(statistic),
    }
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
}

/// The resident memory of this process, where the system reports it.
fn resident_bytes() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    pages.checked_mul(page.try_into().ok()?)
}

fn descriptors(panel: &Panel, text: &mut Text) {
    if let Some(open) = open_descriptors() {
        text.gauge("open_file_descriptors", "Open files and sockets of the process.", open);
    }
    if let Ok((limit, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
        text.gauge("file_descriptors_limit", "Maximum number of open files and sockets.", limit);
    }
    text.gauge(
        "reserved_file_descriptors",
        "File descriptors that the server reserves for itself.",
        resources::descriptors_of_our_own(panel.shared.options.threads),
    );
    if let Some(overflows) = listen_overflows() {
        let help = "Connections lost because a queue of new connections was full, in this network namespace.";
        text.counter("network_listen_overflows_total", help, overflows);
    }
}

/// The number of open descriptors, where the system reports it.
fn open_descriptors() -> Option<u64> {
    const FOLDER: &str = "/proc/self/fd";
    // Since Linux 6.2 this is the number. Counting takes long if there are many.
    match fs::metadata(FOLDER).ok()?.len() {
        // The folder is itself open while it is read.
        0 => Some(fs::read_dir(FOLDER).ok()?.count().saturating_sub(1) as u64),
        count => Some(count),
    }
}

/// How often the kernel refused a connection because the queue of a listening socket was full. It
/// counts all sockets of the network namespace, since the namespace was made.
fn listen_overflows() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/net/netstat").ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:")).map(str::split_whitespace);
    let (names, values) = (lines.next()?, lines.next()?);
    names.zip(values).find_map(|(name, value)| (name == "ListenOverflows").then_some(value))?.parse().ok()
}

fn certificates_and_snapshots(panel: &Panel, text: &mut Text) {
    let shared = &panel.shared;
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
    if shared.options.snapshot.is_none() {
        return;
    }
    let attempts = shared.snapshots.so_far();
    text.counter("snapshots_total", "Snapshots written.", attempts.written);
    text.counter("snapshot_failures_total", "Snapshots that could not be written.", attempts.failed);
    if let Some(last) = attempts.last {
        text.gauge("snapshot_written_seconds", "When the last snapshot was written, in Unix seconds.", last.at);
        let age = shared.ticker.clock().now().saturating_sub(last.at);
        text.gauge("snapshot_age_seconds", "Seconds since the last snapshot was written.", age);
        let took = last.took.as_secs_f64();
        text.gauge("snapshot_duration_seconds", "How long the writing of the last snapshot took.", took);
        text.gauge("snapshot_items", "Items in the last snapshot.", last.items);
    }
}

fn connections(panel: &Panel, text: &mut Text) {
    let shared = &panel.shared;
    let limit = &shared.connection_limit;
    text.gauge("current_connections", "Open connections.", limit.open());
    text.gauge("connections_limit", "Maximum number of open connections.", limit.limit());
    text.gauge("accepting_connections", "0 while clients have to wait because of `-c`.", u8::from(!limit.is_paused()));
    text.counter("listen_disabled_num_total", "How often clients had to wait because of `-c`.", limit.pauses());
    text.counter(
        "listen_disabled_seconds_total",
        "Time in which clients had to wait because of `-c`.",
        limit.paused_for().as_secs_f64(),
    );
    let longest = shared.common.counters.longest_turn() as f64 / 1e9;
    let help = "About how long the longest turn of a client delayed others, by the work that was done in it.";
    text.gauge("longest_turn_seconds", help, longest);
    let buffers = shared.buffer_limit.held();
    text.gauge("buffers_in_bytes", "Bytes of request buffers.", buffers.inputs);
    text.gauge("buffers_out_bytes", "Bytes of reply buffers.", buffers.outputs);
    text.gauge("buffers_idle_bytes", "Bytes of buffers that no connection uses.", shared.buffer_limit.idle());
    let help = "Connections closed because all buffers together exceeded their limit.";
    text.counter("read_buf_oom_total", help, shared.buffer_limit.closed());
    let (watchers, sent, skipped) = shared.tenants.watchers(shared.common.watch.counts());
    text.gauge("log_watchers", "Clients that receive log lines (`watch`).", watchers);
    text.counter("log_watcher_sent_total", "Log lines sent to clients that receive them (`watch`).", sent);
    text.counter("log_watcher_skipped_total", "Log lines lost because a client (`watch`) read too slowly.", skipped);
    text.counter("log_worker_dropped_total", "Log messages lost because stderr was not read.", log::dropped());
}

fn memory(panel: &Panel, text: &mut Text) {
    let usage = panel.shared.usage();
    text.gauge("current_items", "Items in the cache.", usage.items);
    text.gauge("items_bytes", "Bytes of all items in the cache.", usage.item_bytes);
    text.gauge("memory_limit_bytes", "Limit on the memory of items and table.", usage.limit);
    text.gauge("memory_heap_bytes", "Memory for items, free parts included.", usage.mapped_bytes);
    text.gauge(
        "memory_pinned_bytes",
        "Part of memory_heap_bytes: large values being sent or received in place.",
        usage.pinned_bytes,
    );
    if let Some(memory) = panel.memory() {
        let help = "Where the memory goes. The sum of all kinds is what is mapped for the cache.";
        text.head("memory_bytes", Kind::Gauge, help);
        for (kind, bytes) in memory.parts() {
            text.sample("memory_bytes", format_args!("kind=\"{kind}\""), bytes);
        }
    }
    text.gauge("table_buckets", "Buckets of the hash table.", usage.buckets);
    text.gauge("table_bytes", "Bytes of the hash table.", usage.table_bytes);
    text.gauge("table_is_resizing", "1 while the hash table is resized.", u8::from(usage.is_resizing));
    let limit = panel.shared.options.max_item_size;
    text.gauge("item_limit_bytes", "Maximum size of an item.", limit);
}

fn sweeps(panel: &Panel, text: &mut Text) {
    let sweeps = panel.shared.usage().sweeps;
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
    text.gauge(
        "longest_unused_seconds",
        "Seconds since the last access to the longest unused item of a sample.",
        longest_unused(panel),
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

/// Seconds since the last access to the longest unused item of a sample of each cache.
fn longest_unused(panel: &Panel) -> u32 {
    let tenants = panel.shared.tenants.all();
    let tenants = tenants.iter().map(|tenant| tenant.longest_idle());
    tenants.fold(panel.shared.common.longest_idle(), u32::max)
}

/// The most used keys, by rank. Keys come and go, so a label with their hashes would have any
/// number of values over time.
fn hot_keys(panel: &Panel, text: &mut Text) {
    let reports = hot_keys::Kind::ALL.map(|kind| (kind.name(), panel.hot_keys(kind)));
    let mut family = |name: &str, help: &str, value: &dyn Fn(&Report, &HotKey) -> f64| {
        text.head(name, Kind::Gauge, help);
        for (kind, report) in &reports {
            for (rank, key) in report.iter().flat_map(|report| (1..).zip(&report.keys)) {
                let report = report.as_ref().expect("it has this key");
                text.sample(name, format_args!("kind=\"{kind}\",rank=\"{rank}\""), value(report, key));
            }
        }
    };
    let help = "How often one of the most used keys was used in a second of the last minute.";
    family("hot_key_rate", help, &|report, key| report.per_second(key.events));
    let help = "Bytes of the values of one of the most used keys, in a second of the last minute.";
    family("hot_key_rate_bytes", help, &|report, key| report.per_second(key.bytes));
    let help = "The share that one of the most used keys had in the last minute, from 0 to 1.";
    family("hot_key_share", help, &|report, key| report.share(key));
}

/// Examines only a few buckets. Metrics that need all buckets are as old as the last survey.
fn resizes(panel: &Panel, text: &mut Text) {
    let mut now = TableStats::default();
    panel.shared.common.cache.sample_buckets(&mut now, 0);
    text.counter("table_grows_total", "Resizes to more buckets.", now.grows);
    text.counter("table_shrinks_total", "Resizes to fewer buckets.", now.shrinks);
    text.counter("table_grace_periods_total", "Grace periods that resizes have waited for.", now.grace_periods);
    let resizing = panel.history().resizing().as_secs_f64();
    text.counter("table_resizing_seconds_total", "Time in which the table was resized, by sampling.", resizing);
    text.counter("rcu_grace_periods_total", "Grace periods of the whole process.", relativist_rcu::grace_periods());
    let help = "How long a grace period took at the time of this scrape, 0.1 seconds at most.";
    text.gauge("rcu_grace_period_seconds", help, grace_period().as_secs_f64());
    let (surveyed, _) = panel.look();
    text.gauge("table_longest_chain", "Maximum number of items in a bucket.", surveyed.longest_chain);
    text.head("table_chains", Kind::Gauge, "Buckets by the number of their items.");
    for length in 0..=LONG_CHAIN {
        let lengths = if length < LONG_CHAIN { length..length + 1 } else { length..usize::MAX };
        let counts = surveyed.chain_lengths.iter().enumerate().filter(|(length, _)| lengths.contains(length));
        let buckets: usize = counts.map(|(_, count)| count).sum();
        let more = if length < LONG_CHAIN { "" } else { "+" };
        text.sample("table_chains", format_args!("items=\"{length}{more}\""), buckets);
    }
}

/// Waits for a grace period, but not for long: a reader that stays must not delay the reply.
fn grace_period() -> Duration {
    const MAX_WAIT: Duration = Duration::from_millis(100);
    let (start, period) = (Instant::now(), GracePeriod::start());
    while !period.has_passed() && start.elapsed() < MAX_WAIT {
        thread::sleep(Duration::from_micros(50));
    }
    start.elapsed().min(MAX_WAIT)
}

/// How contended locks are, if the server was built to count that.
fn locks(text: &mut Text) {
    if !contention::ENABLED {
        return;
    }
    let counts = contention::counts();
    let mut family = |name: &str, help: &str, value: &dyn Fn(&Counts) -> f64| {
        text.head(name, Kind::Counter, help);
        for count in &counts {
            text.sample(name, format_args!("site=\"{}\"", count.site), value(count));
        }
    };
    family("lock_acquisitions_total", "How often a lock was taken.", &|count| count.acquisitions as f64);
    family("lock_contended_total", "How often a lock was held by another thread.", &|count| count.contended as f64);
    family("lock_waited_seconds_total", "Time for which threads waited for a lock.", &|count| {
        count.waited.as_secs_f64()
    });
}

fn latencies(panel: &Panel, text: &mut Text) {
    let help = "Execution times of a sample of the commands. Time after a pause is not included.";
    text.head("command_seconds", Kind::Histogram, help);
    for kind in CommandKind::ALL {
        let (times, name) = (panel.shared.common.counters.latencies(kind), kind.name());
        let mut bucket = |bound: &dyn Display, count: u64| {
            text.sample("command_seconds_bucket", format_args!("command=\"{name}\",le=\"{bound}\""), count);
        };
        for (nanoseconds, below) in times.cumulative() {
            bucket(&(nanoseconds as f64 / 1e9), below);
        }
        bucket(&"+Inf", times.count());
        text.sample("command_seconds_sum", format_args!("command=\"{name}\""), times.total().as_secs_f64());
        text.sample("command_seconds_count", format_args!("command=\"{name}\""), times.count());
    }
}
