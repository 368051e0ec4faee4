//! The capacity, and the room that is left of it.
//!
//! The room is one number, so that taking it is one atomic step: no thread takes more than
//! is left, even while another thread changes the capacity. Lowering the capacity takes room and
//! does not give it back.
//!
//! The orderings are those of a semaphore. A thread that takes room sees that the entries that had
//! it are gone. A thread that sees a lowered capacity sees that the remaining entries fit.

use relativist_core::sync::{Acquire, AtomicBits, Relaxed, Release};

/// On a cache line of its own, because updaters write it.
#[repr(align(128))]
pub(super) struct Limit {
    /// Together with all weight that was taken, never more than the capacity.
    room: AtomicBits,
    capacity: AtomicBits,
}

impl Limit {
    pub(super) fn new(capacity: u64) -> Self {
        Self { room: AtomicBits::new(capacity), capacity: AtomicBits::new(capacity) }
    }

    #[inline]
    pub(super) fn reservation(&self) -> Reservation<'_> {
        Reservation { limit: self, held: 0 }
    }

    #[inline]
    pub(super) fn capacity(&self) -> u64 {
        // Acquire: pairs with the Release in `try_set_capacity`.
        // litmus: limit-lowered
        self.capacity.load(Acquire)
    }

    /// Returns whether there is room for this weight now.
    pub(super) fn has_room(&self, weight: u64) -> bool {
        // Relaxed: a heuristic.
        self.room.load(Relaxed) >= weight
    }

    /// Takes room for this weight, unless there is less.
    #[inline]
    pub(super) fn try_take(&self, weight: u64) -> bool {
        weight == 0 || self.take(|room| room.checked_sub(weight)).is_some()
    }

    /// Replaces the room by what `rest` returns, unless that is nothing. Returns what was taken.
    #[inline]
    fn take(&self, rest: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        // Relaxed: only the exchange counts.
        let mut room = self.room.load(Relaxed);
        loop {
            let left = rest(room)?;
            // Acquire: pairs with the Release in `release`. Relaxed: as above.
            // litmus: limit-released, limit-raised
            match self.room.compare_exchange_weak(room, left, Acquire, Relaxed) {
                Ok(_) => return Some(room - left),
                Err(changed) => room = changed,
            }
        }
    }

    /// Gives room back.
    #[inline]
    pub(super) fn release(&self, weight: u64) {
        if weight > 0 {
            // Release: pairs with the Acquire in `take`. The entry was unlinked before.
            // litmus: limit-released, limit-raised
            self.room.fetch_add(weight, Release);
        }
    }

    /// Sets the capacity, and returns `true`. If it becomes smaller and there is less room than the
    /// difference, lowers it by that room, and returns `false`: the caller evicts, and tries again.
    pub(super) fn try_set_capacity(&self, capacity: u64) -> bool {
        loop {
            let current = self.capacity();
            let excess = current.saturating_sub(capacity);
            let taken = self.take(|room| Some(room.saturating_sub(excess))).unwrap_or(0);
            let next = if excess > 0 { current - taken } else { capacity };
            // Release: pairs with the Acquire in `capacity`. Relaxed: it is loaded again.
            // litmus: limit-lowered
            if self.capacity.compare_exchange(current, next, Release, Relaxed).is_err() {
                self.release(taken);
                continue;
            }
            // If the capacity was raised, this is the room that it brings.
            self.release(next.saturating_sub(current));
            return next == capacity;
        }
    }
}

/// Room that this thread has taken and not used for an entry yet. Dropping it gives the room
/// back.
pub(super) struct Reservation<'c> {
    limit: &'c Limit,
    pub(super) held: u64,
}

