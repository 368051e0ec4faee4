//! Locks of buckets, for updates and resizers.

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};

/// The locks of a table's buckets: as many as the table had buckets when it was made (and not more than that are of use), each on a line of
/// its own.
///
/// Lock `i` is that of all buckets `i` modulo the number of locks, as in the striped hash set of Herlihy and Shavit ("The Art of
/// Multiprocessor Programming", section 13.2.2). Since tables never get smaller than that, a hash has the same lock whatever their
/// size, and so have all buckets that a resize joins or parts: nobody has to find out which of two arrays' locks counts.
#[derive(Debug)]
pub(crate) struct Locks<T = ()>(Box<[CachePadded<Mutex<T>>]>);

/// With more locks than this, threads of any machine rarely meet.
const MOST: usize = 1024;

impl<T: Default> Locks<T> {
    pub(crate) fn new(buckets: usize) -> Self {
        assert!(buckets.is_power_of_two(), "{buckets} is not a power of two");
        Self((0..buckets.min(MOST)).map(|_| CachePadded::new(Mutex::default())).collect())
    }
}

impl<T> Locks<T> {
    /// Locks the bucket of `hash` in every array. Takes a bucket's number as well: it is the low bits of a hash.
    #[inline]
    pub(crate) fn lock(&self, hash: u64) -> MutexGuard<'_, T> {
        self.0[hash as usize & (self.0.len() - 1)].lock()
    }

    /// Locks all buckets, in the order of their numbers; others hold one lock at a time.
    pub(crate) fn lock_all(&self) -> Vec<MutexGuard<'_, T>> {
        self.0.iter().map(|lock| lock.lock()).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Checks a number of buckets.
    pub(crate) fn assert_enough(&self, buckets: usize) {
        assert!(buckets.is_power_of_two(), "{buckets} is not a power of two");
        assert!(buckets >= self.0.len(), "the table was made with more buckets than {buckets}");
    }
}
