//! Values that notice when they are torn, used after they were dropped, or dropped twice, and that
//! are counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use relativist::Relocatable;
use relativist_testing::wait_until;

use relativist_testing::random::mix;

/// Counts the values made and dropped, and what is wrong with them. (Drops happen on threads where
/// a panic would not fail the test.)
///
/// Each test has a static one, because ThreadSanitizer reports the drop of an `Arc` as a race.
pub struct Tally {
    made: AtomicU64,
    dropped: AtomicU64,
    faults: AtomicU64,
}

impl Tally {
    pub const fn new() -> Self {
        Self { made: AtomicU64::new(0), dropped: AtomicU64::new(0), faults: AtomicU64::new(0) }
    }

    /// Returns the number of values that are alive, including those that wait for their grace
    /// period.
    pub fn live(&self) -> u64 {
        self.made.load(Relaxed) - self.dropped.load(Relaxed)
    }

    /// Checks that this many values are alive when everything was reclaimed, and that none was
    /// faulty. That may take a moment:
    /// other threads run deferred functions, too.
    #[track_caller]
    pub fn assert_live(&self, expected: u64) {
        wait_until(&format!("{expected} values to be left"), || {
            relativist_rcu::barrier();
            self.live() == expected
        });
        assert_eq!(self.faults.load(Relaxed), 0, "values were dropped twice or overwritten");
    }
}

/// A value of a key, which describes itself: 64 bytes on its own cache line, so that allocations
/// are reused soon.
///
/// The fields are plain, so that sanitizers see every unsynchronized access.
#[repr(align(64))]
pub struct Tracked {
    key: u64,
    id: u64,
    not_id: u64,
    mixed: u64,
    tally: &'static Tally,
}

// SAFETY: the fields do not change, except when the value is dropped.
unsafe impl Relocatable for Tracked {}

impl Tracked {
    /// What is left in a value that was dropped.
    const POISON: u64 = 0xDEAD_DEAD_DEAD_DEAD;

    pub fn new(key: u64, tally: &'static Tally) -> Self {
        let id = tally.made.fetch_add(1, Relaxed);
        Self { key, id, not_id: !id, mixed: mix(key ^ id), tally }
    }

    /// Returns a number that is different for each value of a tally.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Panics unless the value is intact and belongs to this key.
    #[track_caller]
    pub fn assert_of(&self, key: u64) {
        assert_eq!(self.key, key, "a value of another key, or a freed one");
        assert!(self.is_whole(), "a torn value: {:#x} {:#x} {:#x}", self.id, self.not_id, self.mixed);
    }

    fn is_whole(&self) -> bool {
        self.not_id == !self.id && self.mixed == mix(self.key ^ self.id)
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.tally.dropped.fetch_add(1, Relaxed);
        self.tally.faults.fetch_add(u64::from(!self.is_whole()), Relaxed);
        for field in [&mut self.key, &mut self.id, &mut self.not_id, &mut self.mixed] {
            // SAFETY: a field of ours. Volatile, because the compiler would leave out stores to
            // what is about to be freed.
            unsafe { std::ptr::write_volatile(field, Self::POISON) };
        }
    }
}
