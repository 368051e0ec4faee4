//! Metrics of each tenant. The label of the users without one is empty.

use super::super::panel::Panel;
use super::super::tenants::TenantUse;
use super::text::{Kind, Text};
use relativist_store::sizing::FACTORS;

pub(super) fn all(panel: &Panel, text: &mut Text) {
    let all = TenantUse::all(panel);
    if all.is_empty() {
        return;
    }
    let mut family = |name: &str, kind: Kind, help: &str, value: &dyn Fn(&TenantUse) -> u64| {
        text.head(name, kind, help);
        for tenant in &all {
            text.sample(name, format_args!("tenant=\"{}\"", tenant.name), value(tenant));
        }
    };
    let (gauge, counter) = (Kind::Gauge, Kind::Counter);
    family("tenant_items", gauge, "Items of a tenant.", &|tenant| tenant.usage.items as u64);
    family("tenant_connections", gauge, "Open connections of a tenant.", &|tenant| tenant.connections as u64);
    let help = "Memory mapped for the items and the table of a tenant.";
    family("tenant_memory_bytes", gauge, help, &|tenant| tenant.memory() as u64);
    let help = "Limit on the memory of a tenant.";
    family("tenant_memory_limit_bytes", gauge, help, &|tenant| tenant.usage.limit as u64);
    family("tenant_evictions_total", counter, "Items evicted of a tenant.", &|tenant| tenant.usage.sweeps.evictions);
    family("tenant_cmd_get_total", counter, "Keys that a tenant asked for.", &|tenant| tenant.totals.cmd_get);
    let help = "Keys that a tenant asked for and found.";
    family("tenant_get_hits_total", counter, help, &|tenant| tenant.totals.get_hits);
    family("tenant_cmd_set_total", counter, "Stores that a tenant attempted.", &|tenant| tenant.totals.cmd_set);
    let help = "Stores of a tenant refused for lack of memory.";
    family("tenant_store_no_memory_total", counter, help, &|tenant| tenant.totals.store_no_memory);
    hit_ratios(&all, text);
}

fn hit_ratios(all: &[TenantUse], text: &mut Text) {
    let name = "tenant_sizing_hit_ratio";
    let help =
        "Estimated hit ratio of a tenant in the last hour with this multiple of its memory, if it can be trusted.";
    text.head(name, Kind::Gauge, help);
    for tenant in all {
        let estimates = tenant.sizing.iter().flat_map(|report| FACTORS.iter().zip(&report.memory));
        for (factor, estimate) in estimates {
            if let Some(ratio) = estimate.trusted() {
                text.sample(name, format_args!("tenant=\"{}\",memory=\"{factor}\"", tenant.name), ratio);
            }
        }
    }
}
