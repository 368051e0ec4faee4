//! The number of entries. Small tables count in one place. Larger tables, and those that several
//! threads update at the same time, count in stripes, so that updaters on different processors
//! share no cache line.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::thread::available_parallelism;

use crate::hint::cold_path;
use crate::sync::{AcqRel, Acquire, AtomicIsize, AtomicU32, Relaxed, UntrackedPtr};

/// The maximum number of stripes with one owner. More stripes make sums slower.
const MAX_OWN: usize = 64;
/// The number of stripes that all other threads share.
const SHARED: usize = 4;

/// A count in one place, and later also in stripes. Each of the first threads has a stripe of its
/// own, to which it adds without a read-modify-write. All other threads share a few. The sum
/// includes the one place and all stripes, so a thread may still count in the one place after
/// another thread has made the stripes.
pub struct Counter {
    one: AtomicIsize,
    /// An array of [`stripes`] stripes. Null before they are needed.
    stripes: UntrackedPtr<Stripe>,
    /// The number of stripes with one owner.
    own: u32,
    /// With stripes, an update checks whether to resize if the count of its stripe has changed by
    /// this much since the last check. Without them, this is a power of two, and an update checks
    /// if the count has passed a multiple of it.
    interval: AtomicU32,
}

/// Occupies two cache lines, because processors fetch lines in pairs.
#[repr(align(128))]
struct Stripe {
    count: AtomicIsize,
    /// The value of `count` when `add` last returned true.
    looked: AtomicIsize,
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

impl Counter {
    /// Creates a counter of 0.
    pub fn new() -> Self {
        Self {
            one: AtomicIsize::new(0),
            stripes: UntrackedPtr::new(null_mut()),
            own: (stripes() - SHARED) as u32,
            interval: AtomicU32::new(1),
        }
    }

    /// Adds to the count of the calling thread. Returns whether to check the size of the table.
    /// `index` is the index of the thread: no two threads have the same at the same time, and what
    /// one has done happens before what the next one with its index does (as RCU's
    /// `Guard::thread_index` guarantees).
    #[inline]
    pub fn add(&self, n: isize, index: impl FnOnce() -> usize) -> bool {
        match self.stripes() {
            Some(stripes) => self.add_to_stripe(stripes, n, index()),
            None => self.add_to_one(n),
        }
    }

    #[inline(always)]
    fn add_to_one(&self, n: isize) -> bool {
        // Relaxed, all: a count orders nothing.
        let count = self.one.load(Relaxed);
        if self.one.compare_exchange(count, count + n, Relaxed, Relaxed).is_err() {
            // Another thread updates at the same time, so from now on threads use stripes.
            cold_path();
            self.one.fetch_add(n, Relaxed);
            self.make_stripes();
            return true;
        }
        (count ^ (count + n)).unsigned_abs() >= self.interval.load(Relaxed) as usize
    }

    #[inline(always)]
    fn add_to_stripe(&self, stripes: &[Stripe], n: isize, index: usize) -> bool {
        let own = self.own as usize;
        if index >= own {
            cold_path();
            let stripe = &stripes[own + index % SHARED];
            // Relaxed: a count orders nothing.
            return self.is_due(stripe, stripe.count.fetch_add(n, Relaxed) + n, n);
        }
        let stripe = &stripes[index];
        // Relaxed, both: as above. A thread's own stripe has one writer at a time, and the next
        // owner sees what the previous one wrote.
        let count = stripe.count.load(Relaxed) + n;
        stripe.count.store(count, Relaxed);
        self.is_due(stripe, count, n)
    }

    /// Returns whether the count has changed so much, in the direction of `n`, that the caller has
    /// to check the size of the table.
    #[inline(always)]
    fn is_due(&self, stripe: &Stripe, count: isize, n: isize) -> bool {
        // Relaxed, all: a heuristic.
        let change = count - stripe.looked.load(Relaxed);
        let is_due = if n > 0 { change } else { -change } >= self.interval.load(Relaxed) as isize;
        if is_due {
            cold_path();
            stripe.looked.store(count, Relaxed);
        }
        is_due
    }

    /// Returns the sum. It is exact if no thread updates the table meanwhile. Otherwise each part
    /// of the sum is from some instant during the call.
    pub fn sum(&self) -> usize {
        // Relaxed: as above.
        let stripes = self.stripes().unwrap_or_default();
        let striped: isize = stripes.iter().map(|stripe| stripe.count.load(Relaxed)).sum();
        (self.one.load(Relaxed) + striped).max(0).unsigned_abs()
    }

    /// Returns whether there are no stripes, so that the sum takes one load.
    pub fn is_one(&self) -> bool {
        self.stripes().is_none()
    }

    /// Returns the number of updates by one thread after which [`add`](Self::add) returns true.
    pub fn interval(&self) -> usize {
        // Relaxed: a heuristic.
        self.interval.load(Relaxed) as usize
    }

    /// Called when the size of the table has changed. Sets how often threads check: so often that
    /// the number of entries changes by at most a sixteenth of the buckets without a check, and so
    /// seldom that the checks cost little. In small tables each update of a stripe would have to
    /// check, and read all stripes. There one shared count costs less.
    pub fn size_changed(&self, buckets: usize) {
        let allowed = (buckets / 16).max(1);
        let per_stripe = allowed / stripes();
        if per_stripe > 1 {
            self.make_stripes();
        }
        let interval = if self.is_one() { 1 << allowed.ilog2() } else { per_stripe };
        // Relaxed: a heuristic.
        self.interval.store(interval.clamp(1, 1024) as u32, Relaxed);
    }

