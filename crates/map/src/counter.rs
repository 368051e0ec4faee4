//! The number of entries, counted in stripes so that updaters on different processors share no line.

use std::cell::Cell;
use std::sync::OnceLock;
use std::thread::available_parallelism;

use crate::sync::{AtomicIsize, AtomicUsize, Relaxed};

/// Stripes beyond this many bring nothing but longer sums.
const MAX_STRIPES: usize = 64;

/// A count split over stripes.
pub(crate) struct Counter {
    stripes: Box<[Stripe]>,
}

/// Two cache lines, because processors fetch pairs.
#[repr(align(128))]
#[derive(Default)]
struct Stripe(AtomicIsize);

impl Counter {
    pub(crate) fn new() -> Self {
        Self { stripes: (0..stripes()).map(|_| Stripe::default()).collect() }
    }

    /// Adds to the calling thread's stripe, and returns what the stripe holds.
    #[inline]
    pub(crate) fn add(&self, n: isize) -> isize {
        // Relaxed: a count orders nothing.
        self.stripes[thread_number() & (self.stripes.len() - 1)].0.fetch_add(n, Relaxed) + n
    }

    /// The sum: exact when nobody updates, else what it was at some time for each stripe.
    pub(crate) fn sum(&self) -> usize {
        // Relaxed: as above.
        let sum: isize = self.stripes.iter().map(|stripe| stripe.0.load(Relaxed)).sum();
        sum.max(0).unsigned_abs()
    }

    pub(crate) fn stripes(&self) -> usize {
        self.stripes.len()
    }
}

/// As many as there are processors, rounded up to a power of two.
fn stripes() -> usize {
    static STRIPES: OnceLock<usize> = OnceLock::new();
    *STRIPES.get_or_init(|| available_parallelism().map_or(8, |n| n.get().next_power_of_two().min(MAX_STRIPES)))
}

/// Numbers threads in the order of their first use, so that few threads spread well.
#[inline]
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) });
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            // Relaxed: only distinctness matters.
            number.set(NEXT.fetch_add(1, Relaxed));
        }
        number.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_what_all_threads_add() {
        let counter = Counter::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|n| _ = counter.add(if n % 4 == 0 { -1 } else { 1 })));
            }
        });
        assert_eq!(counter.sum(), 4 * 500);
    }

    /// What one thread inserts another may remove: a stripe below zero counts against the others.
    #[test]
    fn stripes_may_be_negative() {
        let counter = Counter::new();
        counter.add(10);
        std::thread::scope(|scope| _ = scope.spawn(|| counter.add(-7)));
        assert_eq!(counter.sum(), 3);
        counter.add(-5);
        assert_eq!(counter.sum(), 0, "never below zero, though updates under way may make it look so");
    }
}
