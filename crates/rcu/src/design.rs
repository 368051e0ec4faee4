//! The design: why the algorithm implements grace periods, and the guarantees. (Documentation
//! only.)
//!
//! # The algorithm
//!
//! There is one counter, of 64 bits, which only grows. Each thread has a slot.
//!
//! * **Enter:** load the counter, store it into the slot, *light* barrier. **Leave:** store 0 into
//!   the slot.
//! * **Grace period** *n*: (1) increment the counter to *n*; (2) *heavy* barrier; (3) wait until
//!   each slot has been seen to hold 0, or a number of at least *n*.
//!
//! One pass over the slots is enough. (`liburcu` needs two, because its counter is a single phase
//! bit: a reader that loaded the phase long ago may store it after two flips, and then seems to
//! have begun recently. Here such a reader seems to have begun long ago, and the grace period waits
//! for it needlessly.)
//!
//! # Correctness
//!
//! A writer unlinks an object X and then draws a ticket, which is a read-modify-write of the
//! counter: the grace period that answers the ticket increments the counter later. Consider a read
//! section that could have found X, at the instant when the driver of the grace period loads its
//! slot.
//!
//! 1. *It holds a number less than n.* Then the grace period waits for it. Leaving is a Release
//!    store and the driver's load is an Acquire load, so all that the section did happened before
//!    the end of the grace period.
//! 2. *It holds 0, or the number of another section, because the section has left.* The driver has
//!    loaded the section's Release store, or a later one. (The stores on entry are Release, too, so
//!    a later section's number also shows the end of the earlier one.)
//! 3. *It holds a number of at least n.* The section loaded that number with Acquire from an
//!    increment that comes after the writer's ticket in the counter's modification order, all of
//!    them read-modify-writes, so it has acquired the ticket's Release. So the section sees X
//!    unlinked, and cannot find it.
//! 4. *It holds an old value, because the section's store was not visible yet.* Then the driver's
//!    load came before the store, in the order that *heavy* and *light* establish between the
//!    increment and the section's own reads: the section sees all that the driver of the grace
//!    period saw at its increment, which includes that X was unlinked. A slot that is not in the
//!    list yet is the same case.
//!
//! The number may be stale when it is stored, if the reader was delayed between load and store.
//! That is harmless: a number that is too small only makes grace periods wait longer (case 1).
//!
//! *Heavy* and *light* are `membarrier` and a compiler fence, or two fences: see `barrier.rs`.
//!
//! # Progress
//!
//! There is no dedicated thread. A thread that waits for a grace period polls: it takes the
//! driver's flag if that is free, begins a grace period if none is in progress, loads all slots
//! once, and releases the flag. Waiters poll in a loop with growing pauses, so a stalled reader
//! does not keep any waiter from noticing that *its* grace period is over.
//!
//! # Private domains
//!
//! A [`Domain`](crate::Domain) has a counter, a driver and readers of its own, and the same
//! algorithm. What differs is what has a slot: here, each *guard*. So a guard may go to another
//! thread, and a thread that has two guards is in two sections.
//!
//! **Slots without a read-modify-write.** The slots are in *stripes* (`stripes.rs`). A stripe
//! belongs to the thread with its index, and only that thread takes free slots of it. Only the
//! holder of a guard frees its slot. So each change of a slot has one thread that may make it: from
//! 0 to a number the owner of the stripe, from a number to 0 the holder. The owner loads 0 with
//! Acquire before it takes a slot, and so sees the end of the section before (case 2 above), even
//! if another thread has ended that. The owner of an index changes when threads exit; the registry
//! orders that (R7). A thread remembers the slot that it took last. It forgets it when it gives its
//! index back.
//!
//! **What a guard protects borrows the guard, and the guard borrows the domain.** So the drop of a
//! domain, which needs it exclusively, comes after the last use of everything that its sections
//! protected, and may run all deferred functions at once. This holds for leaked guards as well. A
//! leaked guard's section never ends, but its lifetime does, and with it those of all references
//! that it protects. As long as the domain lives, the open section keeps deferred functions from
//! running; when it is dropped, no reference is left.
//!
//! **No background thread.** A background thread would have to be stopped before what it may drop
//! is gone, and a leaked domain could not stop it. So deferred functions run on threads that have a
//! reference to the domain, or own it. Therefore a data structure that owns a domain can have
//! values with borrows: the values live at least as long as the structure, and all destructors run
//! while a thread uses or drops the structure. If the structure is leaked, they never run.
//!
//! **No wait that was not asked for.** In the domain of the process, a thread that defers too much
//! waits until it is outside of sections, and then waits for readers (R5). Here a guard that the
//! thread itself has, or that a task has that the same executor would have to continue, may keep
//! the section open, and the domain cannot know. So deferring never waits, and the backlog is
//! bounded only by what was deferred since the oldest open section began (D4). The caller decides
//! what to do then.
//!
//! A thread that runs functions of a private domain must not wait for readers of the process
//! either, although these functions may defer others there, without end: it may be the thread, or
//! hold a section of the private domain, for which such a reader waits. But its backlog in the
//! domain of the process must stay within the bound. So it stops running functions when that
//! backlog is full (R5). Thus a backlog behind a reader of the process grows where its owner can
//! see it, in the private domain.
//!
//! # Types
//!
//! The table lists which types can be sent to other threads or shared with them, and their variance
//! in the type of the value. `tests/auto_traits.rs` and doctests that must not compile check this.
//!
//! | type | `Send` if | `Sync` if | variance | `RefUnwindSafe` if |
//! |---|---|---|---|---|
//! | [`Guard`](crate::Guard) | never: the section is its thread's | never | | always (R9) |
//! | [`DomainGuard`](crate::DomainGuard) | always: the section is the guard's | always | covariant in its lifetime | always |
//! | [`Published<T>`](crate::Published) | `T: Send` | `T: Sync`; publishing also needs `T: Send + 'static` | invariant: `publish` takes `&self` | `T: RefUnwindSafe` |
//! | all others | always | always | | always |
//!
//! A reference from [`Published::read`](crate::Published::read) lives no longer than the guard and
//! the pointer. [`Guard::renew`](crate::Guard::renew) borrows the guard mutably, so it ends all
//! such references.
//!
//! # Guarantees
//!
//! * **R1 Reclamation.** No reader uses an object after a grace period that began after the object
//!   was unlinked. A deferred function runs after such a grace period.
//! * **R2 Readers are wait-free.** After a thread's first use, entering and leaving take a bounded
//!   number of steps, whatever other threads do. The one exception is a thread that defers: leaving
//!   an outermost section may run functions that it has deferred (or that the previous owner of its
//!   slot has deferred), and wait if the backlog is full (R5).
//! * **R3 Grace periods wait only for old readers.** Sections that begin after a grace period has
//!   begun do not delay it, except for one that was delayed between loading the counter and storing
//!   it (see above).
//! * **R4 Waiters share.** All threads that begin to wait while a grace period runs share the next
//!   one.
//! * **R5 The backlog is bounded.** Outside of read sections no thread has more than
//!   [`MAX_DEFERRED`](crate::MAX_DEFERRED) functions or
//!   [`MAX_DEFERRED_BYTES`](crate::MAX_DEFERRED_BYTES) pending: it waits instead. It also runs no
//!   functions of private domains then, which may defer more here: they stay pending in their
//!   domain (D4). Functions that are deferred here and themselves defer are exempt, because they
//!   cannot wait for their own end; none of them runs while a reader stays. What the drop of a
//!   private domain defers is exempt, too. When a reader has left, no operation runs the whole
//!   backlog of its thread: a thread runs at most 4096 functions at a time unless it is over its
//!   bound, and the background thread runs the others.
//! * **R6 No silent self-deadlock.** Waiting inside a read section panics. (If a deferred function
//!   has left a section open on the thread, the thread does not wait for R5's bound.)
//! * **R7 Threads come and go.** A thread registers at first use and leaves at exit; slots are
//!   reused; sections entered in thread-local destructors work; a leaked guard keeps its section
//!   open for ever, as the references it protects may live.
//! * **R8 Fork.** The child can continue to use RCU: sections, grace periods and deferred functions
//!   work there. It has one thread: the sections of all others are over, and references that they
//!   protected dangle. A deferred function that another thread was running is lost. The others run
//!   when the child defers something itself or calls [`barrier`](crate::barrier()). This holds for
//!   RCU only: other locks that another thread held, such as those of the maps of the `relativist`
//!   crate, stay locked in the child.
//! * **R9 Panics.** A panic inside a read section or a deferred function leaves nothing locked, and
//!   no thread waits for ever. If a sandbox makes the kernel refuse `membarrier` later, that is not
//!   a panic: it aborts the process with a message, because neither the waiter nor its caller could
//!   continue.
//! * **R10 Deferred functions run.** A deferred function runs even if its thread exits or never
//!   calls RCU again, as soon as readers permit. A background thread ensures this. If the system
//!   refuses to start it, deferred functions wait until some thread calls
//!   [`barrier`](crate::barrier()) or defers something, which also tries again to start the
//!   background thread. A barrier returns when all functions have returned that were deferred
//!   before it, however many are deferred and run meanwhile.
//! * **R11 Allocators.** A global allocator may use all of RCU that does not wait. It may also
//!   defer: RCU's own allocations for a thread and for its queue may call RCU again, without
//!   endless recursion. (A global allocator must not update maps: they allocate under locks.)
//!
//! Private domains:
//!
//! * **D1 Sections belong to guards.** R1 and R3 hold for the sections of a domain, on whatever
//!   threads their guards begin, are, and end. Ending one is wait-free. So is beginning one, except
//!   that it may allocate.
//! * **D2 Domains are independent.** A section, a wait or a backlog of one domain delays nothing in
//!   another one, nor in the domain of the process. A reader of the process delays a function of a
//!   private domain only on threads whose backlog in the domain of the process is full (R5).
//! * **D3 Deferred functions run on the threads that use the domain.** They run after a grace
//!   period, when a thread has deferred a batch (1024 functions or 1 MiB), reclaims, calls
//!   [`barrier`](crate::Domain::barrier), or drops the domain. A batch runs at most 4096 functions,
//!   among them those that other threads have left. No thread outside of the domain ever runs one.
//!   A barrier returns when all functions have returned that were deferred before it, as in R10.
//! * **D4 Nothing waits without being asked.** Entering, leaving, deferring, reclaiming and
//!   dropping wait for no reader. Each thread has at most a few batches pending, plus what was
//!   deferred since the oldest open section began, and what is left of that later: each further
//!   batch makes it smaller. [`pending`](crate::Domain::pending) counts all of it.
//! * **D5 Dropping a domain runs all its functions,** on the thread that drops it.
//! * **D6 Leaks are sound.** A leaked guard keeps its section open until the domain is dropped. A
//!   leaked domain runs no more functions.
//! * **D7 Panics and allocators.** R9 and R11 hold.