    #[inline(always)]
    fn stripes(&self) -> Option<&[Stripe]> {
        // Acquire: pairs with the AcqRel in `make_stripes`. This thread sees zeroed stripes.
        // litmus: counter-stripes
        let stripes = NonNull::new(self.stripes.load(Acquire))?;
        // SAFETY: `make_stripes` has stored this number of stripes, which live as long as the
        // counter.
        Some(unsafe { std::slice::from_raw_parts(stripes.as_ptr(), self.own as usize + SHARED) })
    }

    /// Makes the stripes, unless they exist. From then on each update of a stripe checks, as it has
    /// to in a small table, until [`size_changed`](Self::size_changed) is called. If there is no
    /// memory, threads go on counting in one place.
    #[cold]
    fn make_stripes(&self) {
        if !self.is_one() {
            return;
        }
        // SAFETY: the size is not zero. Zeroed memory is valid stripes, whose counts are 0.
        let stripes = unsafe { alloc_zeroed(layout()) }.cast::<Stripe>();
        if stripes.is_null() {
            return;
        }
        // AcqRel: Release pairs with the Acquire in `stripes`. Acquire is not needed.
        // litmus: counter-stripes
        if self.stripes.compare_exchange(null_mut(), stripes, AcqRel, Relaxed).is_err() {
            // SAFETY: allocated above, and no other thread has it.
            unsafe { free(stripes) };
            return;
        }
        // Not if the stripes exist: the table may have grown since the caller found none. Relaxed:
        // a heuristic.
        self.interval.store(1, Relaxed);
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let stripes = *self.stripes.get_mut();
        if !stripes.is_null() {
            // SAFETY: `make_stripes` allocated it, and no other thread uses the counter.
            unsafe { free(stripes) };
        }
    }
}

fn layout() -> Layout {
    Layout::array::<Stripe>(stripes()).expect("a few")
}

/// Frees stripes. (They need no destructor.)
///
/// # Safety
///
/// They were allocated with [`layout`], and no thread uses them any more.
unsafe fn free(stripes: *mut Stripe) {
    // SAFETY: guaranteed by the caller.
    unsafe { std::alloc::dealloc(stripes.cast(), layout()) };
}

/// Returns the number of stripes: the shared ones, and two for each processor. Two, because not all
/// threads that have an index update tables.
fn stripes() -> usize {
    static STRIPES: OnceLock<usize> = OnceLock::new();
    *STRIPES.get_or_init(|| available_parallelism().map_or(8, |n| n.get() * 2).min(MAX_OWN) + SHARED)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Returns a counter that has stripes, and one that has none yet.
    fn counters() -> [Counter; 2] {
        let counters = [Counter::new(), Counter::new()];
        counters[0].make_stripes();
        assert_eq!(counters.each_ref().map(Counter::is_one), [false, true]);
        counters
    }

    /// There are more threads than stripes, so some threads share a stripe. One counter gets its
    /// stripes while threads add.
    #[test]
    fn sums_what_all_threads_add() {
        let counters = counters();
        let threads = stripes() + 3;
        let all_here = Barrier::new(threads);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (counters, all_here) = (&counters, &all_here);
                scope.spawn(move || {
                    all_here.wait();
                    for n in 0..1000 {
                        let n = if n % 4 == 0 { -1 } else { 1 };
                        counters.iter().for_each(|counter| _ = counter.add(n, || thread));
                    }
                    if thread == 0 {
                        counters[1].make_stripes();
                    }
                    for n in 0..1000 {
                        let n = if n % 4 == 0 { -1 } else { 1 };
                        counters.iter().for_each(|counter| _ = counter.add(n, || thread));
                    }
                });
            }
        });
        assert_eq!(counters.map(|counter| counter.sum()), [threads * 1000; 2]);
    }

    /// One thread may remove what another has inserted: a stripe below zero reduces the sum.
    #[test]
    fn stripes_may_be_negative() {
        for counter in counters() {
            counter.add(10, || 0);
            std::thread::scope(|scope| _ = scope.spawn(|| counter.add(-7, || 1)));
            assert_eq!(counter.sum(), 3);
            counter.make_stripes();
            counter.add(-5, || 0);
            assert_eq!(counter.sum(), 0, "never below zero, though updates in progress may make it look so");
        }
    }

    /// A count that goes up and down by one does not cause a check each time, whatever its value.
    #[test]
    fn asks_for_a_look_when_the_count_has_moved() {
        let counter = Counter::new();
        counter.size_changed(16 * 16 * stripes());
        // As a thread does that has found no stripes, and is delayed while the table grows.
        counter.make_stripes();
        let asked = (0..1024).filter(|_| counter.add(1, || 0)).count();
        assert_eq!(asked, 64);
        let asked = (0..1024).filter(|n| counter.add(if n % 2 == 0 { -1 } else { 1 }, || 0)).count();
        assert_eq!(asked, 0);
    }

    /// A small table is checked each time its count passes a multiple of 1/16 of its buckets.
    #[test]
    fn one_count_asks_for_a_look_now_and_then() {
        let counter = Counter::new();
        let asked = |n: isize| (0..64).filter(|_| counter.add(n, || 0)).count();
        assert_eq!((asked(1), asked(-1)), (64, 64));
        counter.size_changed(64);
        assert!(counter.is_one());
        assert_eq!((asked(1), asked(-1)), (16, 16));
        assert!(counter.add(5, || 0));
    }

    /// The counter of a table that stays small allocates no memory.
    #[test]
    fn large_tables_have_stripes() {
        let counter = Counter::new();
        counter.size_changed(2);
        counter.size_changed(16 * stripes());
        assert!(counter.is_one());
        counter.size_changed(32 * stripes());
        assert!(!counter.is_one());
    }
}
