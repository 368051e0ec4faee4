//! Private domains.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;

use crate::barrier::light;
use crate::defer::{Reclaiming, make_room, raw_call, raw_free, without_waiting};
use crate::domain::{GracePeriods, domain};
use crate::guard::read;
use crate::queue::{Deferred, Queue, SLICE};
use crate::stripes::{self, GuardSlot, Quota, Recent, Stripe, Stripes};
use relativist_core::hint::cold_path;
use relativist_core::sync::Backoff;
use relativist_core::sync::atomic::Ordering::Relaxed;

/// A private domain: an RCU of its own, with its own readers, grace periods and deferred functions.
///
/// The functions of this crate use one domain per process. A reader that stays in its section there
/// delays all writers of the process. A reader of a private domain delays only the writers of
/// that domain. The kernel has such domains, too (`srcu_struct`).
///
/// A [`DomainGuard`] is not bound to a thread: it can be sent to another one, and held across an
/// `.await` in a task that moves between threads:
///
/// ```
/// use relativist_rcu::Domain;
///
/// let domain = Domain::new();
/// let guard = domain.read();
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(guard)); // leaves the section
/// });
/// domain.wait_for_readers();
/// ```
///
/// A guard borrows its domain, so a domain has no readers when it is dropped:
///
/// ```compile_fail,E0505
/// use relativist_rcu::Domain;
/// let domain = Domain::new();
/// let guard = domain.read();
/// drop(domain); // error: borrowed
/// drop(guard);
/// ```
///
/// ```
/// use relativist_rcu::Domain;
/// let domain = Domain::new();
/// let guard = domain.read();
/// drop(guard);
/// drop(domain);
/// ```
///
/// # Differences from the domain of the process
///
/// * **The caller must not wait for itself.** A guard may be on its way to another thread, so the
///   domain does not know which thread is in a section. [`Domain::wait_for_readers`] and
///   [`Domain::barrier`] do not panic inside a section, but wait for ever. A task that waits for
///   another one polls ([`Domain::reclaim`], [`DomainGracePeriod::has_passed`]).
/// * **No background thread.** Deferred functions run when a thread defers more of them, in
///   [`Domain::reclaim`] and [`Domain::barrier`], and when the domain is dropped. Leaving a section
///   runs none, so it is wait-free.
/// * **Nothing waits unless it is asked to,** so the backlog is not bounded by
///   [`MAX_DEFERRED`](crate::MAX_DEFERRED). If no section stays open, each thread has at most a few
///   batches pending. (A batch is 1024 functions or 1 MiB.) A section that stays open adds all that
///   is deferred meanwhile. [`Domain::pending`] counts it: a caller that wants a bound slows down
///   when the number is too large. When the section has ended, the backlog is run in slices, at
///   most 4096 functions for each batch that is deferred; [`Domain::reclaim`] runs all at once.
/// * **Functions that defer in the domain of the process** ([`defer()`](crate::defer()) and others)
///   are bounded there: what they defer counts towards [`MAX_DEFERRED`](crate::MAX_DEFERRED) of the
///   thread that runs them. A thread that has reached this bound, because a reader of the process
///   stays, runs no functions of private domains. It does not wait: they stay pending in their
///   domain, and [`Domain::pending`] counts them. Only [`Domain::barrier`] waits. A thread that is
///   itself in a section of the process, or in [`without_waiting`](crate::without_waiting), runs
///   them nevertheless, and so does the drop of the domain.
/// * **Fork.** The child of a `fork` must not use a private domain that another thread of the
///   parent may have been using: sections of other threads stay open there, and so may locks.
///
/// # Leaks
///
/// A guard that is leaked (`std::mem::forget`) leaves its section open as long as the domain lives,
/// as the references that it protects may live. Then no function runs that was deferred since,
/// until the domain is dropped. References that a guard protects borrow the guard, and so the
/// domain. When the domain is dropped, there are none, not even of leaked guards, so dropping it
/// waits for no reader, and runs all functions. If the domain itself is leaked, they never run.
///
/// # Costs
///
/// Entering and leaving take 0.99 to 1.13 times the time of the domain of the process, depending on
/// the machine (`relativist-bench rcu`): a few loads and stores, to cache
/// lines that no other thread writes, except one that drops a guard of this thread. A guard that
/// another thread drops costs some 40 nanoseconds, because its lines move between the caches of two
/// processors. A thread that uses two domains in turn looks its slot up each time, which takes some
/// nanoseconds more.
///
/// A domain takes 384 bytes, and 256 for each thread that may use it: for as many threads as have
/// used RCU at the same time, up to the next power of two. A thread's slots take 128 bytes for up
/// to 8 guards at a time, and then up to 32 bytes per guard. This memory is freed with the domain.
pub struct Domain {
    pub(crate) state: GracePeriods<Stripes>,
}

