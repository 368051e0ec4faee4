//! Deferred reclamation, with a bound on the backlog.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::domain::domain;
use crate::guard::{Guard, is_reading, read};
use crate::queue::{BATCH, BATCH_BYTES, Deferred, Queue, everything, slice};
use crate::registry::Slot;
use crate::worker;
use relativist_core::hint::cold_path;
use relativist_core::sync::{Backoff, local};

/// The maximum number of deferred functions of one thread that may wait for their grace period. A
/// thread that has deferred more waits, when it leaves its outermost read section, until enough
/// have run.
///
/// The queue takes 24 bytes for each. After a long reader has left, a thread runs at most 4096 of
/// its functions each time it has deferred 1024 more, and the background thread runs the others.
///
/// Functions that a [`Domain`](crate::Domain) runs may defer others here. These count towards the
/// bound of the thread that runs them. As long as it is reached, the thread runs no functions of
/// such domains.
pub const MAX_DEFERRED: usize = 256 * 1024;

/// The maximum number of bytes of deferred objects of one thread that may wait for their grace
/// period; see [`MAX_DEFERRED`].
///
/// The bytes are those that the caller of [`defer_raw`] states. For [`defer`] and [`defer_drop`]
/// they are the size of the closure or the object itself. **What the object owns elsewhere does not
/// count**: a `Box<Vec<u8>>` counts as 24 bytes, however long the vector. Of such objects only the
/// number is bounded, so [`MAX_DEFERRED`] vectors of 1 MiB each may wait, which is 256 GiB. A
/// thread checks the bounds only after it has deferred 1024 functions or 1 MiB. If your objects own
/// much memory, pass its size to [`defer_raw`], or call [`barrier`] (outside of read sections) each
/// time you have retired as much as you can afford.
pub const MAX_DEFERRED_BYTES: usize = 16 << 20;

/// Calls `function` after a grace period, on this or another thread.
///
/// It runs outside of read sections: when some thread leaves one or calls [`barrier`], or on a
/// background thread within some tens of milliseconds. It may defer more functions, but must not
/// block for long. It must not take a lock that a thread holds while that thread defers or leaves a
/// read section, because it may run on that thread. The panic hook reports a panic in the function;
/// the panic does not reach the caller of this function. Functions that are pending when the
/// process exits do not run; call [`barrier`] before that if they must.
///
/// # Bounds
///
/// A thread with more than [`MAX_DEFERRED`] functions or [`MAX_DEFERRED_BYTES`] pending waits for
/// readers when it leaves its outermost read section (at once, when it is in none). So the backlog
/// behind a stalled reader is bounded by these limits times the number of threads, plus the
/// functions that each thread defers within a single read section. But a stalled reader eventually
/// stalls all threads that retire objects. Therefore a reader must not wait for a thread that
/// retires objects.
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
    let (data, call) = raw_call(function);
    // SAFETY: `F: Send + 'static` may be called on any thread at any time, and `call` calls it
    // once.
    unsafe { defer_raw(data, size_of::<F>(), call) };
}

/// The arguments of `defer_raw` that are not the size.
type RawDeferred = (NonNull<()>, unsafe fn(NonNull<()>));

/// Converts a closure to a function that calls it, for one call.
pub(crate) fn raw_call<F: FnOnce()>(function: F) -> RawDeferred {
    unsafe fn call<F: FnOnce()>(data: NonNull<()>) {
        // SAFETY: `data` is the box leaked below, and this is the only call.
        unsafe { Box::from_raw(data.cast::<F>().as_ptr())() };
    }
    (NonNull::from(Box::leak(Box::new(function))).cast(), call::<F>)
}

/// Returns a function that makes `object`, which came from `Box::into_raw`, a box again and drops
/// it.
pub(crate) fn raw_free<T>(object: NonNull<T>) -> RawDeferred {
    unsafe fn free<T>(data: NonNull<()>) {
        // SAFETY: `data` came from a box, this is the only call, and all its readers have left.
        drop(unsafe { Box::from_raw(data.cast::<T>().as_ptr()) });
    }
    (object.cast(), free::<T>)
}

