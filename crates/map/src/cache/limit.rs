//! The capacity, and the weight of all entries.

use crate::sync::{AcqRel, Acquire, AtomicBits};

/// On a cache line of its own, because updaters write it.
#[repr(align(128))]
pub(super) struct Limit {
    weight: AtomicBits,
    capacity: AtomicBits,
}

impl Limit {
    pub(super) fn new(capacity: u64) -> Self {
        Self { weight: AtomicBits::new(0), capacity: AtomicBits::new(capacity) }
    }

    pub(super) fn reservation(&self) -> Reservation<'_> {
        Reservation { limit: self, held: 0 }
    }

    pub(super) fn weight(&self) -> u64 {
        // Acquire: pairs with the AcqRel in `add`, `release` and `set_capacity`.
        // litmus: stronger than needed
        self.weight.load(Acquire)
    }

    pub(super) fn capacity(&self) -> u64 {
        // Acquire: pairs with the AcqRel in `set_capacity`.
        // litmus: stronger than needed
        self.capacity.load(Acquire)
    }

    /// Adds to the weight, unless it would exceed the capacity.
    pub(super) fn add(&self, weight: u64) -> bool {
        let mut current = self.weight();
        loop {
            match current.checked_add(weight) {
                Some(sum) if sum <= self.capacity() => {
                    // AcqRel: pairs with itself, and with the one in `set_capacity`. See there.
                    // litmus: stronger than needed
                    match self.weight.compare_exchange_weak(current, sum, AcqRel, Acquire) {
                        Ok(_) => break,
                        Err(changed) => current = changed,
                    }
                }
                _ => return false,
            }
        }
        if self.weight() <= self.capacity() {
            return true;
        }
        self.release(weight);
        false
    }

    pub(super) fn release(&self, weight: u64) {
        if weight > 0 {
            // AcqRel: pairs with the one in `add`. The entry was unlinked before.
            // litmus: stronger than needed
            self.weight.fetch_sub(weight, AcqRel);
        }
    }

    /// Sets the capacity. The caller evicts until it is no longer [exceeded](Self::is_exceeded).
    pub(super) fn set_capacity(&self, capacity: u64) {
        // AcqRel: pairs with the Acquire in `capacity`.
        // litmus: stronger than needed
        self.capacity.swap(capacity, AcqRel);
    }

    /// Returns whether the weight exceeds the capacity.
    ///
    /// Once the thread that has set the capacity gets `false` here, no thread keeps more. Weight
    /// that another thread added before this is counted. Weight that one adds later comes after
    /// this in the order of the modifications of `weight`, so the addition happens after this and
    /// after the swap in [`set_capacity`](Self::set_capacity): `add` then finds the new capacity.
    pub(super) fn is_exceeded(&self) -> bool {
        // AcqRel, as a read-modify-write: pairs with the one in `add`.
        // litmus: stronger than needed
        self.weight.fetch_add(0, AcqRel) > self.capacity()
    }
}

/// Weight that this thread has added and not used for an entry yet. Dropping it releases it.
pub(super) struct Reservation<'c> {
    limit: &'c Limit,
    pub(super) held: u64,
}

impl Reservation<'_> {
    /// Keeps the first `weight` for an entry that is in the map now, and releases the rest.
    pub(super) fn use_up(mut self, weight: u64) {
        self.held -= weight;
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
