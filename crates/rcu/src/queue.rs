//! A thread's deferred functions: an unbounded queue with one producer and one consumer at a time.
//!
//! The owner of the slot pushes without a read-modify-write. Any thread that holds the queue's lock
//! may drain it. Entries sit in chunks, each linked to the next; the producer never touches a chunk
//! again once it has linked the next one, so the consumer frees chunks as it leaves them. (The
//! owner bounds its queue: see `defer.rs`.)
//!
//! A fork may stop producer and consumer between any two steps, and the child continues from there.
//! So each step leaves a consistent state: a chunk has the number of its first entry, links are set
//! before data that relies on them, and [`Queue::reset_in_child`] resets data that may be torn.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{NonNull, null_mut};

use crate::contention::Site;
use crate::current::thread_token;
use crate::defer::Reclaiming;
use crate::domain::{GracePeriods, Readers};
use relativist_core::prefetch::prefetch_for_write;
use relativist_core::sync::atomic::{
    AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use relativist_core::sync::{Cell, UnsafeCell, compiler_fence, const_fn};
use relativist_core::unwind::contain;

/// A function to call after a grace period.
pub(crate) struct Deferred {
    pub(crate) data: NonNull<()>,
    /// The memory that `data` occupies, according to the caller.
    pub(crate) bytes: usize,
    pub(crate) reclaim: unsafe fn(NonNull<()>),
}

impl Deferred {
    /// Calls the function. Contains a panic, because the thread that happens to reclaim did not
    /// cause it.
    fn run(self) {
        // SAFETY: `defer_raw` requires that `reclaim(data)` may be called once, on any thread,
        // after a grace period; the queue returns each entry once, after the grace period that
        // began after the entry was pushed.
        let call = || unsafe { (self.reclaim)(self.data) };
        contain(call);
    }
}

/// After this number of entries or bytes the owner checks whether it can run some. The number is
/// large enough to amortize the cost of a barrier, and small enough that the objects are still in
/// the cache.
pub(crate) const BATCH: u64 = 1024;
pub(crate) const BATCH_BYTES: usize = 1 << 20;

/// The number of entries that a thread runs at a time when it reclaims on the side, while it defers
/// or leaves a section. It is a multiple of a batch, so that a backlog shrinks although each batch
/// that is deferred adds to it. It bounds the time of the operation.
pub(crate) const SLICE: u64 = 4 * BATCH;

/// Returns a function for [`Queue::drain`] that lets it run a slice.
pub(crate) fn slice() -> impl FnMut() -> bool {
    let mut left = SLICE;
    move || {
        left -= 1;
        left > 0
    }
}

/// A function for [`Queue::drain`] that lets it run all that is due.
pub(crate) fn everything() -> bool {
    true
}

/// The number of entries ahead of the current one at which objects are prefetched. An object to be
/// reclaimed may no longer be in the cache.
const AHEAD: u64 = 8;

/// The number of entries in a chunk. It is 1 under loom, so that short models use several chunks.
const CHUNK: u64 = if cfg!(relativist_loom) { 1 } else { 255 };

struct Chunk {
    /// The number of the first entry, counted from the first ever pushed.
    first: u64,
    entries: [UnsafeCell<MaybeUninit<Deferred>>; CHUNK as usize],
    next: AtomicPtr<Chunk>,
}

impl Chunk {
    fn allocate() -> Box<Self> {
        let entries = std::array::from_fn(|_| UnsafeCell::new(MaybeUninit::uninit()));
        Box::new(Self { first: 0, entries, next: AtomicPtr::new(null_mut()) })
    }

    fn holds(&self, number: u64) -> bool {
        number - self.first < CHUNK
    }

    fn entry(&self, number: u64) -> &UnsafeCell<MaybeUninit<Deferred>> {
        &self.entries[(number - self.first) as usize]
    }
}

/// Entries below `end` may run once the grace period `ticket` has ended.
#[derive(Clone, Copy)]
struct Sealed {
    end: u64,
    ticket: u64,
}

static CONSUMER: Site = Site::new("rcu_queue");

pub(crate) struct Queue {
    /// The chunk being filled. Used by the producer only.
    tail: Cell<*mut Chunk>,
    /// Entries and bytes ever pushed; written by the producer.
    pushed: AtomicU64,
    pushed_bytes: AtomicUsize,
    /// The same numbers as of the last `set_due`. Used by the producer only.
    looked: Cell<(u64, usize)>,
    /// The worker is to run the entries below this number as soon as readers permit. Written by the
    /// producer.
    urgent: AtomicU64,
    /// The chunk being emptied. The producer sets the first, the consumer all that follow.
    head: AtomicPtr<Chunk>,
    /// Entries and bytes ever taken; written by the consumer.
    popped: AtomicU64,
    popped_bytes: AtomicUsize,
    /// The number of entries whose functions have returned; written by the consumer. Differs from
    /// `popped` while a function runs. Entries are counted in `popped` before they run, so that the
    /// child of a fork that comes while one runs does not run it again.
    returned: AtomicU64,
    /// The consumer's lock: [`Queue::FREE`], or the thread that holds it.
    consumer: AtomicUsize,
    /// Used by the consumer only.
    sealed: Cell<Sealed>,
    /// `pushed` as of the worker's last pass. Used by the consumer only.
    seen: Cell<u64>,
}

// SAFETY: `tail` and `looked` are touched by the owner of the slot alone, `sealed` and `seen` by
// the holder of `consumer` alone (taken with Acquire, released with Release). Entries are written
// by the producer before the Release store of `pushed` and read by the consumer after its Acquire
// load; each is read once. `Deferred` is safe to send by the contract of `defer_raw`.
unsafe impl Sync for Queue {}

impl Queue {
    const FREE: usize = 0;

    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                tail: Cell::new(null_mut()),
                pushed: AtomicU64::new(0),
                pushed_bytes: AtomicUsize::new(0),
                looked: Cell::new((0, 0)),
                urgent: AtomicU64::new(0),
                head: AtomicPtr::new(null_mut()),
                popped: AtomicU64::new(0),
                popped_bytes: AtomicUsize::new(0),
                returned: AtomicU64::new(0),
                consumer: AtomicUsize::new(Self::FREE),
                sealed: Cell::new(Sealed { end: 0, ticket: 0 }),
                seen: Cell::new(0),
            }
        }
    }

    /// Appends an entry. The caller owns the slot.
    #[inline]
    pub(crate) fn push(&self, deferred: Deferred) {
        let chunk = self.make_room();
        // Relaxed, all: the producer's own counts; the bytes are published with `pushed`.
        let (count, bytes) = (self.pushed.load(Relaxed), self.pushed_bytes.load(Relaxed));
        self.pushed_bytes.store(bytes.wrapping_add(deferred.bytes), Relaxed);
        // SAFETY: the producer's live chunk, and no thread reads this entry before `pushed` counts
        // it.
        unsafe { chunk.as_ref() }.entry(count).with_mut(|entry| unsafe { (*entry).write(deferred) });
        // Release: pairs with the Acquire in `end`: publishes entry, chunk and bytes. Loom would
        // not notice Relaxed here or there: entries are pushed in a read section, and the grace
        // period orders its end before each drain.
        // litmus: queue-push, queue-sealed
        self.pushed.store(count + 1, Release);
    }

    /// Returns the chunk for the next entry. Only the producer calls this.
    #[inline(always)]
    fn make_room(&self) -> NonNull<Chunk> {
        match self.chunk_with_room() {
            Some(chunk) => chunk,
            None => self.add_chunk(),
        }
    }

    #[cold]
    fn add_chunk(&self) -> NonNull<Chunk> {
        loop {
            let new = Chunk::allocate();
            // A global allocator that uses RCU itself may have pushed entries and appended a chunk
            // in `allocate`.
            if self.chunk_with_room().is_none() {
                return self.append_chunk(new);
            }
            drop(new);
            if let Some(chunk) = self.chunk_with_room() {
                return chunk;
            }
        }
    }

    /// Returns the last chunk, if it has room.
    #[inline(always)]
    fn chunk_with_room(&self) -> Option<NonNull<Chunk>> {
        let chunk = NonNull::new(self.tail.get())?;
        // Relaxed: the producer's own count.
        let count = self.pushed.load(Relaxed);
        // SAFETY: the producer's live chunk: the consumer frees it only after a next one is linked.
        unsafe { chunk.as_ref() }.holds(count).then_some(chunk)
    }

    fn append_chunk(&self, mut chunk: Box<Chunk>) -> NonNull<Chunk> {
        // Relaxed: the producer's own count.
        chunk.first = self.pushed.load(Relaxed);
        let chunk = Box::into_raw(chunk);
        match NonNull::new(self.tail.get()) {
            // Relaxed, both: published with `pushed`.
            None => self.head.store(chunk, Relaxed),
            // SAFETY: the last chunk is not freed before this link is seen.
            Some(last) => unsafe { last.as_ref() }.next.store(chunk, Relaxed),
        }
        // Orders the stores, so that a child of a fork that finds the new tail also finds the link.
        compiler_fence(SeqCst);
        self.tail.set(chunk);
        // SAFETY: from a box.
        unsafe { NonNull::new_unchecked(chunk) }
    }

    /// Returns whether the owner has pushed enough since the last `set_due` to reclaim. The caller
    /// owns the slot.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        let (count, bytes) = self.looked.get();
        // Relaxed: the producer's own counts.
        let (pushed, pushed_bytes) = (self.pushed.load(Relaxed), self.pushed_bytes.load(Relaxed));
        pushed - count >= BATCH || pushed_bytes.wrapping_sub(bytes) >= BATCH_BYTES
    }

    /// Sets the next reclamation to one batch from now. The caller owns the slot.
    pub(crate) fn set_due(&self) {
        // Relaxed: the producer's own counts.
        self.looked.set((self.pushed.load(Relaxed), self.pushed_bytes.load(Relaxed)));
    }

    /// Makes all entries pushed so far urgent. The caller owns the slot.
    #[cfg_attr(relativist_loom, expect(dead_code, reason = "for the worker, of which loom has none"))]
    pub(crate) fn set_urgent(&self) {
        // Relaxed, both: the producer's own count, and a heuristic. The worker that misses it runs
        // the entries later.
        self.urgent.store(self.pushed.load(Relaxed), Relaxed);
    }

    /// Drains the queue if it has urgent entries. Returns whether any of these are left.
    #[cfg_attr(relativist_loom, expect(dead_code, reason = "the worker's, of which loom has none"))]
    pub(crate) fn drain_if_urgent(&self, domain: &GracePeriods<impl Readers>, marked: &Reclaiming) -> bool {
        // Relaxed, both: heuristics.
        let has_urgent = || self.popped.load(Relaxed) < self.urgent.load(Relaxed);
        if has_urgent() {
            self.drain(domain, marked, everything);
        }
        has_urgent()
    }

    /// Returns the entries and bytes that wait. It is an estimate for threads other than the owner.
    pub(crate) fn pending(&self) -> (u64, usize) {
        // Relaxed: heuristics. `popped` is loaded first, so that the difference cannot be negative
        // for the owner.
        let (popped, popped_bytes) = (self.popped.load(Relaxed), self.popped_bytes.load(Relaxed));
        match self.pushed.load(Relaxed).wrapping_sub(popped) {
            // A fork may have happened between the updates of a count and its bytes. If there are
            // no entries, there are no bytes.
            0 => (0, 0),
            count => (count, self.pushed_bytes.load(Relaxed).wrapping_sub(popped_bytes)),
        }
    }

    /// Returns the current end of the queue, for [`Queue::is_drained_to`].
    pub(crate) fn end(&self) -> u64 {
        // Acquire: pairs with the Release in `push`.
        // litmus: queue-push, queue-sealed
        self.pushed.load(Acquire)
    }

    /// Returns whether the functions of all entries before `end` have returned. Does not need the
    /// lock, which a consumer may hold most of the time, while it runs later entries.
    pub(crate) fn is_drained_to(&self, end: u64) -> bool {
        // Acquire: pairs with the Release in `run_next`: what the functions of the counted entries
        // did happens before what the caller does next. Entries run in the order of their numbers.
        // The consumer that stored the count has run the last of them, and has run those before
        // it, or has taken the lock after the consumer that did.
        // litmus: queue-drained
        self.returned.load(Acquire) >= end
    }

    /// Runs the entries whose grace period has passed, and drives grace periods. `goes_on` is
    /// called after each entry: if it returns false, the others are left. Returns whether any
    /// entries have run: none if another thread drains the queue.
    pub(crate) fn drain(
        &self,
        domain: &GracePeriods<impl Readers>,
        _marked: &Reclaiming,
        goes_on: impl FnMut() -> bool,
    ) -> bool {
        self.try_lock().is_some_and(|consumer| consumer.drain(domain, goes_on))
    }

    /// Like [`Queue::drain`], but skips a queue whose oldest entry is newer than the last call: its
    /// owner is active and will drain it, with warmer caches. Returns whether any entries are left.
    pub(crate) fn drain_if_stale(
        &self,
        domain: &GracePeriods<impl Readers>,
        _marked: &Reclaiming,
        goes_on: impl FnMut() -> bool,
    ) -> bool {
        let Some(consumer) = self.try_lock() else {
            return true;
        };
        // Relaxed: only the holder of the lock writes `popped`.
        if self.popped.load(Relaxed) < self.seen.get() {
            consumer.drain(domain, goes_on);
        }
        self.seen.set(self.end());
        self.popped.load(Relaxed) < self.seen.get()
    }

    fn try_lock(&self) -> Option<Consumer<'_>> {
        // Acquire: pairs with the Release in `Consumer::drop`.
        // litmus: queue-consumer, queue-drained
        let taken = self.consumer.compare_exchange(Self::FREE, thread_token(), Acquire, Relaxed);
        CONSUMER.count_try(taken.is_ok());
        taken.is_ok().then(|| Consumer(self))
    }

    /// Runs all entries, and frees the memory of the queue. No reader may be left that could find
    /// their objects.
    pub(crate) fn run_all(&mut self) {
        // Needs no lock, because no other thread has a reference to the queue.
        let consumer = ManuallyDrop::new(Consumer(self));
        while consumer.run_next(self.end()) {}
        // Relaxed: no other thread uses it.
        let last = self.head.swap(null_mut(), Relaxed);
        if !last.is_null() {
            // SAFETY: it came from `Box::into_raw`, and all its entries were taken.
            drop(unsafe { Box::from_raw(last) });
        }
        self.tail.set(null_mut());
    }

    /// Releases the lock in the child of a fork, where no other thread can drain. At most the entry
    /// that another thread was running is lost.
    #[cfg(all(unix, not(relativist_loom)))]
    pub(crate) fn reset_in_child(&self) {
        // Relaxed, all: the child has one thread. If it forked in a deferred function, it still
        // drains the queue.
        if self.consumer.load(Relaxed) == thread_token() {
            return;
        }
        let popped = self.popped.load(Relaxed);
        // The function that was running is lost, so it counts as having returned.
        self.returned.store(popped, Relaxed);
        // `sealed` may be torn. An end that has been reached makes `seal` draw a new ticket.
        self.sealed.set(Sealed { end: popped, ticket: 0 });
        self.consumer.store(Self::FREE, Relaxed);
    }
}

