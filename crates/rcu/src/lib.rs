//! Userspace read-copy update (RCU).
//!
//! Readers enter a *read-side critical section* with [`read`] and leave it by dropping the
//! [`Guard`]. Inside, they follow pointers that writers may replace at the same time. A writer
//! unlinks an object so that no new reader can find it, waits until every reader that might still
//! hold it has left ([`wait_for_readers`], a *grace period*), and frees it. Or it passes the object
//! to [`defer_drop`] and continues. Waiting is useful not only for reclamation: a writer may wait
//! for readers between the steps of a larger change. This is how the hash table of the `relativist`
//! crate resizes itself (Triplett, McKenney and Walpole, "Resizable, Scalable, Concurrent Hash
//! Tables via Relativistic Programming", USENIX ATC 2011, section 3).
//!
//! # Usage
//!
//! ```
//! use relativist_rcu::{Published, read};
//!
//! struct Config {
//!     limit: u32,
//! }
//!
//! let config = Published::new(Config { limit: 10 });
//!
//! let guard = read();
//! let before = config.read(&guard);
//! config.publish(Config { limit: 20 }); // the old value is dropped after a grace period
//! assert_eq!(before.limit, 10);
//! assert_eq!(config.read(&guard).limit, 20);
//! ```
//!
//! A reference cannot outlive its guard:
//!
//! ```compile_fail,E0505
//! use relativist_rcu::{Published, read};
//! let value = Published::new(1);
//! let guard = read();
//! let one = value.read(&guard);
//! drop(guard); // error: `guard` is borrowed
//! assert_eq!(*one, 1);
//! ```
//!
//! ```
//! # use relativist_rcu::{Published, read};
//! let value = Published::new(1);
//! let guard = read();
//! let one = value.read(&guard);
//! assert_eq!(*one, 1);
//! drop(guard); // fine: `one` is not used after it
//! ```
//!
//! A guard stays on its thread:
//!
//! ```compile_fail,E0277
//! let guard = relativist_rcu::read();
//! std::thread::spawn(move || drop(guard)); // error: `Guard` is not `Send`
//! ```
//!
//! ```
//! std::thread::spawn(|| drop(relativist_rcu::read())).join().unwrap();
//! ```
//!
//! [`Published`] is the safe interface for a single pointer. Data structures of your own use
//! [`read`], [`defer_drop`], [`defer_raw`], [`wait_for_readers`] and [`GracePeriod`] with atomic
//! pointers; the example `ordered_list` is a linked list.
//!
//! # Consistency
//!
//! * An object that a reader finds stays allocated until the reader drops its guard.
//! * A grace period ends after all read sections that were running when it began. What readers did
//!   in these happens before the code that runs after the wait, and before deferred functions.
//! * Readers in the same section may see different versions of a pointer, in the order in which
//!   they were published.
//!
//! [`design`] explains why this holds, and lists the guarantees that the tests cite.
//!
//! # Progress
//!
//! * After a thread's first section, entering and leaving are wait-free.
//! * [`wait_for_readers`] blocks as long as the longest read section that was running when it was
//!   called. Waiters share grace periods.
//! * [`defer()`] and [`defer_drop`] do not block, unless the thread has deferred more than
//!   [`MAX_DEFERRED`] functions or [`MAX_DEFERRED_BYTES`]: then it waits for readers, when it
//!   leaves its outermost read section.
//! * Waiting inside a read section panics.
//!
//! # Performance
//!
//! * Entering and leaving take a few ordinary loads and stores to a cache line that only this
//!   thread writes: no lock, no atomic read-modify-write, no fence.
//! * The writer pays for this: for each grace period the kernel runs a barrier on every processor
//!   that runs a thread of this process (`membarrier`).
//! * Where the kernel refuses `membarrier`, readers execute one fence. The choice is made once, at
//!   first use (see [`Barrier`]).
//!
//! # When not to use
//!
//! * Read sections span blocking calls. A grace period lasts as long as the longest section that
//!   was running when it began, so such a section stalls reclamation in the whole process. Use
//!   `Arc` for long-lived references, or a private domain.
//! * A library must not delay the reclamation of others, or a section spans an `.await`. Use a
//!   private [`Domain`], whose readers delay no other domain, and whose guards are `Send`.
//! * The program is written in C: `liburcu` has more flavours (signals, quiescent states).

#[cfg(test)]
use relativist_testing as _;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod barrier;
pub mod clock;
pub mod contention;
mod current;
mod defer;
pub mod design;
mod domain;
mod fork;
mod grace;
mod guard;
mod private;
mod published;
mod queue;
mod registry;
mod stripes;
mod worker;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("relativist-rcu counts grace periods in 64 bits, which readers load at once: it needs a 64-bit target");

pub use barrier::{Barrier, BarrierError, active_barrier, heavy_barrier, light_barrier, set_barrier};
pub use defer::{
    MAX_DEFERRED, MAX_DEFERRED_BYTES, barrier, defer, defer_drop, defer_raw, is_reclaiming, reclaim_soon,
    without_reclaiming, without_waiting,
};
pub use grace::{GracePeriod, grace_periods, wait_for_readers};
pub use guard::{Guard, is_reading, read};
pub use private::{Domain, DomainGracePeriod, DomainGuard};
pub use published::Published;
