//! The number of entries, counted in stripes so that updaters on different processors share no
//! cache line.

use std::sync::OnceLock;
use std::thread::available_parallelism;

use relativist_rcu::Guard;

use crate::sync::{AtomicIsize, Relaxed};

/// The maximum number of stripes with one owner, and the number of stripes that all other threads
/// share. More stripes make sums slower.
const MAX_OWN: usize = 64;
const SHARED: usize = 4;

/// A count that is split over stripes: one for each of the first threads, which needs no
/// read-modify-write, and a few that all others share.
pub(crate) struct Counter {
    stripes: Box<[Stripe]>,
}

/// Occupies two cache lines, because processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Stripe {
    count: AtomicIsize,
    /// The value of `count` when `add` last returned true.
    looked: AtomicIsize,
}

impl Counter {
    pub(crate) fn new() -> Self {
        Self { stripes: (0..stripes()).map(|_| Stripe::default()).collect() }
    }

    /// Adds to the calling thread's stripe. Returns whether the stripe has changed by `interval`
    /// since this last returned true.
    #[inline]
    pub(crate) fn add(&self, n: isize, interval: usize, guard: &Guard) -> bool {
        let index = guard.thread_index();
        let own = self.stripes.len() - SHARED;
        let stripe = &self.stripes[if index < own { index } else { own + index % SHARED }];
        // Relaxed, all: a count orders nothing. A thread's own stripe has one writer at a time, and
        // the next owner sees what the previous one wrote (`Guard::thread_index`).
        let count = if index < own {
            let count = stripe.count.load(Relaxed) + n;
            stripe.count.store(count, Relaxed);
            count
        } else {
            stripe.count.fetch_add(n, Relaxed) + n
        };
        let is_due = count.abs_diff(stripe.looked.load(Relaxed)) >= interval;
        if is_due {
            stripe.looked.store(count, Relaxed);
        }
        is_due
    }

    /// Returns the sum. It is exact if no thread updates; otherwise each stripe counts as of some
    /// instant during the call.
    pub(crate) fn sum(&self) -> usize {
        // Relaxed: as above.
        let sum: isize = self.stripes.iter().map(|stripe| stripe.count.load(Relaxed)).sum();
        sum.max(0).unsigned_abs()
    }

    pub(crate) fn stripes(&self) -> usize {
        self.stripes.len()
    }
}

/// Returns the number of owned stripes: twice the number of processors, because not all threads
/// that have a number update tables.
fn stripes() -> usize {
    static STRIPES: OnceLock<usize> = OnceLock::new();
    *STRIPES.get_or_init(|| available_parallelism().map_or(8, |n| n.get() * 2).min(MAX_OWN) + SHARED)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use relativist_rcu::read;

    use super::*;

    /// There are more threads than stripes, so some share a stripe.
    #[test]
    fn sums_what_all_threads_add() {
        let counter = Counter::new();
        let threads = counter.stripes() + 3;
        let all_here = Barrier::new(threads);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    drop(read());
                    all_here.wait();
                    (0..1000).for_each(|n| _ = counter.add(if n % 4 == 0 { -1 } else { 1 }, 1, &read()));
                });
            }
        });
        assert_eq!(counter.sum(), threads * 500);
    }

    /// One thread may remove what another has inserted: a stripe below zero reduces the sum.
    #[test]
    fn stripes_may_be_negative() {
        let counter = Counter::new();
        counter.add(10, 1, &read());
        std::thread::scope(|scope| _ = scope.spawn(|| counter.add(-7, 1, &read())));
        assert_eq!(counter.sum(), 3);
        counter.add(-5, 1, &read());
        assert_eq!(counter.sum(), 0, "never below zero, though updates in progress may make it look so");
    }

    /// A count that swings around any value does not cause a check each time.
    #[test]
    fn asks_for_a_look_when_the_count_has_moved() {
        let counter = Counter::new();
        let asked = (0..1024).filter(|_| counter.add(1, 16, &read())).count();
        assert_eq!(asked, 64);
        let asked = (0..1024).filter(|n| counter.add(if n % 2 == 0 { -1 } else { 1 }, 16, &read())).count();
        assert_eq!(asked, 0);
    }
}
