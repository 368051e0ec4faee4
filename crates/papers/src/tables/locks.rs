//! Locks of buckets, for updates and resizers.

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};
use relativist_rcu::contention::Site;

/// The locks of a table's buckets: one for each initial bucket, up to a maximum, each in its own
/// cache line.
///
/// Lock `i` is that of all buckets `i` modulo the number of locks, as in the striped hash set of
/// Herlihy and Shavit ("The Art of Multiprocessor Programming", section 13.2.2). Tables never get
/// smaller than their initial size. So a hash has the same lock at any size, and all buckets that a
/// resize joins or splits have the same lock: an update need not choose between locks of two
/// arrays.
#[derive(Debug)]
pub(crate) struct Locks<T = ()>(Box<[CachePadded<Mutex<T>>]>);

static LOCKS: Site = Site::new("table_bucket");

/// With this number of locks, threads rarely contend for one, on any machine.
const MAX_LOCKS: usize = 1024;

impl<T: Default> Locks<T> {
    pub(crate) fn new(buckets: usize) -> Self {
        assert!(buckets.is_power_of_two(), "{buckets} is not a power of two");
        Self((0..buckets.min(MAX_LOCKS)).map(|_| CachePadded::new(Mutex::default())).collect())
    }
}

impl<T> Locks<T> {
    /// Locks the bucket of `hash` in every array. `hash` may also be the number of a bucket,
    /// because the bucket is the low bits of a hash.
    #[inline]
    pub(crate) fn lock(&self, hash: u64) -> MutexGuard<'_, T> {
        lock(&LOCKS, &self.0[hash as usize & (self.0.len() - 1)])
    }

    /// Locks all buckets, in the order of their numbers. Other threads hold one lock at a time.
    pub(crate) fn lock_all(&self) -> Vec<MutexGuard<'_, T>> {
        self.0.iter().map(|mutex| lock(&LOCKS, mutex)).collect()
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

/// Locks a mutex, and counts the attempt.
#[inline(always)]
pub(crate) fn lock<'m, T>(site: &'static Site, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
    site.acquire(|| mutex.try_lock(), || mutex.lock())
}

#[cfg(all(test, feature = "contention"))]
mod tests {
    use std::hash::{BuildHasherDefault, DefaultHasher};

    use relativist_rcu::contention::counts;

    use crate::tables::Resize;

    type Hasher = BuildHasherDefault<DefaultHasher>;

    /// Performs every operation once, and checks that the locks of these sites were taken.
    fn use_table<T: Resize>(sites: [&str; 2]) {
        let before = counts();
        let table = T::with_buckets(4);
        assert!(table.insert(1, 2));
        assert_eq!(table.get(1), Some(2));
        assert_eq!(table.remove(1), Some(2));
        table.resize_to(8);
        for site in sites {
            let taken = |count: &relativist_rcu::contention::Counts| count.since(&before).acquisitions > 0;
            assert!(counts().iter().any(|count| count.site == site && taken(count)), "{}: {site}", T::NAME);
        }
    }

    #[test]
    fn contention_is_counted_at_all_sites() {
        use_table::<crate::tables::rwlock::RwLocked<Hasher>>(["rwlock_read", "rwlock_write"]);
        use_table::<crate::tables::mutex::Mutexed<Hasher>>(["mutex", "table_resizer"]);
        use_table::<crate::tables::unzip::Unzip<Hasher>>(["table_bucket", "table_resizer"]);
        use_table::<crate::tables::sorted::Sorted<Hasher>>(["map_bucket", "map_resizer"]);
    }
}