/// The right to drain a queue.
struct Consumer<'q>(&'q Queue);

impl Consumer<'_> {
    /// See [`Queue::drain`].
    fn drain(&self, domain: &GracePeriods<impl Readers>, mut goes_on: impl FnMut() -> bool) -> bool {
        let mut has_run = false;
        // The first pass is for the entries sealed before, the second for those pushed since. There
        // is no third, so that a function that defers another one does not make this loop endless.
        for _ in 0..2 {
            let sealed = self.seal(domain);
            // Relaxed: only the holder of the lock writes it.
            if self.0.popped.load(Relaxed) == sealed.end || !Self::may_run(domain, sealed) {
                break;
            }
            while self.run_next(sealed.end) {
                has_run = true;
                if !goes_on() {
                    return true;
                }
            }
        }
        has_run
    }

    fn may_run(domain: &GracePeriods<impl Readers>, sealed: Sealed) -> bool {
        domain.poll(sealed.ticket)
    }

    /// Returns the entries to wait for: those sealed before if any are left, otherwise all entries.
    fn seal(&self, domain: &GracePeriods<impl Readers>) -> Sealed {
        // Relaxed: only the holder of the lock writes it.
        if self.0.popped.load(Relaxed) == self.0.sealed.get().end {
            let end = self.0.end();
            // The ticket is drawn after `end` was acquired, so its grace period begins after those
            // entries were pushed.
            self.0.sealed.set(Sealed { end, ticket: domain.ticket() });
        }
        self.0.sealed.get()
    }

    /// Takes the next entry before `end`, and runs its function. Returns false if there is none.
    fn run_next(&self, end: u64) -> bool {
        let Some(deferred) = self.pop(end) else { return false };
        deferred.run();
        // Relaxed: only the holder of the lock writes it.
        let popped = self.0.popped.load(Relaxed);
        // Release: pairs with the Acquire in `is_drained_to`.
        // litmus: queue-drained
        self.0.returned.store(popped, Release);
        true
    }

    fn pop(&self, end: u64) -> Option<Deferred> {
        let queue = self.0;
        // Relaxed, all: only the holder of the lock writes `popped` and `head`, except for the
        // producer's first store to `head`. The Acquire in `end` makes this store and the link to
        // the next chunk visible.
        let number = queue.popped.load(Relaxed);
        if number == end {
            return None;
        }
        let chunk = self.chunk_of(number);
        let later = number + AHEAD;
        if later < end && chunk.holds(later) {
            // SAFETY: written and published as well, and not moved out yet.
            prefetch_for_write(
                chunk.entry(later).with_mut(|entry| unsafe { (*entry).assume_init_ref().data.as_ptr() }),
            );
        }
        // SAFETY: entry `number < end` was written and published, and `popped` ensures that it is
        // read once.
        let deferred = chunk.entry(number).with_mut(|entry| unsafe { (*entry).assume_init_read() });
        // Relaxed: see `pending`.
        queue.popped_bytes.store(queue.popped_bytes.load(Relaxed).wrapping_add(deferred.bytes), Relaxed);
        queue.popped.store(number + 1, Relaxed);
        Some(deferred)
    }

    /// Returns the chunk of the next entry, which must have been pushed. Frees the one before.
    fn chunk_of(&self, number: u64) -> &Chunk {
        // Relaxed, all: see `pop`.
        let left = self.0.head.load(Relaxed);
        // SAFETY: an entry has been pushed, so there is a chunk, and only the consumer frees it.
        let chunk = unsafe { &*left };
        if chunk.holds(number) {
            return chunk;
        }
        let next = chunk.next.load(Relaxed);
        self.0.head.store(next, Relaxed);
        // The head is set before the chunk is freed, so that a child of a fork finds no freed head.
        compiler_fence(SeqCst);
        // SAFETY: it came from `Box::into_raw`; the producer moved on before it pushed the entry,
        // and this thread just did.
        drop(unsafe { Box::from_raw(left) });
        // SAFETY: the entry has been pushed and is not in the chunk before, so the next is linked,
        // and live as above.
        unsafe { &*next }
    }
}

