//! Code that all resizers share: mutual exclusion, and statistics about their costs.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use relativist_rcu::contention::Site;

use crate::tables::locks::lock;

/// The costs of all resizes since the table was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// The number of times that a resize has waited for readers.
    pub waits: u64,
    /// The size of all bucket arrays in bytes, including auxiliary ones and those that wait to be
    /// freed.
    pub bytes: usize,
    /// The maximum of `bytes` so far.
    pub peak_bytes: usize,
}

static RESIZER: Site = Site::new("table_resizer");

/// Ensures mutual exclusion of resizers. In its own cache line in each table, so that changes do
/// not slow down lookups.
#[derive(Debug, Default)]
pub(crate) struct Resizer {
    mutex: Mutex<()>,
    waits: AtomicU64,
    bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
}

impl Resizer {
    /// Creates the state of a table with `bytes` bytes of buckets.
    pub(crate) fn with_bytes(bytes: usize) -> Self {
        let resizer = Self::default();
        resizer.add_bytes(bytes);
        resizer
    }

    /// Waits for other resizers, and checks that this one may wait for readers.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        assert!(!relativist_rcu::is_reading(), "resizing waits for readers, and so can't be done by one");
        lock(&RESIZER, &self.mutex)
    }

    /// Waits for readers.
    pub(crate) fn wait_for_readers(&self) {
        relativist_rcu::wait_for_readers();
        self.count_wait();
    }

    pub(crate) fn count_wait(&self) {
        // Relaxed, here and below: statistics, which order nothing.
        self.waits.fetch_add(1, Relaxed);
    }

    pub(crate) fn add_bytes(&self, bytes: usize) {
        let now = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        self.peak_bytes.fetch_max(now, Relaxed);
    }

    pub(crate) fn subtract_bytes(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn costs(&self) -> Costs {
        Costs {
            waits: self.waits.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            peak_bytes: self.peak_bytes.load(Relaxed),
        }
    }
}
