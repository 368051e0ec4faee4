//! Metrics for sizing: other memory limits, the working set, and the ages of evicted items.

use super::super::panel::Panel;
use super::text::{Kind, Text};
use relativist_store::Ages;
use relativist_store::sizing::{FACTORS, Report};

pub(super) fn all(panel: &Panel, text: &mut Text) {
    let cache = &panel.shared.common.cache;
    if let Some(report) = cache.sizing() {
        hit_ratios(&report, text);
        working_set(&report, text);
    }
    let sweeps = cache.usage().sweeps;
    let help = "Time since the last access to evicted items.";
    ages("evicted_idle_seconds", help, &sweeps.evicted_idle, text);
    ages("evicted_lifetime_seconds", "Time since evicted items were stored.", &sweeps.evicted_lifetime, text);
}

fn hit_ratios(report: &Report, text: &mut Text) {
    let help = "Estimated hit ratio of the last hour with this multiple of the memory, if it can be trusted.";
    text.head("sizing_hit_ratio", Kind::Gauge, help);
    for (factor, estimate) in FACTORS.iter().zip(&report.memory) {
        if let Some(ratio) = estimate.trusted() {
            text.sample("sizing_hit_ratio", format_args!("memory=\"{factor}\""), ratio);
        }
    }
    text.head("sizing_is_ready", Kind::Gauge, "Whether there is such an estimate: 1 or 0.");
    for (factor, estimate) in FACTORS.iter().zip(&report.memory) {
        let is_ready = u8::from(estimate.trusted().is_some());
        text.sample("sizing_is_ready", format_args!("memory=\"{factor}\""), is_ready);
    }
}

fn working_set(report: &Report, text: &mut Text) {
    let help = "Estimated number of items used in the last hour, by size. A class ends at four times its first size.";
    text.head("working_set_items", Kind::Gauge, help);
    for class in &report.working_set {
        text.sample("working_set_items", format_args!("from=\"{}\"", class.from), class.items);
    }
    text.head("working_set_bytes", Kind::Gauge, "Estimated bytes of the items used in the last hour, by size.");
    for class in &report.working_set {
        text.sample("working_set_bytes", format_args!("from=\"{}\"", class.from), class.bytes);
    }
}

fn ages(name: &str, help: &str, ages: &Ages, text: &mut Text) {
    text.head(name, Kind::Histogram, help);
    let bucket = format!("{name}_bucket");
    for (bound, below) in ages.cumulative() {
        text.sample(&bucket, format_args!("le=\"{bound}\""), below);
    }
    text.sample(&bucket, format_args!("le=\"+Inf\""), ages.count());
    text.sample(&format!("{name}_sum"), format_args!(""), ages.sum());
    text.sample(&format!("{name}_count"), format_args!(""), ages.count());
}
