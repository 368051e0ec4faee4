//! The registry of readers: one slot per thread, in a list that only grows at its head.
//!
//! A slot is claimed when a thread first uses RCU and released when the thread exits; a later
//! thread takes it over with the deferred work that is still in its queue. Slots are never freed,
//! so a thread that waits for readers walks the list without a lock, and their number is the
//! maximum number of threads that used RCU at the same time.

use std::ptr::null_mut;

use crate::domain::Readers;
use crate::queue::Queue;
use relativist_core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use relativist_core::sync::{Cell, const_fn, global};

/// The state of a thread that is visible to threads that wait for readers. Padded to two cache
/// lines, because processors fetch lines in pairs.
#[repr(align(128))]
pub(crate) struct Slot {
    /// The grace-period counter as of the start of the running read section, or [`Slot::OUTSIDE`].
    pub(crate) entered: AtomicU64,
    /// The number of read sections nested in the outermost one, and the flags below. Used by the
    /// owner only.
    pub(crate) nesting: Cell<usize>,
    /// The functions that the owner has deferred.
    pub(crate) queue: Queue,
    /// The number of slots that were created before this one.
    pub(crate) index: usize,
    owned: AtomicBool,
    next: AtomicPtr<Slot>,
}

// SAFETY: the `Cell`s are accessed only by the thread that owns the slot: it gets the slot by the
// Acquire exchange in `claim` and releases it by the Release store in `release`, so accesses of
// successive owners are ordered. (The child of a fork is single-threaded when it resets them.)
// Everything else is atomic, or a `Queue`, which has its own argument.
unsafe impl Sync for Slot {}

impl Slot {
    /// Not inside a read section. The counter never takes this value.
    pub(crate) const OUTSIDE: u64 = 0;
    /// Replaces `OUTSIDE` where readers have to fence, so that only the slow path of entering
    /// checks for that. The counter never takes this value either.
    pub(crate) const OUTSIDE_FENCED: u64 = 1;
    /// Flag in `nesting` for as long as the slot lives: readers have to fence.
    pub(crate) const FENCED: usize = 1 << (usize::BITS - 3);
    /// Flag in `nesting`: release the slot when the outermost section ends, because the thread is
    /// exiting.
    pub(crate) const TRANSIENT: usize = 1 << (usize::BITS - 1);
    /// Flag in `nesting`: reclaim when the outermost section ends.
    pub(crate) const RECLAIM: usize = 1 << (usize::BITS - 2);
    /// The number of nested sections in `nesting`.
    pub(crate) const DEPTH: usize = Self::FENCED - 1;

    const_fn! {
        fn new(entered: u64, flags: usize, index: usize) -> Self {
            Self {
                entered: AtomicU64::new(entered),
                nesting: Cell::new(flags),
                queue: Queue::new(),
                index,
                owned: AtomicBool::new(true),
                next: AtomicPtr::new(null_mut()),
            }
        }
    }

    /// Returns whether the calling thread, which must be the owner, may enter a section by the fast
    /// path.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        // Relaxed: the owner reads its own store.
        self.entered.load(Relaxed) == Self::OUTSIDE
    }

    /// Returns whether the calling thread, which must be the owner, is inside a read section.
    #[inline]
    pub(crate) fn is_reading(&self) -> bool {
        // Relaxed: the owner reads its own store.
        self.entered.load(Relaxed) > Self::OUTSIDE_FENCED && !std::ptr::eq(self, unregistered())
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.nesting.get() & Self::FENCED != 0
    }

    /// Returns the value of `entered` outside of sections.
    pub(crate) fn at_rest(&self) -> u64 {
        if self.is_fenced() { Self::OUTSIDE_FENCED } else { Self::OUTSIDE }
    }

    fn try_claim(&self) -> bool {
        // Relaxed first look: only a hint that avoids a write. Acquire: pairs with the Release in
        // `release`, so that the new owner sees the cells as the last one left them.
        // litmus: slot-reused, slot-reused-section
        !self.owned.load(Relaxed) && self.owned.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }

    /// Releases the slot. The caller owns it and is outside any read section.
    pub(crate) fn release(&self) {
        debug_assert!(!self.is_reading());
        // Release: pairs with the Acquire in `try_claim`.
        // litmus: slot-reused, slot-reused-section
        self.owned.store(false, Release);
    }

    /// Makes the slot free again in the child of a fork, where its owner does not exist.
    #[cfg(all(unix, not(relativist_loom)))]
    pub(crate) fn reset_in_child(&self) {
        self.nesting.set(self.nesting.get() & Self::FENCED);
        // Relaxed: the child has one thread.
        self.entered.store(self.at_rest(), Relaxed);
        self.release();
    }
}

