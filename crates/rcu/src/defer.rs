//! Deferred reclamation, with a bound on what may pile up.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::domain::domain;
use crate::guard::{is_reading, read};
use crate::queue::{BATCH, BATCH_BYTES, Deferred, Queue};
use crate::registry::Slot;
use crate::sync::{Backoff, local};
use crate::worker;

/// How many deferred functions of one thread may wait for their grace period. A thread that has
/// deferred more waits, when it leaves its outermost read section, until enough have run.
///
/// The queue takes 24 bytes for each. After a long reader has left, one thread may have so many to
/// run at once.
pub const MAX_DEFERRED: usize = 256 * 1024;

/// How many bytes of deferred objects of one thread may wait for their grace period; see
/// [`MAX_DEFERRED`].
///
/// The bytes are those that the caller of [`defer_raw`] states. For [`defer`] and [`defer_drop`]
/// they are the size of the closure or the object itself. **What the object owns elsewhere does not
/// count**: a `Box<Vec<u8>>` counts as 24 bytes, however long the vector. Of such objects only the
/// number is bounded, so [`MAX_DEFERRED`] vectors of 1 MiB each may wait, which is 256 GiB. A
/// thread checks the bounds only after it has deferred 1024 functions or 1 MiB. If your objects own
/// much memory, state that to [`defer_raw`], or call [`barrier`] (outside of read sections) each
/// time you have retired as much as you can afford.
pub const MAX_DEFERRED_BYTES: usize = 16 << 20;

/// Calls `function` after a grace period, on this or another thread.
///
/// It runs outside of read sections: when some thread leaves one or calls [`barrier`], or on a
/// background thread within some tens of milliseconds. It may defer more, but must not block for
/// long, nor take a lock that some thread holds while it defers or leaves a read section: it may
/// run on that very thread. A panic in it is reported by the panic hook and goes no further. What
/// is pending when the process exits doesn't run: call [`barrier`] first if it must.
///
/// # Bounds
///
/// A thread with more than [`MAX_DEFERRED`] functions or [`MAX_DEFERRED_BYTES`] pending waits for
/// readers when it leaves its outermost read section (at once, when it is in none). So what piles
/// up behind a stalled reader is bounded by the number of threads, plus what each defers within a
/// single read section. In return a stalled reader stalls, at last, all who retire: a reader must
/// not wait for a thread that retires.
///
/// ```
/// use std::sync::Arc;
/// let shared = Arc::new(1);
/// let held = Arc::clone(&shared);
/// relativist_rcu::defer(move || drop(held));
/// relativist_rcu::barrier();
/// assert_eq!(Arc::strong_count(&shared), 1);
/// ```
pub fn defer<F: FnOnce() + Send + 'static>(function: F) {
    unsafe fn call<F: FnOnce()>(data: NonNull<()>) {
        // SAFETY: `data` is the box leaked below, and this is the one call.
        unsafe { Box::from_raw(data.cast::<F>().as_ptr())() };
    }
    let data = NonNull::from(Box::leak(Box::new(function))).cast();
    // SAFETY: `F: Send + 'static` may be called on any thread at any time, and `call` calls it
    // once.
    unsafe { defer_raw(data, size_of::<F>(), call::<F>) };
}

/// Drops the box after a grace period; [`defer`] tells when and where, and what bounds the backlog.
///
/// A `Box` promises the compiler that nobody else uses what is in it. This function is for what
/// readers reach *through* the object, such as a reference count that it holds. If readers look at
/// the object itself by pointers of their own, don't make it a `Box` again before they have left:
/// hand the pointer to [`defer_raw`].
///
/// ```
/// relativist_rcu::defer_drop(Box::new(String::from("unlinked before")));
/// ```
pub fn defer_drop<T: Send + 'static>(object: Box<T>) {
    let data = NonNull::from(Box::leak(object));
    // SAFETY: it was a box a moment ago, and `T: Send + 'static` may be dropped on any thread at
    // any time.
    unsafe { defer_free(data) };
}

/// Makes `object` a box again after a grace period, and drops it.
///
/// # Safety
///
/// It came from `Box::into_raw`, nobody else will free it, no new reader can find it, and `T` may
/// be dropped on any thread at any later time.
pub(crate) unsafe fn defer_free<T>(object: NonNull<T>) {
    unsafe fn free<T>(data: NonNull<()>) {
        // SAFETY: `data` came from a box, this is the one call, and readers have left it.
        drop(unsafe { Box::from_raw(data.cast::<T>().as_ptr()) });
    }
    // SAFETY: the caller's promise; `free` drops it once.
    unsafe { defer_raw(object.cast(), size_of::<T>(), free::<T>) };
}

