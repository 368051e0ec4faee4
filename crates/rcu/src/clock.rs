//! The numbers of grace periods, for memory that is reused in place and not through a queue.
//!
//! A thread that unlinks an object stamps it with the number that [`begun`] returns in the read
//! section in which it unlinks. The memory may be reused when [`ended`] has passed that number by
//! [`GRACE_PERIODS`]. The first of these grace periods waits for the section of the thread that
//! unlinked the object. So the second one begins after the object was unlinked, and waits for all
//! readers that may have found it.

use crate::domain::{STEP, domain};
use crate::guard::Guard;

/// The number of grace periods that have to begin and end between the stamp and the reuse of an
/// object.
pub const GRACE_PERIODS: u64 = 2;

/// Returns the number of the latest grace period that has begun. Takes a guard, because a stamp is
/// valid only if the object is unlinked in the same section.
#[inline]
pub fn begun(_: &Guard) -> u64 {
    domain().now() / STEP
}

/// Returns the number of the latest grace period that has ended. What readers did in the sections
/// for which it waited happens before what the caller does next.
#[inline]
pub fn ended() -> u64 {
    domain().ended() / STEP
}

/// Begins or ends grace periods, as far as that is possible without waiting. Threads that stamp
/// objects have to call it now and then, because stamps alone drive no grace period.
#[cold]
pub fn drive() {
    domain().poll(domain().now() + STEP);
}
