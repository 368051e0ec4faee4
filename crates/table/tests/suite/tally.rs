//! Counts objects.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use relativist_testing::wait_until;

/// Counts the objects that were made and dropped.
pub struct Tally {
    made: AtomicU64,
    dropped: AtomicU64,
}

impl Tally {
    pub const fn new() -> Self {
        Self { made: AtomicU64::new(0), dropped: AtomicU64::new(0) }
    }

    /// Returns the number of objects that are alive, including those that wait for their grace
    /// period.
    pub fn live(&self) -> u64 {
        self.made.load(Relaxed) - self.dropped.load(Relaxed)
    }

    /// Checks that this many objects are alive when everything was reclaimed.
    #[track_caller]
    pub fn assert_live(&self, expected: u64) {
        wait_until(&format!("{expected} objects to be left"), || {
            relativist_rcu::barrier();
            self.live() == expected
        });
    }
}

/// A part of an object, by which it is counted.
pub struct Counted {
    id: u64,
    tally: &'static Tally,
}

impl Counted {
    pub fn new(tally: &'static Tally) -> Self {
        Self { id: tally.made.fetch_add(1, Relaxed), tally }
    }

    /// Returns a number that is different for each object of a tally.
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.tally.dropped.fetch_add(1, Relaxed);
    }
}
