//! `/metrics`: the same in the text format of Prometheus. Counters have the names that `stats` gives them.

use super::Panel;
use crate::engine::Engine;
use crate::latency::Kind;
use std::fmt::{Display, Write};

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

pub(super) fn text<E: Engine>(panel: &Panel<E>) -> String {
    let service = &panel.service;
    let usage = service.engine.usage();
    let mut text = Text(String::new());
    text.head("info", "gauge", "The version in a label.");
    text.line(format_args!("relativistd_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")));
    text.gauge("start_time_seconds", "When the server started, in Unix seconds.", service.started);
    text.gauge("connections", "Open connections.", service.gate.inside());
    text.gauge("connections_limit", "Connections that may be open.", service.gate.limit());
    text.gauge("items", "Items stored.", usage.items);
    text.gauge("items_bytes", "Bytes of these items.", usage.item_bytes);
    text.gauge("memory_limit_bytes", "What items and table may occupy.", usage.limit);
    text.gauge("memory_heap_bytes", "Memory for items, free parts included.", usage.heap_bytes);
    text.gauge("memory_lent_bytes", "Of that, large values that are sent or received in place.", usage.lent_bytes);
    text.gauge("table_buckets", "Buckets of the hash table.", usage.buckets);
    text.gauge("table_bytes", "Bytes of the hash table.", usage.table_bytes);
    text.gauge("table_is_resizing", "1 while the hash table is resized.", u8::from(usage.is_resizing));
    text.counter("evictions_total", "Items evicted.", usage.sweeps.evictions);
    for (name, help, value) in service.counters.since_start().each() {
        let name = name.strip_prefix("total_").unwrap_or(name);
        text.counter(&format!("{name}_total"), help, value);
    }
    resizes(panel, &mut text);
    latencies(panel, &mut text);
    text.0
}

fn resizes<E: Engine>(panel: &Panel<E>, text: &mut Text) {
    let stats = panel.look().stats;
    text.counter("table_grows_total", "Resizes to more buckets.", stats.grows);
    text.counter("table_shrinks_total", "Resizes to fewer buckets.", stats.shrinks);
    text.counter("table_grace_periods_total", "Grace periods that resizes have waited for.", stats.grace_periods);
    text.gauge("table_longest_chain", "Most items in a bucket.", stats.longest_chain);
}

fn latencies<E: Engine>(panel: &Panel<E>, text: &mut Text) {
    text.head(
        "command_seconds",
        "histogram",
        "Times of execution of a sample of the commands, without what follows a pause.",
    );
    for kind in Kind::ALL {
        let (times, name) = (panel.service.counters.latencies(kind), kind.name());
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