/// Proof of being inside a read section of a [`Domain`]; dropping it leaves the section.
///
/// Unlike a [`Guard`](crate::Guard), it is `Send` and `Sync`. A section lasts as long as its guard,
/// whichever threads have it. Each call of [`Domain::read`] begins a section of its own.
#[must_use = "the read section ends when the guard is dropped"]
pub struct DomainGuard<'d> {
    slot: &'d GuardSlot,
}

impl Domain {
    /// Whether the fast path of entering is for readers that have to fence. It is not, except under
    /// loom, which has only such readers.
    const FAST_IS_FENCED: bool = cfg!(relativist_loom);

    /// Creates a domain. Allocates nothing. Chooses the barrier, if this is the first use of RCU
    /// (see [`set_barrier`](crate::set_barrier)).
    pub fn new() -> Self {
        Self { state: domain().private(Stripes::new()) }
    }

    /// Enters a read section.
    ///
    /// Objects that are reachable now, or become reachable while the guard lives, stay allocated
    /// until the guard is dropped.
    ///
    /// Wait-free: takes a few loads and stores, no lock and no atomic read-modify-write, and with
    /// [`Barrier::Membarrier`](crate::Barrier::Membarrier) no fence. If the thread's last guard is
    /// still alive, it looks for a free slot, in at most as many steps as the thread has ever had
    /// guards at the same time. A thread's first call may allocate, and so may one with more guards
    /// than ever before. (It aborts if there is no memory.)
    #[inline]
    pub fn read(&self) -> DomainGuard<'_> {
        match Recent::slot_in(&self.state.registry) {
            Some(slot) if slot.is_free() => self.enter(slot, Self::FAST_IS_FENCED),
            _ => {
                cold_path();
                self.read_slowly()
            }
        }
    }

    /// Enters a section if the slot that the thread took last is not free, or in another domain, or
    /// if readers have to fence.
    #[cold]
    fn read_slowly(&self) -> DomainGuard<'_> {
        // The thread owns its index, and so the stripe, at least as long as it is in a section of
        // the process. (It may be exiting.)
        let registered = read();
        let slot = self.state.registry.get_or_add(registered.thread_index()).free_slot();
        let fenced = self.state.fenced(Relaxed);
        if fenced == Self::FAST_IS_FENCED {
            Recent::set(&self.state.registry, slot);
        }
        self.enter(slot, fenced)
    }

    /// Enters a section with a free slot of a stripe that the caller owns.
    #[inline(always)]
    fn enter<'d>(&'d self, slot: &'d GuardSlot, fenced: bool) -> DomainGuard<'d> {
        slot.enter(self.state.now());
        light(fenced);
        DomainGuard { slot }
    }

    /// Waits until every section of this domain that was open when the call was made has ended.
    ///
    /// If there is no reader, it returns after one barrier. Concurrent callers share grace periods.
    /// Blocks: spins briefly, then sleeps up to a millisecond at a time.
    ///
    /// **Waits for ever if the caller itself has a guard of this domain,** or if one was leaked. In
    /// async tasks, poll a [`DomainGracePeriod`] instead.
    pub fn wait_for_readers(&self) {
        let grace = self.start_grace_period();
        let mut backoff = Backoff::new();
        while !grace.has_passed() {
            backoff.wait();
        }
    }

    /// Starts a grace period, which can be polled. Wait-free.
    ///
    /// ```
    /// let domain = relativist_rcu::Domain::new();
    /// let guard = domain.read();
    /// let grace = domain.start_grace_period();
    /// assert!(!grace.has_passed());
    /// drop(guard);
    /// assert!(grace.has_passed());
    /// ```
    pub fn start_grace_period(&self) -> DomainGracePeriod<'_> {
        DomainGracePeriod { domain: self, ticket: self.state.ticket() }
    }

    /// Returns the number of grace periods that have begun in this domain, as a statistic.
    pub fn grace_periods(&self) -> u64 {
        self.state.begun()
    }

    /// Calls `function` after a grace period of this domain, on a thread that defers functions,
    /// reclaims them, or drops the domain.
    ///
    /// Never waits for readers. Each time a thread has deferred 1024 functions or 1 MiB, it runs up
    /// to 4096 of the functions of this domain that are due, unless it is inside a deferred
    /// function or [`without_reclaiming`](crate::without_reclaiming). So a deferred function must
    /// not take a lock that a thread holds while it defers. It must not block for long. The panic
    /// hook reports a panic in it; the panic does not reach the caller of this function.
    ///
    /// ```
    /// use std::sync::Arc;
    /// let shared = Arc::new(1);
    /// let held = Arc::clone(&shared);
    /// let domain = relativist_rcu::Domain::new();
    /// domain.defer(move || drop(held));
    /// drop(domain);
    /// assert_eq!(Arc::strong_count(&shared), 1);
    /// ```
    ///
    /// The function must not borrow anything that may be gone before the domain:
    ///
    /// ```compile_fail,E0597
    /// let domain = relativist_rcu::Domain::new();
    /// let number = 1;
    /// domain.defer(|| println!("{number}")); // error: borrowed value does not live long enough
    /// ```
    ///
    /// ```
    /// let domain = relativist_rcu::Domain::new();
    /// let number = 1;
    /// domain.defer(move || println!("{number}"));
    /// ```
    pub fn defer<F: FnOnce() + Send + 'static>(&self, function: F) {
        let (data, call) = raw_call(function);
        // SAFETY: `F: Send + 'static` may be called on any thread at any time, and `call` calls it
        // once.
        unsafe { self.defer_raw(data, size_of::<F>(), call) };
    }

    /// Drops the box after a grace period of this domain. See [`defer_drop`](crate::defer_drop) for
    /// what may be in the box, and [`Domain::defer`] for when it is dropped.
    pub fn defer_drop<T: Send + 'static>(&self, object: Box<T>) {
        let (data, free) = raw_free(NonNull::from(Box::leak(object)));
        // SAFETY: it was a box until now, and `T: Send + 'static` may be dropped on any thread at
        // any time.
        unsafe { self.defer_raw(data, size_of::<T>(), free) };
    }

    /// Calls `reclaim(data)` after a grace period of this domain. See [`Domain::defer`]. Allocates
    /// a chunk of the queue, 6 KiB, for every 255 functions, and aborts if there is no memory for
    /// it.
    ///
    /// `bytes` is the memory that `data` occupies until it is reclaimed.
    ///
    /// # Safety
    ///
    /// `reclaim(data)` must be sound to call once, at any time until the domain has been dropped,
    /// on any thread that has a reference to the domain or owns it, when no reader of this domain
    /// that could have found `data` before this call is left.
    pub unsafe fn defer_raw(&self, data: NonNull<()>, bytes: usize, reclaim: unsafe fn(NonNull<()>)) {
        // As in `read_slowly`.
        let registered = read();
        let stripe = self.state.registry.get_or_add(registered.thread_index());
        let is_due = stripes::push(stripe, Deferred { data, bytes, reclaim });
        drop(registered);
        if is_due {
            self.reclaim_due(Some(stripe), SLICE);
        }
    }

    /// Runs the deferred functions that are due, without waiting for readers, and returns the
    /// number of those that are left. Returns at once inside a deferred function and in
    /// [`without_reclaiming`](crate::without_reclaiming), and when the thread has reached its bound
    /// in the domain of the process (see
    /// [above](Domain#differences-from-the-domain-of-the-process)).
    ///
    /// Functions that were deferred since the last call become due in the next one, even if there
    /// is no reader. To run them all, call this repeatedly, and let other tasks or threads run in
    /// between.
    ///
    /// ```
    /// let domain = relativist_rcu::Domain::new();
    /// domain.defer_drop(Box::new(1));
    /// while domain.reclaim() > 0 {}
    /// ```
    pub fn reclaim(&self) -> u64 {
        // Not more, so that a function that defers another one does not make this endless.
        self.reclaim_due(None, self.pending());
        self.pending()
    }

    /// Runs up to this number of functions.
    #[cold]
    fn reclaim_due(&self, own: Option<&Stripe>, functions: u64) {
        let Some(marked) = Reclaiming::mark() else { return };
        let mut quota = Quota::new(functions, &marked);
        let mut goes_on = true;
        // The functions may defer others in the domain of the process. Those do not run as long as
        // the thread is marked, except in `make_room`.
        while make_room(&marked) && goes_on {
            stripes::reclaim(&self.state, own, &mut quota);
            goes_on = quota.is_suspended();
        }
    }

    /// Returns the number of functions that are deferred and have not run yet. An estimate, while
    /// other threads defer or reclaim.
    pub fn pending(&self) -> u64 {
        self.state.registry.iter().map(|stripe| stripe.queue.pending().0).sum()
    }

    /// Waits until everything that any thread has deferred in this domain before this call has run.
    /// Does not wait for what is deferred later. Runs deferred functions on this thread as well.
    ///
    /// Blocks. **Waits for ever if the caller itself has a guard of this domain,** or if one was
    /// leaked. If the functions defer others in the domain of the process, and a reader stays
    /// there, waits for that reader when the thread has reached its bound.
    ///
    /// # Panics
    ///
    /// Panics inside a deferred function and in
    /// [`without_reclaiming`](crate::without_reclaiming).
    pub fn barrier(&self) {
        let Some(marked) = Reclaiming::mark() else {
            panic!("Domain::barrier inside a deferred function or without_reclaiming would wait for itself");
        };
        let ends: Vec<(&Queue, u64)> =
            self.state.registry.iter().map(|stripe| (&stripe.queue, stripe.queue.end())).collect();
        for (queue, end) in ends {
            let mut backoff = Backoff::new();
            while !queue.is_drained_to(end) {
                let may_run = make_room(&marked);
                if !(may_run && queue.drain(&self.state, &marked, || !marked.is_due())) {
                    backoff.wait();
                }
            }
        }
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Domain {
    /// Runs all deferred functions, without waiting: there is no reader, because guards, and what
    /// they protect, borrow the domain.
    fn drop(&mut self) {
        // They may defer others in the process's domain, behind a reader that stays.
        without_waiting(|| self.state.registry.run_all());
    }
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Domain")
            .field("grace_periods", &self.grace_periods())
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}

impl Drop for DomainGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.leave();
    }
}

impl std::fmt::Debug for DomainGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DomainGuard")
    }
}

// A panic leaves no inconsistent state that these give access to (R9).
impl UnwindSafe for Domain {}
impl RefUnwindSafe for Domain {}
impl UnwindSafe for DomainGuard<'_> {}
impl RefUnwindSafe for DomainGuard<'_> {}

/// A grace period of a [`Domain`] that can be polled.
#[derive(Debug, Clone, Copy)]
pub struct DomainGracePeriod<'d> {
    domain: &'d Domain,
    ticket: u64,
}

impl DomainGracePeriod<'_> {
    /// Returns whether the grace period has passed: whether all sections have ended that were open
    /// when it was started. Once true, this stays true. Never blocks, but drives grace periods:
    /// this sometimes takes a barrier and a pass over all slots of the domain. A caller that polls
    /// should pause in between, because no other thread can drive grace periods during a call.
    pub fn has_passed(&self) -> bool {
        self.domain.state.poll(self.ticket)
    }
}

impl UnwindSafe for DomainGracePeriod<'_> {}
impl RefUnwindSafe for DomainGracePeriod<'_> {}
