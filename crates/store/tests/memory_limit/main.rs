//! Tests of the memory limit, with and without eviction.

use relativist_testing as _;

use relativist_store::{Cache, Clock, Content, Lookup, Mode, Store};
use std::sync::Arc;

mod breakdown;
mod expiry;
mod limit;
mod pins;
mod sweeps;
mod without_eviction;

const NOW: u32 = 1_700_000_000;
const MAX_VALUE: usize = 4 << 20;

fn cache(limit: usize) -> (Cache, Arc<Clock>) {
    let clock = Arc::new(Clock::new(NOW));
    (Cache::new(Arc::clone(&clock), limit, MAX_VALUE).unwrap(), clock)
}

fn set(cache: &Cache, key: &str, value: &[u8]) -> Store {
    set_until(cache, key, value, 0)
}

fn set_until(cache: &Cache, key: &str, value: &[u8], exptime: i32) -> Store {
    let stored = cache.store(Mode::Set, key.as_bytes(), Content { flags: 0, exptime, value });
    let usage = cache.usage();
    assert!(usage.mapped_bytes + usage.table_bytes <= usage.limit, "{usage:?}");
    assert!(usage.item_bytes <= usage.mapped_bytes, "{usage:?}");
    stored
}

fn has(cache: &Cache, key: &str) -> bool {
    cache.get(key.as_bytes(), |_| ()) == Lookup::Hit
}

fn key(index: usize) -> String {
    format!("key{index:07}")
}

/// Stores numbered items until one is refused or evicted, and returns their number.
fn fill(cache: &Cache, value: &[u8]) -> usize {
    let before = cache.usage().sweeps.evictions;
    let is_full = |index: &usize| {
        set(cache, &key(*index), value) == Store::OutOfMemory || cache.usage().sweeps.evictions > before
    };
    (0..).find(is_full).unwrap()
}
