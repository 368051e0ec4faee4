//! `stats sizing`: what other memory limits would change, and what the memory is used for.

use super::super::Executor;
use super::super::report::Report;
use relativist_store::Ages;
use relativist_store::sizing::{self, FACTORS};
use relativist_store::work::{self, Work};
use std::fmt::Display;

/// The counts that the estimates are made from, about.
const ESTIMATED: usize = 200;

impl Executor<'_> {
    pub(super) fn sizing(&self, report: &mut Report<'_>) {
        work::charge(Work::Items(ESTIMATED));
        match self.tenant.cache.sizing() {
            None => report.stat("sizing", "off"),
            Some(estimates) => {
                report.stat("sizing", "on");
                estimated(&estimates, report);
            }
        }
        let sweeps = self.tenant.counters.sweeps(&self.tenant.cache.usage().sweeps);
        ages("idle", &sweeps.evicted_idle, report);
        ages("lifetime", &sweeps.evicted_lifetime, report);
    }
}

fn estimated(estimates: &sizing::Report, report: &mut Report<'_>) {
    stats! { report,
        seconds: estimates.seconds,
        lookups: estimates.lookups,
        hit_ratio: ratio(estimates.hit_ratio),
    }
    for (factor, estimate) in FACTORS.iter().zip(&estimates.memory) {
        let percent = 100.0 * factor;
        let mut stat = |name: &str, value: &dyn Display| report.stat(format_args!("memory:{percent}:{name}"), value);
        stat("bytes", &estimate.bytes);
        stat("status", &estimate.state.name());
        stat("hit_ratio", &ratio(estimate.trusted()));
    }
    report.stat("working_set:seconds", estimates.working_set_seconds);
    for class in &estimates.working_set {
        let mut stat = |name: &str, value| report.stat(format_args!("working_set:{}:{name}", class.from), value);
        stat("items", class.items);
        stat("bytes", class.bytes);
    }
}

fn ratio(known: Option<f64>) -> String {
    known.map_or("unknown".into(), |ratio| format!("{ratio:.4}"))
}

/// Bounds that a part of the evicted items did not exceed.
fn ages(name: &str, ages: &Ages, report: &mut Report<'_>) {
    for percent in [10, 50, 90] {
        let bound = match ages.quantile(f64::from(percent) / 100.0) {
            Some(bound) => bound.to_string(),
            None if ages.count() > 0 => "inf".into(),
            None => "none".into(),
        };
        report.stat(format_args!("evicted_{name}:p{percent}"), bound);
    }
}
