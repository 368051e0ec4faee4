//! The caches of all tenants.

use super::Plan;
#[cfg(feature = "global-lock")]
use crate::options::EngineKind;
use crate::options::Options;
use crate::security::auth::TenantLine;
use relativist_store::{Cache, Clock, OutOfMemory};
use std::sync::Arc;

/// The caches of a server that starts.
pub(crate) struct Caches {
    /// That of the users without a tenant.
    pub(crate) common: Cache,
    pub(crate) tenants: Vec<(TenantLine, Cache)>,
}

impl Caches {
    /// Empty caches for all that are in the `plan`.
    pub(crate) fn new(plan: &Plan, clock: &Arc<Clock>, options: &Options) -> Result<Caches, OutOfMemory> {
        let tenants = plan.tenants.iter();
        let tenants = tenants.map(|(line, bytes)| Ok((line.clone(), empty_cache(clock, options, *bytes)?)));
        Ok(Caches { common: empty_cache(clock, options, plan.rest)?, tenants: tenants.collect::<Result<_, _>>()? })
    }

    /// The cache of the tenant with this name; the empty name is that of the users without a
    /// tenant.
    pub(crate) fn named(&self, name: &str) -> Option<&Cache> {
        if name.is_empty() {
            return Some(&self.common);
        }
        self.tenants.iter().find_map(|(line, cache)| (line.name == name).then_some(cache))
    }

    /// The same caches, whose CAS values are larger than `last`.
    pub(crate) fn with_cas_after(self, last: u64) -> Caches {
        let tenants = self.tenants.into_iter().map(|(line, cache)| (line, cache.with_cas_after(last))).collect();
        Caches { common: self.common.with_cas_after(last), tenants }
    }
}

/// An empty cache of `bytes`.
pub(crate) fn empty_cache(clock: &Arc<Clock>, options: &Options, bytes: usize) -> Result<Cache, OutOfMemory> {
    let cache = Cache::new(Arc::clone(clock), bytes, options.max_key_and_value())?;
    // Tests replay transcripts of a server whose CAS values began at 1.
    let cache = if options.debug_time { cache } else { cache.with_random_cas() };
    let cache = if options.disable_evictions { cache.without_eviction() } else { cache };
    let cache = if options.no_sizing { cache } else { cache.with_sizing(options.threads.into()) };
    #[cfg(feature = "global-lock")]
    let cache = if options.engine == EngineKind::GlobalLock { cache.with_global_lock() } else { cache };
    cache.set_evict_for(options.extended.evict_for);
    Ok(cache)
}