/// Calls `reclaim(data)` after a grace period. Allocates only a chunk of the queue, 6 KiB, for
/// every 255 functions, and aborts without memory for it.
///
/// `bytes` is what keeping `data` costs; it counts towards [`MAX_DEFERRED_BYTES`].
///
/// # Safety
///
/// `reclaim(data)` must be sound to call once, at any later time, on any thread, when no reader
/// that could have found `data` before this call is left.
pub unsafe fn defer_raw(data: NonNull<()>, bytes: usize, reclaim: unsafe fn(NonNull<()>)) {
    let guard = read();
    let slot = guard.slot();
    slot.queue.push(Deferred { data, bytes, reclaim });
    if slot.queue.is_due() {
        slot.queue.set_due();
        slot.nesting.set(slot.nesting.get() | Slot::RECLAIM);
    }
    worker::wake();
}

/// Runs `function` without the wait that bounds what piles up: read sections of this thread that
/// end meanwhile end at once, however much it has deferred. The bound counts again when the thread
/// has deferred another batch after it.
///
/// For work done on behalf of a thread that waits for it inside a read section. That one would wait
/// for ever if this one waited for readers. Each `function` should defer no more than could pile up
/// within a single read section. It does not reach what `function` hands on to other threads.
///
/// ```
/// use relativist_rcu::{defer, read, without_waiting};
///
/// let _guard = read(); // of a thread that waits
/// std::thread::scope(|scope| {
///     scope.spawn(|| without_waiting(|| (0..100_000).for_each(|_| defer(|| {}))));
/// });
/// ```
pub fn without_waiting<R>(function: impl FnOnce() -> R) -> R {
    struct Unbounded;
    impl Drop for Unbounded {
        fn drop(&mut self) {
            UNBOUNDED.with(|depth| depth.set(depth.get() - 1));
        }
    }
    UNBOUNDED.with(|depth| depth.set(depth.get() + 1));
    let _unbounded = Unbounded;
    function()
}

/// Runs `function`, and meanwhile no deferred functions on this thread: those that have become due
/// run on occasion of a later one, or in the background.
///
/// For who holds a lock that deferred functions may take.
pub fn without_reclaiming<R>(function: impl FnOnce() -> R) -> R {
    // None inside a deferred function, where it is so anyway.
    let _marked = Reclaiming::mark();
    function()
}

local! {
    /// How many calls of `without_waiting` this thread is in. Has no destructor, so it can be used
    /// at any moment of a thread's life.
    static UNBOUNDED: Cell<usize> = Cell::new(0);
}

/// Waits until everything that any thread deferred before this call has run.
///
/// Blocking. Runs deferred functions on this thread as well.
///
/// # Panics
///
/// * Inside a read section, and inside a deferred function: both would wait for themselves.
/// * When a deferred function that it has run leaves a read section open on this thread, by leaking
///   the guard or storing it in a thread-local variable.
pub fn barrier() {
    assert!(
        !is_reading(),
        "relativist_rcu::barrier inside a read section would wait for itself: drop the Guard of this thread first"
    );
    domain().initialize_by_default();
    let Some(marked) = Reclaiming::mark() else {
        panic!("relativist_rcu::barrier inside a deferred function would wait for itself");
    };
    let ends: Vec<(&Queue, u64)> = domain().registry.iter().map(|slot| (&slot.queue, slot.queue.end())).collect();
    for (queue, end) in ends {
        let mut backoff = Backoff::new();
        while !queue.is_drained_to(end) {
            queue.drain(&marked);
            assert!(
                !is_reading(),
                "a deferred function has left a read section open on this thread, for which relativist_rcu::barrier would wait for ever"
            );
            backoff.wait();
        }
    }
}

/// Runs what can be run of the calling thread's deferred functions, and waits while too many are
/// left.
pub(crate) fn reclaim(slot: &Slot) {
    // A deferred function has deferred more, and we are called from within the drain.
    let Some(marked) = Reclaiming::mark() else { return };
    slot.queue.drain(&marked);
    let mut backoff = Backoff::new();
    while over_bounds(&slot.queue) && UNBOUNDED.with(Cell::get) == 0 {
        // A deferred function may have left a section open on this thread, which would then wait
        // for itself.
        if slot.is_reading() {
            break;
        }
        backoff.wait();
        slot.queue.drain(&marked);
    }
    slot.queue.set_due();
}

/// Whether the owner may not go on: it looks again one batch from here, and must not be past the
/// bounds before.
fn over_bounds(queue: &Queue) -> bool {
    let (count, bytes) = queue.pending();
    let too_many = count > MAX_DEFERRED as u64 - BATCH;
    let too_large = bytes > MAX_DEFERRED_BYTES - BATCH_BYTES;
    too_many || too_large
}

/// The mark of a thread that runs deferred functions: those must not wait for what waits for them,
/// nor start to reclaim again from within.
pub(crate) struct Reclaiming;

local! {
    /// Whether this thread bears the mark. Has no destructor, so it can be used at any moment of a
    /// thread's life.
    static MARKED: Cell<bool> = Cell::new(false);
}

impl Reclaiming {
    /// `None` when the calling thread bears the mark already.
    pub(crate) fn mark() -> Option<Self> {
        // Built only if it is ours: dropping it takes the mark off.
        (!MARKED.with(|marked| marked.replace(true))).then(|| Self)
    }
}

impl Drop for Reclaiming {
    fn drop(&mut self) {
        MARKED.with(|marked| marked.set(false));
    }
}