/// Drops the box after a grace period. [`defer`] describes when and on which thread, and the
/// bounds.
///
/// A `Box` promises the compiler that its contents are used through the box only. So this function
/// is for objects *through* which readers reach others, such as a reference count that the object
/// holds. If readers have pointers to the object itself, do not make it a `Box` again before they
/// have left: pass the pointer to [`defer_raw`].
///
/// ```
/// relativist_rcu::defer_drop(Box::new(String::from("unlinked before")));
/// ```
pub fn defer_drop<T: Send + 'static>(object: Box<T>) {
    let data = NonNull::from(Box::leak(object));
    // SAFETY: it was a box until now, and `T: Send + 'static` may be dropped on any thread at any
    // time.
    unsafe { defer_free(data) };
}

/// Makes `object` a box again after a grace period, and drops it.
///
/// # Safety
///
/// `object` came from `Box::into_raw`, no other code will free it, no new reader can find it, and
/// `T` may be dropped on any thread at any later time.
pub(crate) unsafe fn defer_free<T>(object: NonNull<T>) {
    let (data, free) = raw_free(object);
    // SAFETY: guaranteed by the caller; `free` drops it once.
    unsafe { defer_raw(data, size_of::<T>(), free) };
}

/// Calls `reclaim(data)` after a grace period. Allocates a chunk of the queue, 6 KiB, for every 255
/// functions, and aborts if there is no memory for it.
///
/// `bytes` is the memory that `data` occupies until it is reclaimed; it counts towards
/// [`MAX_DEFERRED_BYTES`].
///
/// # Safety
///
/// `reclaim(data)` must be sound to call once, at any later time, on any thread, when no reader
/// that could have found `data` before this call is left.
pub unsafe fn defer_raw(data: NonNull<()>, bytes: usize, reclaim: unsafe fn(NonNull<()>)) {
    // SAFETY: guaranteed by the caller.
    unsafe { read().defer_raw(data, bytes, reclaim) };
}

impl Guard {
    /// Like the function [`defer_raw`], but does not enter a nested read section, which takes a few
    /// instructions less. What is due runs when the outermost section ends.
    ///
    /// ```
    /// use std::ptr::NonNull;
    ///
    /// let guard = relativist_rcu::read();
    /// let object = NonNull::from(Box::leak(Box::new(1)));
    /// // SAFETY: no reader has found the object, which any thread may free.
    /// unsafe {
    ///     guard.defer_raw(object.cast(), size_of::<i32>(), |object| {
    ///         drop(Box::from_raw(object.cast::<i32>().as_ptr()));
    ///     });
    /// }
    /// drop(guard);
    /// relativist_rcu::barrier();
    /// ```
    ///
    /// # Safety
    ///
    /// The same as for the function.
    #[inline]
    pub unsafe fn defer_raw(&self, data: NonNull<()>, bytes: usize, reclaim: unsafe fn(NonNull<()>)) {
        let slot = self.slot();
        slot.queue.push(Deferred { data, bytes, reclaim });
        if slot.queue.is_due() {
            cold_path();
            slot.queue.set_due();
            slot.nesting.set(slot.nesting.get() | Slot::RECLAIM);
        }
        worker::wake();
    }
}

/// Makes the background thread run what this thread has deferred so far as soon as readers permit:
/// mostly within a millisecond, instead of some tens of milliseconds. Call this after deferring the
/// reclamation of much memory, for example of the array of a hash table. It wakes the background
/// thread, which takes a system call.
///
/// ```
/// relativist_rcu::defer_drop(Box::new([0u64; 10_000]));
/// relativist_rcu::reclaim_soon();
/// ```
pub fn reclaim_soon() {
    worker::hurry();
}

/// Runs `function` without the wait that bounds the backlog: read sections of this thread that end
/// during `function` do not wait, however much the thread has deferred. The bound applies again
/// after the thread has deferred another batch.
///
/// Use this for work on behalf of a thread that waits for it inside a read section: if this thread
/// waited for readers, both would wait for ever. Each `function` should defer no more than a single
/// read section may. Work that `function` passes to other threads is not affected.
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

/// Runs `function`, and runs no deferred functions on this thread until it returns: those that
/// become due run later, or in the background.
///
/// Use this while holding a lock that deferred functions may take.
pub fn without_reclaiming<R>(function: impl FnOnce() -> R) -> R {
    // `None` inside a deferred function, during which this thread runs no other one anyway.
    let _marked = Reclaiming::mark();
    function()
}