impl Reservation<'_> {
    /// Takes what is missing of this weight, unless there is less. Returns whether it is there.
    #[inline(always)]
    pub(super) fn try_reach(&mut self, weight: u64) -> bool {
        let missing = weight.saturating_sub(self.held);
        let is_there = self.limit.try_take(missing);
        if is_there {
            self.held += missing;
        }
        is_there
    }

    /// Keeps `weight` for an entry that is in the cache now, and releases the rest.
    #[inline(always)]
    pub(super) fn use_up(&mut self, weight: u64) {
        self.held -= weight;
        self.release();
    }

    pub(super) fn release(&mut self) {
        self.limit.release(std::mem::take(&mut self.held));
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(all(test, relativist_loom))]
mod loom_tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread::{self, yield_now};

    use super::*;

    fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(preemptions);
        builder.check(model);
    }

    /// A limit, and an entry that only one thread at a time may have in the cache.
    struct Shared(Limit, UnsafeCell<()>);

    // SAFETY: loom checks that no two threads access the cell at the same time.
    unsafe impl Sync for Shared {}

    impl Shared {
        fn new(capacity: u64) -> Arc<Self> {
            Arc::new(Self(Limit::new(capacity), UnsafeCell::new(())))
        }

        /// Inserts and removes an entry of this weight, which leaves no room for another. Reserves
        /// a part first, so that a failure gives it back.
        fn use_alone(&self, weight: u64) -> bool {
            let mut reservation = self.0.reservation();
            for step in [1, weight - 1] {
                if !reservation.try_reach(reservation.held + step) {
                    return false;
                }
            }
            reservation.use_up(weight);
            drop(reservation);
            self.1.with_mut(|_| ());
            self.0.release(weight);
            true
        }

        /// Nothing has leaked: all of the capacity can be taken, and no more.
        fn assert_empty(&self) {
            let capacity = self.0.capacity();
            assert!(self.0.try_take(capacity) && !self.0.try_take(1));
        }
    }

    /// Entries that exceed the capacity together are never there at the same time.
    #[test]
    fn entries_share_the_capacity() {
        explore(3, || {
            let shared = Shared::new(3);
            let other = Arc::clone(&shared);
            let other = thread::spawn(move || other.use_alone(2));
            let is_used = shared.use_alone(2);
            // They cannot both fail: even if each has a part, the rest is enough for one.
            let is_other_used = other.join().unwrap();
            assert!(is_used || is_other_used);
            shared.assert_empty();
        });
    }

    /// A capacity is lowered while an entry leaves: once it is lower, the entry is gone, and no
    /// other comes.
    #[test]
    fn a_lower_capacity_holds() {
        explore(3, || {
            let shared = Shared::new(2);
            let user = Arc::clone(&shared);
            let user = thread::spawn(move || user.use_alone(2));
            while !shared.0.try_set_capacity(1) {
                assert!(shared.0.capacity() > 1);
                yield_now();
            }
            shared.1.with_mut(|_| ());
            user.join().unwrap();
            assert_eq!(shared.0.capacity(), 1);
            shared.assert_empty();
        });
    }

    /// A thread that sees a lower capacity sees that the entries are gone.
    #[test]
    fn a_lower_capacity_is_seen_after_the_entries() {
        explore(3, || {
            let shared = Shared::new(2);
            let lowering = Arc::clone(&shared);
            let lowering = thread::spawn(move || assert!(lowering.use_alone(2) && lowering.0.try_set_capacity(1)));
            if shared.0.capacity() == 1 {
                shared.1.with_mut(|_| ());
            }
            lowering.join().unwrap();
            shared.assert_empty();
        });
    }

    /// The capacity is raised and lowered at the same time, while a reservation fails or does not.
    #[test]
    fn racing_capacities_leak_nothing() {
        explore(2, || {
            let shared = Shared::new(2);
            let [raising, user] = [(); 2].map(|()| Arc::clone(&shared));
            let raising = thread::spawn(move || assert!(raising.0.try_set_capacity(3)));
            let user = thread::spawn(move || _ = user.use_alone(2));
            while !shared.0.try_set_capacity(1) {
                yield_now();
            }
            raising.join().unwrap();
            user.join().unwrap();
            assert!([1, 3].contains(&shared.0.capacity()));
            shared.assert_empty();
        });
    }

    /// A thread that has taken the room of a higher capacity sees that capacity.
    #[test]
    fn room_comes_with_its_capacity() {
        explore(3, || {
            let shared = Shared::new(1);
            let raising = Arc::clone(&shared);
            let raising = thread::spawn(move || assert!(raising.0.try_set_capacity(2)));
            if shared.0.try_take(2) {
                assert_eq!(shared.0.capacity(), 2);
                shared.0.release(2);
            }
            raising.join().unwrap();
            shared.assert_empty();
        });
    }
}