impl Drop for Consumer<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `try_lock`.
        // litmus: queue-consumer, queue-drained
        self.0.consumer.store(Queue::FREE, Release);
    }
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use std::time::Instant;

    use relativist_testing::patience;

    use super::*;
    use crate::domain::domain;
    use crate::guard::read;

    /// R10: without a tick of the worker, a queue is drained up to its urgent entries, and not
    /// because of others.
    #[test]
    fn only_urgent_entries_are_drained_early() {
        static QUEUE: Queue = Queue::new();
        static RAN: AtomicUsize = AtomicUsize::new(0);
        fn push() {
            let count = |_| _ = RAN.fetch_add(1, SeqCst);
            QUEUE.push(Deferred { data: NonNull::dangling(), bytes: 0, reclaim: count });
        }
        drop(read()); // the domain has chosen its barrier
        let marked = Reclaiming::mark().expect("this thread runs no deferred function");
        let began = Instant::now();
        for urgent in [1, 2] {
            push();
            assert!(!QUEUE.drain_if_urgent(domain(), &marked));
            assert_eq!(RAN.load(SeqCst), urgent - 1);
            QUEUE.set_urgent();
            while QUEUE.drain_if_urgent(domain(), &marked) {
                assert!(began.elapsed() < patience(), "a reader of another test does not leave");
                std::thread::yield_now();
            }
            assert_eq!(RAN.load(SeqCst), urgent);
        }
    }
}
