//! `/stats.json`: the data of the status page.

use super::Panel;
use super::tenants::TenantUse;
use crate::observability::hot_keys::{self, HotKey};
use crate::observability::latency::Kind;
use relativist_store::Ages;
use relativist_store::sizing::{FACTORS, Report};
use serde_json::{Value, json};
use std::mem;
use std::time::{Duration, Instant};

/// Maximum number of pieces that one call surveys, in one or two milliseconds. A piece is some
/// buckets of the table, or some items.
const PIECES: usize = 1024;

/// A new survey begins when the result of the last one is this old.
const MIN_AGE: Duration = Duration::from_secs(1);

/// A survey of the whole table, which each request and each tick advances, and the result of the
/// last one.
#[derive(Debug, Default)]
pub(super) struct Survey<T> {
    /// The result so far.
    stats: T,
    /// The next position; none between surveys.
    cursor: Option<u64>,
    last: Option<(T, Instant)>,
}

impl<T: Clone + Default> Survey<T> {
    /// Whether a survey has begun and not ended.
    pub(super) fn is_in_progress(&self) -> bool {
        self.cursor.is_some()
    }

    /// Continues a survey, or begins one if the last result is old. Calls `piece` at most
    /// [`PIECES`] times.
    pub(super) fn refresh(&mut self, piece: impl FnMut(&mut T, u64) -> Option<u64>) {
        let is_fresh = self.last.as_ref().is_some_and(|(_, taken)| taken.elapsed() < MIN_AGE);
        if self.is_in_progress() || !is_fresh {
            self.go_on(piece);
        }
    }

    /// Like [`refresh`](Self::refresh), but begins a survey even if the last result is fresh.
    pub(super) fn go_on(&mut self, mut piece: impl FnMut(&mut T, u64) -> Option<u64>) {
        let mut cursor = self.cursor.unwrap_or(0);
        for _ in 0..PIECES {
            match piece(&mut self.stats, cursor) {
                Some(next) => cursor = next,
                None => {
                    self.cursor = None;
                    self.last = Some((mem::take(&mut self.stats), Instant::now()));
                    return;
                }
            }
        }
        self.cursor = Some(cursor);
    }

    /// The result of the last survey and its age. During the first survey: its result so far.
    pub(super) fn result(&self) -> (T, Duration) {
        self.last().unwrap_or_else(|| (self.stats.clone(), Duration::ZERO))
    }

    /// The result of the last survey and its age, if one has ended.
    pub(super) fn last(&self) -> Option<(T, Duration)> {
        self.last.as_ref().map(|(stats, taken)| (stats.clone(), taken.elapsed()))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use relativist_store::TableStats;

    #[test]
    fn a_survey_advances_by_pieces_and_pauses_after_its_end() {
        let (mut survey, mut pieces) = (Survey::default(), 0);
        let mut look = |survey: &mut Survey<TableStats>| {
            let before = pieces;
            survey.refresh(|stats, cursor| {
                pieces += 1;
                stats.longest_chain = pieces;
                (cursor < 2 * PIECES as u64).then_some(cursor + 1)
            });
            (pieces - before, survey.is_in_progress(), survey.result().0.longest_chain)
        };
        assert_eq!(look(&mut survey), (PIECES, true, PIECES), "so far");
        assert_eq!(look(&mut survey), (PIECES, true, 2 * PIECES));
        assert_eq!(look(&mut survey), (1, false, 2 * PIECES + 1));
        assert_eq!(look(&mut survey), (0, false, 2 * PIECES + 1), "it is fresh");
        survey.last.as_mut().unwrap().1 -= MIN_AGE;
        assert_eq!(look(&mut survey), (PIECES, true, 2 * PIECES + 1), "what the last one has found");
    }
}