global! {
    /// The slot of threads that have none yet. It is never at rest, so that only the slow path of
    /// entering has to check. No thread writes to it.
    fn unregistered() -> Slot = Slot::new(u64::MAX, 0, usize::MAX);
}

/// The list of all slots.
pub(crate) struct Registry {
    head: AtomicPtr<Slot>,
    /// The number of slots created.
    made: AtomicUsize,
}

impl Registry {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self { head: AtomicPtr::new(null_mut()), made: AtomicUsize::new(0) }
        }
    }

    /// Returns a slot for the calling thread: a free one, or a new one at the head of the list.
    /// Lock-free.
    pub(crate) fn claim(&self, fenced: bool) -> &'static Slot {
        if let Some(slot) = self.iter().find(|slot| slot.try_claim()) {
            return slot;
        }
        let (entered, flags) = if fenced { (Slot::OUTSIDE_FENCED, Slot::FENCED) } else { (Slot::OUTSIDE, 0) };
        // Relaxed: only distinctness matters.
        let index = self.made.fetch_add(1, Relaxed);
        let slot: &'static Slot = Box::leak(Box::new(Slot::new(entered, flags, index)));
        // Relaxed: the exchange below validates it.
        let mut head = self.head.load(Relaxed);
        loop {
            // Relaxed: published by the exchange below.
            slot.next.store(head, Relaxed);
            // AcqRel: Release publishes the slot to the Acquire in `iter`, and Acquire keeps
            // publishing what other threads pushed before.
            // litmus: slot-pushed, slot-pushed-before, slot-unseen
            match self.head.compare_exchange_weak(head, std::ptr::from_ref(slot).cast_mut(), AcqRel, Relaxed) {
                Ok(_) => return slot,
                Err(now) => head = now,
            }
        }
    }

    /// Returns the slots that were in the list when the call was made.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Slot> {
        // Acquire: pairs with the AcqRel in `claim`; the slots behind the head were published
        // before it.
        // litmus: slot-pushed, slot-pushed-before
        let mut next = self.head.load(Acquire);
        std::iter::from_fn(move || {
            // SAFETY: the list holds null or slots leaked in `claim`, which live for ever and never
            // move.
            let slot: &'static Slot = unsafe { next.as_ref() }?;
            // Relaxed: written before the slot was published, and never again.
            next = slot.next.load(Relaxed);
            Some(slot)
        })
    }
}

impl Readers for Registry {
    fn has_reader_before(&self, number: u64) -> bool {
        let blocks = |slot: &Slot| {
            // Acquire: pairs with the Release stores on entry and exit (`Guard`): the reader's
            // section happens before the end of the grace period.
            // litmus: leave, next-section, slot-reused-section, bucket-vacated
            let entered = slot.entered.load(Acquire);
            entered > Slot::OUTSIDE_FENCED && entered < number
        };
        self.iter().any(blocks)
    }
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use std::thread;

    use crate::domain::domain;
    use crate::{defer, read, wait_for_readers};

    /// When dropped, enters a section after this crate's own thread-local destructor has run.
    struct ReadsLate;

    impl Drop for ReadsLate {
        fn drop(&mut self) {
            drop((read(), read()));
            defer(|| ());
        }
    }

    thread_local! {
        static READS_LATE: ReadsLate = const { ReadsLate };
    }

    fn brief_thread(late: bool) {
        if late {
            READS_LATE.with(|_| ());
        }
        drop(read());
    }

    /// R7: there are no more slots than threads at the same time. Slots of exited threads are
    /// reused, even if a thread registered again in a destructor.
    #[test]
    fn slots_are_reused() {
        const AT_ONCE: usize = 4;
        // The registry belongs to the process, and other tests have threads, too.
        relativist_testing::alone(|| {
            for round in 0..10_000 / AT_ONCE {
                let threads: Vec<_> =
                    (0..AT_ONCE).map(|number| thread::spawn(move || brief_thread((round + number) % 2 == 0))).collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            }
            wait_for_readers();
            // Adds one for this thread, and two for workers that have ended.
            let slots = domain().registry.iter().count();
            assert!(slots <= AT_ONCE + 3, "{slots} slots");
        });
    }
}
