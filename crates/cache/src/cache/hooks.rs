//! Code that tests run between the steps of the cache. Only with the feature `test-hooks`.

use crate::TableStats;
use crate::cache::Cache;

/// What a test runs in between.
pub trait Hooks: Send + Sync {
    /// Runs after a lookup of one key.
    fn after_get(&self, _cache: &Cache, _key: &[u8]) {}

    /// Replaces [`Cache::sample_buckets`]; none to let it do its work.
    fn sample_buckets(&self, _stats: &mut TableStats, _cursor: u64) -> Option<Option<u64>> {
        None
    }
}