/// Returns whether the calling thread is inside a deferred function or
/// [`without_reclaiming`]. Code that waits until deferred functions have run would wait for itself
/// there.
pub fn is_reclaiming() -> bool {
    MARK.with(Cell::get) != Mark::None
}

local! {
    /// The number of calls of `without_waiting` that this thread is in. Has no destructor, so a
    /// thread can use it at any time until it ends.
    static UNBOUNDED: Cell<usize> = Cell::new(0);
}

/// Waits until everything that any thread deferred before this call has run. Does not wait for what
/// is deferred later, even if other threads run that all the time.
///
/// Blocks. Runs deferred functions on this thread as well.
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
            queue.drain(domain(), &marked, everything);
            assert!(
                !is_reading(),
                "a deferred function has left a read section open on this thread, for which relativist_rcu::barrier would wait for ever"
            );
            backoff.wait();
        }
    }
}

/// Runs those of the calling thread's deferred functions that are due, and waits while too many are
/// left.
pub(crate) fn reclaim(slot: &Slot) {
    // A deferred function has called this by deferring another one. The outer call continues the
    // work.
    let Some(marked) = Reclaiming::mark() else { return Reclaiming::set_due() };
    let mut backoff = Backoff::new();
    loop {
        let has_run = slot.queue.drain(domain(), &marked, slice());
        // A deferred function may have left a section open on this thread. The thread would then
        // wait for itself.
        if !over_bounds(&slot.queue) || is_unbounded() || slot.is_reading() {
            break;
        }
        if !has_run {
            backoff.wait();
        }
    }
    slot.queue.set_due();
}

/// Returns whether the calling thread may run functions of a private domain, which may defer others
/// in the domain of the process: not if the thread would have to wait there (R5). Before that runs
/// those of its functions there that are due, if there is at least a batch. Does not wait.
pub(crate) fn make_room(marked: &Reclaiming) -> bool {
    marked.clear_due();
    // Models of loom never defer a batch, and each load makes them longer.
    if cfg!(relativist_loom) || is_reading() {
        return true;
    }
    // If the thread is exiting, it has a slot only while it is in a section.
    let slot = read().slot();
    let (count, bytes) = slot.queue.pending();
    if count >= BATCH || bytes >= BATCH_BYTES {
        slot.queue.drain(domain(), marked, slice());
    }
    !over_bounds(&slot.queue) || is_unbounded()
}

/// Returns whether the calling thread is in [`without_waiting`].
fn is_unbounded() -> bool {
    UNBOUNDED.with(Cell::get) > 0
}

/// Returns whether the owner has to wait. It checks again only after one batch, and must not exceed
/// the bounds before that.
fn over_bounds(queue: &Queue) -> bool {
    let (count, bytes) = queue.pending();
    let too_many = count > MAX_DEFERRED as u64 - BATCH;
    let too_large = bytes > MAX_DEFERRED_BYTES - BATCH_BYTES;
    too_many || too_large
}

/// The mark of a thread that runs deferred functions. Deferred functions must not wait for code
/// that waits for them, and must not start another reclamation.
pub(crate) struct Reclaiming;

local! {
    /// Has no destructor, so a thread can use it at any time until it ends.
    static MARK: Cell<Mark> = Cell::new(Mark::None);
}

/// Whether a thread has the mark.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    None,
    Set,
    /// It has the mark, and has deferred a batch since it was asked last.
    SetAndDue,
}

impl Reclaiming {
    /// Returns `None` if the calling thread already has the mark.
    pub(crate) fn mark() -> Option<Self> {
        // Created only if this call has set the mark, because dropping it removes the mark.
        MARK.with(|mark| {
            (mark.get() == Mark::None).then(|| {
                mark.set(Mark::Set);
                Self
            })
        })
    }

    /// Called when the calling thread, which has the mark, has deferred a batch in the domain of
    /// the process outside of sections.
    fn set_due() {
        MARK.with(|mark| mark.set(Mark::SetAndDue));
    }

    /// Returns whether the functions that this thread runs have deferred a batch in the domain of
    /// the process, since `clear_due`.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        MARK.with(Cell::get) == Mark::SetAndDue
    }

    fn clear_due(&self) {
        MARK.with(|mark| mark.set(Mark::Set));
    }
}

impl Drop for Reclaiming {
    fn drop(&mut self) {
        MARK.with(|mark| mark.set(Mark::None));
    }
}
