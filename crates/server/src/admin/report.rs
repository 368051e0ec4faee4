//! `/stats.json`: the data of the status page.

use super::panel::Panel;
use super::tenants::TenantUse;
use crate::observability::hot_keys::{self, HotKey};
use crate::observability::latency::Kind;
use relativist_store::Ages;
use relativist_store::sizing::{FACTORS, Report};
use serde_json::{Value, json};

/// All statistics as JSON. Counters are sums since the start.
pub(super) fn json(panel: &Panel) -> Value {
    let shared = &panel.shared;
    let usage = shared.usage();
    let totals = shared.since_start();
    let counters: serde_json::Map<String, Value> =
        totals.each().map(|(name, _, value)| (name.into(), value.into())).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "milliseconds": panel.milliseconds(),
        "uptime": shared.ticker.clock().now().saturating_sub(shared.started),
        "threads": shared.options.threads,
        "connections": { "current": shared.connection_limit.open(), "limit": shared.connection_limit.limit() },
        "items": usage.items,
        "evictions": usage.sweeps.evictions,
        "memory": {
            "limit": usage.limit,
            // The parts are those of the cache of the users without a tenant, and so is this limit.
            "parts_limit": shared.common.cache.usage().limit,
            "items": usage.item_bytes,
            "heap": usage.mapped_bytes,
            "table": usage.table_bytes,
            "parts": panel.memory().map(|memory| memory.parts()),
        },
        "counters": counters,
        "tenants": tenants(panel),
        "hot_keys": hot_keys(panel),
        "sizing": sizing(panel),
        "evicted": { "idle": ages(&usage.sweeps.evicted_idle), "lifetime": ages(&usage.sweeps.evicted_lifetime) },
        "latencies": latencies(panel),
        "table": table(panel),
        "history": history(panel),
    })
}

/// For each kind of command, the non-empty buckets: the upper bound in nanoseconds, and the number
/// of commands.
fn latencies(panel: &Panel) -> Value {
    let buckets = |kind| -> Vec<Value> {
        let times = panel.shared.common.counters.latencies(kind);
        times.occupied().map(|(bound, count)| json!([bound, count])).collect()
    };
    Kind::ALL.iter().map(|kind| (kind.name().to_owned(), Value::from(buckets(*kind)))).collect()
}

/// For each kind of use, the most used keys: name, uses per second, bytes per second and share of
/// all uses.
fn hot_keys(panel: &Panel) -> Value {
    let keys = |kind| -> Option<Vec<Value>> {
        let report = panel.hot_keys(kind)?;
        let key = |key: &HotKey| {
            json!([key.name, report.per_second(key.events), report.per_second(key.bytes), report.share(key)])
        };
        Some(report.keys.iter().map(key).collect())
    };
    hot_keys::Kind::ALL.iter().map(|kind| (kind.name().to_owned(), json!(keys(*kind)))).collect()
}

/// Each tenant; none if there are no tenants. The counters are sums since the start.
fn tenants(panel: &Panel) -> Vec<Value> {
    let json = |tenant: &TenantUse| {
        json!({
            "name": tenant.name,
            "items": tenant.usage.items,
            "connections": tenant.connections,
            "memory": tenant.memory(),
            "limit": tenant.usage.limit,
            "evictions": tenant.usage.sweeps.evictions,
            "cmd_get": tenant.totals.cmd_get,
            "get_hits": tenant.totals.get_hits,
            "estimates": tenant.sizing.as_ref().map(estimates),
        })
    };
    TenantUse::all(panel).iter().map(json).collect()
}

/// The hit ratio, and the estimated ones. The working set: smallest size, items and bytes of each
/// class.
fn sizing(panel: &Panel) -> Option<Value> {
    let report = panel.shared.common.cache.sizing()?;
    let classes = report.working_set.iter().map(|class| json!([class.from, class.items, class.bytes]));
    Some(json!({
        "seconds": report.seconds,
        "lookups": report.lookups,
        "hit_ratio": report.hit_ratio,
        "memory": estimates(&report),
        "working_set_seconds": report.working_set_seconds,
        "working_set": classes.collect::<Vec<Value>>(),
    }))
}

/// Hit ratios with other memory limits: factor, bytes, state and ratio.
fn estimates(report: &Report) -> Vec<Value> {
    let memory = FACTORS.iter().zip(&report.memory);
    memory.map(|(factor, it)| json!([factor, it.bytes, it.state.name(), it.trusted()])).collect()
}

/// Bounds that a tenth, half, and nine tenths of the evicted items did not exceed.
fn ages(ages: &Ages) -> Value {
    json!([0.1, 0.5, 0.9].map(|part| ages.quantile(part)))
}

fn table(panel: &Panel) -> Value {
    let (stats, age) = panel.look();
    json!({
        "age": age.as_secs_f64(),
        "buckets": stats.buckets,
        "entries": stats.entries,
        "chain_lengths": stats.chain_lengths,
        "grows": stats.grows,
        "shrinks": stats.shrinks,
        "grace_periods": stats.grace_periods,
    })
}

fn history(panel: &Panel) -> Value {
    panel
        .history()
        .moments()
        .map(|moment| json!([moment.at, moment.items, moment.buckets, moment.is_resizing]))
        .collect()
}
