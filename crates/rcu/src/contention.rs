//! Statistics about lock contention, per *site*, that is, per kind of lock: the number of
//! acquisitions, the number of those that found the lock held, and the time that these waited. Like
//! Poettering's mutrace, which the ATC 2011 paper used, this is for measurements.
//!
//! Without the feature `contention` nothing is counted: a [`Site`] is only a name, taking a lock
//! has no overhead, and [`counts`] is empty.
//!
//! Counters are spread over threads, each in its own cache line, so that counting adds little
//! contention. Each acquisition takes an additional atomic increment and, if another thread holds
//! the lock, two readings of the clock. Do not use this in processes that fork while they have
//! several threads.
//!
//! ```
//! use relativist_rcu::contention::{self, Site};
//! use std::sync::Mutex;
//!
//! static BALANCE: Site = Site::new("balance");
//!
//! let balance = Mutex::new(0);
//! *BALANCE.lock(&balance) += 1;
//! let counts = contention::counts().into_iter().find(|counts| counts.site == "balance");
//! assert_eq!(counts.map(|counts| counts.acquisitions), contention::ENABLED.then_some(1));
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Whether acquisitions are counted, that is, whether the feature `contention` is on.
pub const ENABLED: bool = cfg!(feature = "contention");

/// A kind of lock. [`counts`] lists it after the first attempt to take such a lock.
pub struct Site {
    name: &'static str,
    #[cfg(feature = "contention")]
    counters: counting::Counters,
}

/// The counts of a site since the process began. While locks are in use, the numbers may not match
/// each other exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The name of the site.
    pub site: &'static str,
    /// The number of times that such a lock was taken.
    pub acquisitions: u64,
    /// The number of attempts that found the lock held by another thread. They waited, or failed if
    /// they only tried.
    pub contended: u64,
    /// The total time that threads have waited for locks, not counting attempts that failed.
    pub waited: Duration,
}

impl Counts {
    /// Returns the difference to earlier counts.
    #[must_use]
    pub fn since(self, before: &[Self]) -> Self {
        match before.iter().find(|before| before.site == self.site) {
            None => self,
            Some(before) => Self {
                acquisitions: self.acquisitions - before.acquisitions,
                contended: self.contended - before.contended,
                waited: self.waited - before.waited,
                ..self
            },
        }
    }
}

/// Returns the counts of all sites with attempts so far, sorted by name. Empty without the feature.
#[must_use]
pub fn counts() -> Vec<Counts> {
    #[cfg(feature = "contention")]
    return counting::all();
    #[cfg(not(feature = "contention"))]
    Vec::new()
}

