//! What each tenant has and does, for metrics and the status page.

use super::panel::Panel;
use crate::observability::stats::Totals;
use relativist_store::{Usage, sizing};

/// What a tenant has and does.
pub(super) struct TenantUse {
    /// The name in the file of users, which bounds its length and its characters; empty for the
    /// users without a tenant.
    pub(super) name: String,
    pub(super) usage: Usage,
    /// The counters since the start.
    pub(super) totals: Totals,
    /// The number of open connections.
    pub(super) connections: usize,
    /// Estimates of other memory limits.
    pub(super) sizing: Option<sizing::Report>,
}

impl TenantUse {
    /// The users without a tenant, then all tenants in the order of their file. Empty if there are
    /// no tenants.
    pub(super) fn all(panel: &Panel) -> Vec<TenantUse> {
        let mut all = Vec::new();
        panel.shared.each_tenant(|tenant| {
            all.push(TenantUse {
                name: tenant.name.clone(),
                usage: tenant.cache.usage(),
                totals: tenant.counters.since_start(),
                connections: panel.shared.connections_of(tenant),
                sizing: tenant.cache.sizing(),
            });
        });
        if all.len() > 1 { all } else { Vec::new() }
    }

    /// Memory mapped for items and table.
    pub(super) fn memory(&self) -> usize {
        self.usage.mapped_bytes + self.usage.table_bytes
    }
}
