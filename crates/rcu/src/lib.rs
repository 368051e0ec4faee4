//! Userspace read-copy update (RCU).
//!
//! Readers enter a *read-side critical section* with [`read`] and leave it by dropping the
//! [`Guard`]. Inside, they follow pointers that writers replace meanwhile. A writer unlinks an
//! object so that no new reader can find it, waits until every reader that might still hold it has
//! left ([`wait_for_readers`], a *grace period*), and frees it. Or it passes the object to
//! [`defer_drop`] and goes on. Waiting is useful not only for reclamation: a writer may wait for
//! readers between the steps of a larger change. This is how the hash table of the `relativist`
//! crate resizes itself (Triplett, McKenney and Walpole, "Resizable, Scalable, Concurrent Hash
//! Tables via Relativistic Programming", USENIX ATC 2011, section 3).
//!
//! # What it costs
//!
//! Entering and leaving are a handful of ordinary loads and stores to a line that only this thread
//! writes: no lock, no atomic read-modify-write, no fence. The price is paid by the writer, who has
//! the kernel run a barrier on every processor that runs a thread of this process (`membarrier`).
//! Where the kernel refuses that, readers execute one fence; the choice is made once, at first use
//! (see [`Barrier`]).
//!
//! # When to use something else
//!
//! * Grace periods last as long as the longest read section that was running when they began. A
//!   section held across blocking calls stalls reclamation in the whole process: for long-lived
//!   references use `Arc`.
//! * There is one domain per process. Libraries that must not delay each other's reclamation want
//!   `seize` or `crossbeam-epoch` collectors of their own.
//! * `liburcu` is the choice in C, and has more flavours (signals, quiescent-state based).
//!
//! # Example
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
//! config.publish(Config { limit: 20 }); // readers go on undisturbed; the old value is dropped after a grace period
//! assert_eq!(before.limit, 10);
//! assert_eq!(config.read(&guard).limit, 20);
//! ```
//!
//! A reference can't outlive its guard:
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
//! and a guard stays on its thread:
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
//! The argument why a grace period is one, and the numbered guarantees that the tests cite, are in
//! [`design`].

#[cfg(test)]
use relativist_testing as _;

mod barrier;
pub mod contention;
mod defer;
pub mod design;
mod domain;
mod fork;
mod grace;
mod guard;
/// Not part of the interface: shared with the other crates.
#[doc(hidden)]
/// Likewise.
#[doc(hidden)]
pub mod prefetch;
mod published;
mod queue;
mod registry;
mod sync;
/// Likewise.
#[doc(hidden)]
pub mod unwind;
mod worker;

pub use barrier::{Barrier, BarrierError, active_barrier, set_barrier};
pub use defer::{
    MAX_DEFERRED, MAX_DEFERRED_BYTES, barrier, defer, defer_drop, defer_raw, without_reclaiming, without_waiting,
};
pub use grace::{GracePeriod, grace_periods, wait_for_readers};
pub use guard::{Guard, is_reading, read};
pub use published::Published;
