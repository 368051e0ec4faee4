//! A thread's deferred functions: an unbounded queue with one producer and one consumer at a time.
//!
//! The owner of the slot pushes without a read-modify-write. Anybody may drain, holding the queue's lock. Entries sit in
//! chunks, each linked to the next; the producer never touches a chunk again once it has linked the next one, so the
//! consumer frees chunks as it leaves them. Every step leaves a state from which the child of a fork can go on.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null_mut};

use crate::domain::domain;
use crate::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sync::const_fn;

/// A function to call after a grace period.
pub(crate) struct Deferred {
    pub(crate) data: NonNull<()>,
    /// What keeping `data` costs, as told by the caller.
    pub(crate) bytes: usize,
    pub(crate) reclaim: unsafe fn(NonNull<()>),
}

impl Deferred {
    fn run(self) {
        // SAFETY: `defer_raw` demands that `reclaim(data)` may be called once, on any thread, after a grace period; the
        // queue hands each entry out once, after the grace period that began after the entry was pushed.
        let call = || unsafe { (self.reclaim)(self.data) };
        // The panic hook has reported it. Whoever happens to reclaim isn't the one to suffer.
        let _ = catch_unwind(AssertUnwindSafe(call));
    }
}

/// After so many entries or bytes the owner looks whether it can run some: enough to spread the cost of a barrier thin, few
/// enough to find the objects still in its cache.
pub(crate) const BATCH: usize = 1024;
pub(crate) const BATCH_BYTES: usize = 1 << 20;

const CHUNK: usize = 255;

struct Chunk {
    entries: [UnsafeCell<MaybeUninit<Deferred>>; CHUNK],
    next: AtomicPtr<Chunk>,
}

impl Chunk {
    fn allocate() -> *mut Self {
        Box::into_raw(Box::new(Self {
            entries: [const { UnsafeCell::new(MaybeUninit::uninit()) }; CHUNK],
            next: AtomicPtr::new(null_mut()),
        }))
    }
}

/// Entries below `end` may run once the grace period `ticket` has ended.
#[derive(Clone, Copy)]
struct Sealed {
    end: usize,
    ticket: u64,
}

pub(crate) struct Queue {
    /// The chunk being filled; the producer's alone.
    tail: Cell<*mut Chunk>,
    /// Entries and bytes ever pushed; written by the producer.
    pushed: AtomicUsize,
    pushed_bytes: AtomicUsize,
    /// When the producer should next see to reclamation; the producer's alone.
    due: Cell<(usize, usize)>,
    /// The chunk being emptied. The producer sets the first, the consumer all that follow.
    head: AtomicPtr<Chunk>,
    /// Entries and bytes ever taken; written by the consumer.
    popped: AtomicUsize,
    popped_bytes: AtomicUsize,
    draining: AtomicBool,
    /// The consumer's.
    sealed: Cell<Sealed>,
    /// `pushed` as of the worker's last look; the consumer's.
    seen: Cell<usize>,
}

// SAFETY: `tail` and `due` are touched by the owner of the slot alone, `sealed` and `seen` by the holder of `draining`
// alone (taken with Acquire, released with Release). Entries are written by the producer before the Release store of
// `pushed` and read by the consumer after its Acquire load; each is read once. `Deferred` is safe to send by the contract
// of `defer_raw`.
unsafe impl Sync for Queue {}

