//! `/stats.json`: what the status page is made of.

use super::Panel;
use crate::engine::{Engine, TableStats};
use crate::latency::Kind;
use serde_json::{Value, json};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// At most one part in so many of the time is spent looking at every bucket, however often that is asked for.
const SHARE: u32 = 50;

/// It is not done more often than that in any case.
const LEAST_AGE: Duration = Duration::from_secs(1);

/// What was seen in every bucket.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) stats: TableStats,
    pub(super) taken: Instant,
    pub(super) took: Duration,
}

impl Look {
    pub(super) fn take(look: impl FnOnce() -> TableStats) -> Look {
        let start = Instant::now();
        let stats = look();
        Look { stats, taken: Instant::now(), took: start.elapsed() }
    }

    /// Whether it is too early for another.
    pub(super) fn is_fresh(&self) -> bool {
        self.taken.elapsed() < LEAST_AGE.max(self.took * SHARE)
    }
}

/// All that there is to tell. Counters are sums since the start.
pub(super) fn json<E: Engine>(panel: &Panel<E>) -> Value {
    let service = &panel.service;
    let usage = service.engine.usage();
    let totals = service.counters.since_start();
    let counters: serde_json::Map<String, Value> =
        totals.each().map(|(name, _, value)| (name.into(), value.into())).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "milliseconds": panel.milliseconds(),
        "uptime": service.ticker.clock().now().saturating_sub(service.started),
        "threads": service.options.threads,
        "connections": { "current": service.gate.inside(), "limit": service.gate.limit() },
        "items": usage.items,
        "evictions": usage.sweeps.evictions,
        "memory": {
            "limit": usage.limit,
            "items": usage.item_bytes,
            "heap": usage.heap_bytes,
            "table": usage.table_bytes,
        },
        "counters": counters,
        "latencies": latencies(panel),
        "table": table(panel),
        "history": history(panel),
    })
}

/// For each kind of command the occupied buckets: nanoseconds below which its commands took, and how many they are.
fn latencies<E: Engine>(panel: &Panel<E>) -> Value {
    let buckets = |kind| -> Vec<Value> {
        let times = panel.service.counters.latencies(kind);
        times.occupied().map(|(bound, count)| json!([bound, count])).collect()
    };
    Kind::ALL.iter().map(|kind| (kind.name().to_owned(), Value::from(buckets(*kind)))).collect()
}

fn table<E: Engine>(panel: &Panel<E>) -> Value {
    let look = panel.look();
    json!({
        "age": look.taken.elapsed().as_secs_f64(),
        "buckets": look.stats.buckets,
        "entries": look.stats.entries,
        "chain_lengths": look.stats.chain_lengths,
        "grows": look.stats.grows,
        "shrinks": look.stats.shrinks,
        "grace_periods": look.stats.grace_periods,
    })
}

fn history<E: Engine>(panel: &Panel<E>) -> Value {
    let history = panel.history.lock().unwrap_or_else(PoisonError::into_inner);
    history.moments().map(|moment| json!([moment.at, moment.items, moment.buckets, moment.is_resizing])).collect()
}
