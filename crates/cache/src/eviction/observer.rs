//! Watching what is evicted.

use crate::item::hit::Hit;

/// Somebody who may want to know what is evicted.
pub trait EvictionObserver: Send + Sync {
    /// Whether he does, now. Asked once per block.
    fn is_watching(&self) -> bool;

    /// An item had to make room. Called by a thread that has better things to do; must not call the engine.
    fn evicted(&self, hit: Hit<'_>);
}
