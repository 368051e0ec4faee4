//! Code that tests run between the steps of the cache. Only with the feature `test-hooks`.

use crate::TableStats;
use crate::cache::Cache;

/// The code of a test.
pub trait Hooks: Send + Sync {
    /// Runs after a lookup of one key.
    fn after_get(&self, _cache: &Cache, _key: &[u8]) {}

    /// Replaces [`Cache::sample_buckets`], unless it returns none.
    fn sample_buckets(&self, _stats: &mut TableStats, _cursor: u64) -> Option<Option<u64>> {
        None
    }
}
