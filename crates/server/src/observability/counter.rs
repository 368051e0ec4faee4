//! A counter of one thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread increases and all threads may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`. Only for the one thread that owns the counter: two would lose counts.
    pub fn add(&self, amount: u64) {
        // Relaxed: no other data depends on the count. A load and a store suffice for a single
        // writer.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Adds one. Only for the owner, like [`add`](Self::add).
    pub fn bump(&self) {
        self.add(1);
    }

    /// Changes the number. Only for the owner, like [`add`](Self::add).
    pub(crate) fn set(&self, number: u64) {
        // Relaxed: as in `add`.
        self.0.store(number, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        // Relaxed: as in `add`.
        self.0.load(Ordering::Relaxed)
    }
}