impl Queue {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                tail: Cell::new(null_mut()),
                pushed: AtomicUsize::new(0),
                pushed_bytes: AtomicUsize::new(0),
                due: Cell::new((BATCH, BATCH_BYTES)),
                head: AtomicPtr::new(null_mut()),
                popped: AtomicUsize::new(0),
                popped_bytes: AtomicUsize::new(0),
                draining: AtomicBool::new(false),
                sealed: Cell::new(Sealed { end: 0, ticket: 0 }),
                seen: Cell::new(0),
            }
        }
    }

    /// Appends. The caller owns the slot.
    pub(crate) fn push(&self, deferred: Deferred) {
        // Relaxed: the producer's own counts.
        let (count, bytes) = (self.pushed.load(Relaxed), self.pushed_bytes.load(Relaxed));
        let index = count % CHUNK;
        if index == 0 {
            self.append_chunk();
        }
        // Relaxed: published with `pushed`.
        self.pushed_bytes.store(bytes.wrapping_add(deferred.bytes), Relaxed);
        // SAFETY: `tail` is the producer's live chunk (freed only after a next one is linked, which only the producer
        // does), and nobody reads this entry before `pushed` says so.
        unsafe { (*self.tail.get()).entries[index].get().write(MaybeUninit::new(deferred)) };
        // Release: pairs with the Acquire in `drain` and `barrier`: publishes entry, chunk and bytes.
        self.pushed.store(count + 1, Release);
    }

    fn append_chunk(&self) {
        let chunk = Chunk::allocate();
        match NonNull::new(self.tail.replace(chunk)) {
            // Relaxed, both: published with `pushed`.
            None => self.head.store(chunk, Relaxed),
            // SAFETY: the last chunk is not freed before this link is seen.
            Some(last) => unsafe { last.as_ref() }.next.store(chunk, Relaxed),
        }
    }

    /// Whether the owner has pushed enough since the last `set_due` to see to reclamation. The caller owns the slot.
    pub(crate) fn is_due(&self) -> bool {
        let (count, bytes) = self.due.get();
        // Relaxed: the producer's own counts.
        self.pushed.load(Relaxed) >= count || self.pushed_bytes.load(Relaxed) >= bytes
    }

    /// Puts the next time one batch off. The caller owns the slot.
    pub(crate) fn set_due(&self) {
        // Relaxed: the producer's own counts.
        let (count, bytes) = (self.pushed.load(Relaxed), self.pushed_bytes.load(Relaxed));
        self.due.set((count + BATCH, bytes.wrapping_add(BATCH_BYTES)));
    }

    /// Entries and bytes that wait. Exact when called by the owner while nobody drains.
    pub(crate) fn pending(&self) -> (usize, usize) {
        // Relaxed: heuristics. `popped` first, so that the difference can't be negative for the owner.
        let (popped, popped_bytes) = (self.popped.load(Relaxed), self.popped_bytes.load(Relaxed));
        (self.pushed.load(Relaxed).wrapping_sub(popped), self.pushed_bytes.load(Relaxed).wrapping_sub(popped_bytes))
    }

    /// Where the queue ends now, for [`Queue::is_drained_to`].
    pub(crate) fn end(&self) -> usize {
        // Acquire: pairs with the Release in `push`.
        self.pushed.load(Acquire)
    }

    /// Whether all entries before `end` have been run, to their last instruction.
    pub(crate) fn is_drained_to(&self, end: usize) -> bool {
        // Relaxed: taking the lock orders it, and shows that no drainer is still running an entry.
        self.try_lock().is_some_and(|_consumer| self.popped.load(Relaxed) >= end)
    }

    /// Runs what has passed its grace period, helping grace periods along; returns at once when somebody else drains.
    pub(crate) fn drain(&self) {
        if let Some(consumer) = self.try_lock() {
            consumer.drain();
        }
    }

    /// Like [`Queue::drain`], but leaves a queue alone whose oldest entry has come since the last call: its owner is busy
    /// and will see to it, with warmer caches. Says whether anything is left.
    pub(crate) fn drain_if_stale(&self) -> bool {
        let Some(consumer) = self.try_lock() else {
            return true;
        };
        // Relaxed: under the lock `popped` is ours.
        if self.popped.load(Relaxed) < self.seen.get() {
            consumer.drain();
        }
        self.seen.set(self.end());
        self.popped.load(Relaxed) < self.seen.get()
    }

    fn try_lock(&self) -> Option<Consumer<'_>> {
        // Acquire: pairs with the Release in `Consumer::drop`.
        let free = self.draining.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        free.then_some(Consumer(self))
    }

    /// In the child of a fork the drainer doesn't exist. At worst the one entry that it was running is lost.
    pub(crate) fn unlock_in_child(&self) {
        // Relaxed: the child has one thread.
        self.draining.store(false, Relaxed);
    }
}

/// The right to drain a queue.
struct Consumer<'q>(&'q Queue);

impl Consumer<'_> {
    fn drain(&self) {
        // Once for what was sealed before, once for what has come since. No more: a function that defers another one
        // must not keep us here.
        for _ in 0..2 {
            let sealed = self.seal();
            // Relaxed: ours under the lock.
            if self.0.popped.load(Relaxed) == sealed.end || !domain().poll(sealed.ticket) {
                return;
            }
            while let Some(deferred) = self.pop(sealed.end) {
                deferred.run();
            }
        }
    }

    /// The entries to wait for: those sealed before if any are left, else all there are now.
    fn seal(&self) -> Sealed {
        // Relaxed: ours under the lock.
        if self.0.popped.load(Relaxed) == self.0.sealed.get().end {
            let end = self.0.end();
            // The ticket is drawn after `end` was acquired, so its grace period begins after those entries were pushed.
            self.0.sealed.set(Sealed { end, ticket: domain().ticket() });
        }
        self.0.sealed.get()
    }

    fn pop(&self, end: usize) -> Option<Deferred> {
        let queue = self.0;
        // Relaxed, all: `popped` and `head` are ours under the lock, but for the producer's first store to `head`, which
        // `end`'s Acquire has shown us; so has it the link to the next chunk.
        let count = queue.popped.load(Relaxed);
        if count == end {
            return None;
        }
        let mut head = queue.head.load(Relaxed);
        if count > 0 && count.is_multiple_of(CHUNK) {
            let left = head;
            // SAFETY: `head` is a live chunk; entry `count < end` lies in the next, so the producer has linked it.
            head = unsafe { (*left).next.load(Relaxed) };
            queue.head.store(head, Relaxed);
            // SAFETY: came from `Box::into_raw`; the producer has moved on, and we just did.
            drop(unsafe { Box::from_raw(left) });
        }
        // SAFETY: entry `count < end` was written and published, and `popped` sees to it that it is read once.
        let deferred = unsafe { (*head).entries[count % CHUNK].get().read().assume_init() };
        // Relaxed: see `pending`.
        queue.popped_bytes.store(queue.popped_bytes.load(Relaxed).wrapping_add(deferred.bytes), Relaxed);
        queue.popped.store(count + 1, Relaxed);
        Some(deferred)
    }
}

impl Drop for Consumer<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `try_lock`.
        self.0.draining.store(false, Release);
    }
}
