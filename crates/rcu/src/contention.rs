//! How contended locks are: acquisitions, those that found the lock held, and the time that these
//! waited, per *site*, that is, per kind of lock. For measurements, in the manner of Poettering's
//! mutrace, which the ATC 2011 paper used.
//!
//! Everything is counted with the feature `contention`, and nothing without it: then a [`Site`] is
//! only a name, taking a lock is that and no more, and [`counts`] is empty.
//!
//! Counters are spread over threads, each on a line of its own, so that counting adds little
//! contention. What it adds to each acquisition is an atomic increment and, where the lock is held
//! by somebody else, two looks at the clock. Not for processes that fork while they have threads.
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

/// Whether anything is counted: the feature `contention` is on.
pub const ENABLED: bool = cfg!(feature = "contention");

/// A kind of lock. It is in [`counts`] once such a lock was asked for.
pub struct Site {
    name: &'static str,
    #[cfg(feature = "contention")]
    counters: counting::Counters,
}

/// What has happened at a site since the process began. Figures of a moment at which locks are in
/// use need not fit together exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Its name.
    pub site: &'static str,
    /// How often such a lock was taken.
    pub acquisitions: u64,
    /// How often it was found to be held by somebody else. Who found it so has waited; or gone
    /// away, where locks are only tried.
    pub contended: u64,
    /// How long all threads together have waited for locks that they then got.
    pub waited: Duration,
}

impl Counts {
    /// The difference to what was counted before.
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

/// The sites at which locks have been asked for so far, by name. Empty without the feature.
#[must_use]
pub fn counts() -> Vec<Counts> {
    #[cfg(feature = "contention")]
    return counting::all();
    #[cfg(not(feature = "contention"))]
    Vec::new()
}

impl Site {
    /// A site of this name: short, and with underscores for blanks, because it becomes part of
    /// names of statistics.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            #[cfg(feature = "contention")]
            counters: counting::Counters::new(),
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Somebody asks for a lock.
    #[inline(always)]
    pub fn attempt(&'static self) -> Attempt {
        Attempt {
            #[cfg(feature = "contention")]
            site: self,
            #[cfg(feature = "contention")]
            held_since: None,
        }
    }

    /// Somebody has tried to take a lock, and would not have waited for it.
    #[inline(always)]
    pub fn count_try(&'static self, has_succeeded: bool) {
        let mut attempt = self.attempt();
        if has_succeeded { attempt.acquired() } else { attempt.contended() }
    }

    /// Takes a lock by `lock`; without waiting, by `try_lock`, if that is possible and acquisitions
    /// are counted.
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

    /// Takes a mutex, be it poisoned or not.
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

/// An attempt to take a lock, for locks that [`Site::acquire`] doesn't fit. Dropped, it has failed.
#[must_use]
pub struct Attempt {
    #[cfg(feature = "contention")]
    site: &'static Site,
    #[cfg(feature = "contention")]
    held_since: Option<std::time::Instant>,
}

impl Attempt {
    /// The lock is held by somebody else. From now on the attempt waits. Any further time changes
    /// nothing.
    #[inline(always)]
    pub fn contended(&mut self) {
        #[cfg(feature = "contention")]
        self.held_since.get_or_insert_with(|| {
            self.site.counters.count_contended(self.site);
            std::time::Instant::now()
        });
    }

    /// The lock has been taken.
    #[inline(always)]
    pub fn acquired(self) {
        #[cfg(feature = "contention")]
        self.site.counters.count_acquired(self.site, self.held_since.map(|since| since.elapsed()));
    }
}

#[cfg(feature = "contention")]
mod counting {
    use std::cell::Cell;
    use std::sync::{Mutex, Once, PoisonError};
    use std::time::Duration;

    use super::{Counts, Site};
    use crate::sync::statistics::{AtomicU64, AtomicUsize, Ordering::Relaxed};

    static SITES: Mutex<Vec<&'static Site>> = Mutex::new(Vec::new());

    /// As many threads as this count on lines of their own.
    const SHARDS: usize = 16;

    pub(super) struct Counters {
        listed: Once,
        shards: [Shard; SHARDS],
    }

    /// Two cache lines, because processors fetch pairs.
    #[repr(align(128))]
    struct Shard {
        acquisitions: AtomicU64,
        contended: AtomicU64,
        waited_ns: AtomicU64,
    }

    impl Counters {
        pub(super) const fn new() -> Self {
            Self { listed: Once::new(), shards: [const { Shard::new() }; SHARDS] }
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

        /// That of the calling thread, of a site that is listed from now on.
        fn shard(&self, site: &'static Site) -> &Shard {
            self.listed.call_once(|| SITES.lock().unwrap_or_else(PoisonError::into_inner).push(site));
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

    /// Threads are numbered as they come.
    fn this_thread() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            /// Has no destructor, so it can be used at any moment of a thread's life.
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
        let sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = |site: &&'static Site| Counts {
            site: site.name(),
            acquisitions: site.counters.sum(|shard| &shard.acquisitions),
            contended: site.counters.sum(|shard| &shard.contended),
            waited: Duration::from_nanos(site.counters.sum(|shard| &shard.waited_ns)),
        };
        let mut all: Vec<Counts> = sites.iter().map(counts).collect();
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
