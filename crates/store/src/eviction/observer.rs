//! Observation of evictions.

use crate::item::hit::Hit;

/// Observes evictions.
pub trait EvictionObserver: Send + Sync {
    /// Whether evictions are of interest now. Called once per block.
    fn is_watching(&self) -> bool;

    /// An item was evicted. Called on the thread that makes room, so it should be short; must not
    /// call the cache.
    fn evicted(&self, hit: Hit<'_>);
}