impl Site {
    /// Creates a site. The name should be short, and have underscores instead of blanks, because it
    /// becomes part of the names of statistics.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            #[cfg(feature = "contention")]
            counters: counting::Counters::new(),
        }
    }

    /// Returns the name of the site.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Begins an attempt to take a lock.
    #[inline(always)]
    pub fn attempt(&'static self) -> Attempt {
        Attempt {
            #[cfg(feature = "contention")]
            site: self,
            #[cfg(feature = "contention")]
            held_since: None,
        }
    }

    /// Counts an attempt that does not wait for the lock, and takes it or fails.
    #[inline(always)]
    pub fn count_try(&'static self, has_succeeded: bool) {
        let mut attempt = self.attempt();
        if has_succeeded { attempt.acquired() } else { attempt.contended() }
    }

    /// Takes a lock by calling `lock`. If acquisitions are counted, calls `try_lock` first.
    #[inline(always)]
    pub fn acquire<G>(&'static self, try_lock: impl FnOnce() -> Option<G>, lock: impl FnOnce() -> G) -> G {
        if !ENABLED {
            return lock();
        }
        let mut attempt = self.attempt();
        let guard = try_lock().unwrap_or_else(|| {
            attempt.contended();
            lock()
        });
        attempt.acquired();
        guard
    }

    /// Locks a mutex. Ignores poisoning.
    #[inline(always)]
    pub fn lock<'m, T>(&'static self, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
        let try_lock = || match mutex.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        self.acquire(try_lock, || mutex.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An attempt to take a lock. Use it for locks for which [`Site::acquire`] is unsuitable. If it is
/// dropped, it counts as failed.
#[must_use]
pub struct Attempt {
    #[cfg(feature = "contention")]
    site: &'static Site,
    #[cfg(feature = "contention")]
    held_since: Option<std::time::Instant>,
}

impl Attempt {
    /// Records that another thread holds the lock, and that the attempt waits from now on. Further
    /// calls have no effect.
    #[inline(always)]
    pub fn contended(&mut self) {
        #[cfg(feature = "contention")]
        self.held_since.get_or_insert_with(|| {
            self.site.counters.count_contended(self.site);
            std::time::Instant::now()
        });
    }

    /// Records that the lock was taken.
    #[inline(always)]
    pub fn acquired(self) {
        #[cfg(feature = "contention")]
        self.site.counters.count_acquired(self.site, self.held_since.map(|since| since.elapsed()));
    }
}

#[cfg(feature = "contention")]
mod counting {
    use std::cell::Cell;
    use std::iter::successors;
    use std::sync::{Mutex, MutexGuard, Once, PoisonError};
    use std::time::Duration;

    use super::{Counts, Site};
    use relativist_core::sync::statistics::{AtomicU64, AtomicUsize, Ordering::Relaxed};

    /// A place in the list of sites, which goes through the sites. So it takes no memory to list
    /// one: an update that reports exhaustion may be the first to take a lock.
    type Next = Mutex<Option<&'static Site>>;

    /// The site that was listed last. Locked before the place of a site.
    static LAST: Next = Mutex::new(None);

    /// The number of threads that have counters in separate cache lines.
    const SHARDS: usize = 16;

    pub(super) struct Counters {
        listed: Once,
        /// The site that was listed before this one.
        previous: Next,
        shards: [Shard; SHARDS],
    }

    /// Occupies two cache lines, because processors fetch lines in pairs.
    #[repr(align(128))]
    struct Shard {
        acquisitions: AtomicU64,
        contended: AtomicU64,
        waited_ns: AtomicU64,
    }

    impl Counters {
        pub(super) const fn new() -> Self {
            Self { listed: Once::new(), previous: Mutex::new(None), shards: [const { Shard::new() }; SHARDS] }
        }

        pub(super) fn count_acquired(&self, site: &'static Site, waited: Option<Duration>) {
            let shard = self.shard(site);
            // Relaxed, here and below: statistics, which order nothing.
            shard.acquisitions.fetch_add(1, Relaxed);
            if let Some(waited) = waited {
                shard.waited_ns.fetch_add(waited.as_nanos() as u64, Relaxed);
            }
        }

        pub(super) fn count_contended(&self, site: &'static Site) {
            self.shard(site).contended.fetch_add(1, Relaxed);
        }

        /// Returns the shard of the calling thread. Lists the site from then on.
        fn shard(&self, site: &'static Site) -> &Shard {
            self.listed.call_once(|| {
                let mut last = lock(&LAST);
                *lock(&self.previous) = last.replace(site);
            });
            &self.shards[this_thread() % SHARDS]
        }

        fn sum(&self, counter: impl Fn(&Shard) -> &AtomicU64) -> u64 {
            self.shards.iter().map(|shard| counter(shard).load(Relaxed)).sum()
        }
    }

    impl Shard {
        const fn new() -> Self {
            Self { acquisitions: AtomicU64::new(0), contended: AtomicU64::new(0), waited_ns: AtomicU64::new(0) }
        }
    }

    fn lock(place: &Next) -> MutexGuard<'_, Option<&'static Site>> {
        place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the calling thread, in the order of first calls.
    fn this_thread() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            /// Has no destructor, so a thread can use it at any time until it ends.
            static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
        }
        NUMBER.with(|number| {
            number.get().unwrap_or_else(|| {
                let new = NEXT.fetch_add(1, Relaxed);
                number.set(Some(new));
                new
            })
        })
    }

    pub(super) fn all() -> Vec<Counts> {
        let last = *lock(&LAST);
        let sites = successors(last, |site| *lock(&site.counters.previous));
        let counts = |site: &'static Site| Counts {
            site: site.name(),
            acquisitions: site.counters.sum(|shard| &shard.acquisitions),
            contended: site.counters.sum(|shard| &shard.contended),
            waited: Duration::from_nanos(site.counters.sum(|shard| &shard.waited_ns)),
        };
        let mut all: Vec<Counts> = sites.map(counts).collect();
        all.sort_unstable_by_key(|counts| counts.site);
        all
    }
}

#[cfg(all(test, feature = "contention", not(relativist_loom)))]
mod tests {
    use super::*;

    fn of(site: &Site) -> Counts {
        counts().into_iter().find(|counts| counts.site == site.name()).unwrap()
    }

    #[test]
    fn contention_is_what_is_found_held() {
        static HERE: Site = Site::new("here");
        let mutex = Mutex::new(());
        (0..3).for_each(|_| drop(HERE.lock(&mutex)));
        let before = counts();
        assert_eq!(of(&HERE), Counts { site: "here", acquisitions: 3, contended: 0, waited: Duration::ZERO });
        let wait = || {
            let began = std::time::Instant::now();
            while began.elapsed().is_zero() {}
        };
        HERE.acquire(|| None, wait);
        let after = of(&HERE).since(&before);
        assert_eq!((after.acquisitions, after.contended), (1, 1));
        assert!(!after.waited.is_zero());
    }

    #[test]
    fn contention_of_an_attempt_counts_once() {
        static THERE: Site = Site::new("there");
        let mut attempt = THERE.attempt();
        attempt.contended();
        attempt.contended();
        drop(attempt);
        THERE.count_try(true);
        THERE.count_try(false);
        assert_eq!(of(&THERE), Counts { site: "there", acquisitions: 1, contended: 2, waited: Duration::ZERO });
    }

    #[test]
    fn contention_counts_are_exact_with_many_threads() {
        static EVERYWHERE: Site = Site::new("everywhere");
        std::thread::scope(|scope| {
            (0..20).for_each(|_| drop(scope.spawn(|| (0..100).for_each(|_| EVERYWHERE.count_try(true)))));
        });
        assert_eq!(of(&EVERYWHERE).acquisitions, 2000);
    }

    #[test]
    fn contention_does_not_mind_a_panic() {
        static SHAKEN: Site = Site::new("shaken");
        let mutex = Mutex::new(0);
        let panicked = std::thread::scope(|scope| {
            let holder = || {
                let _held = SHAKEN.lock(&mutex);
                panic!("for the test");
            };
            scope.spawn(holder).join().is_err()
        });
        assert!(panicked);
        *SHAKEN.lock(&mutex) += 1;
        assert_eq!((of(&SHAKEN).acquisitions, of(&SHAKEN).contended), (2, 0));
    }
}
