//! The numbers of grace periods, for memory that is reused in place and not through a queue.
//!
//! A thread that unlinks an object inside of a read section stamps it with the number that
//! [`begun`] returns. The memory may be reused when [`ended`] has passed that number by
//! [`GRACE_PERIODS`]: the first of these grace periods waits for the section of the thread that
//! unlinked the object, the second for all readers that entered before.

use crate::domain::{Domain, domain};
use crate::guard::Guard;

/// The number of grace periods that end after an object was stamped and before it is reused.
pub const GRACE_PERIODS: u64 = 2;

/// Returns the number of the latest grace period that has begun.
#[inline]
pub fn begun(_: &Guard) -> u64 {
    domain().now() / Domain::STEP
}

/// Returns the number of the latest grace period that has ended. All that readers did in sections
/// that it waited for happens before what the caller does next.
#[inline]
pub fn ended() -> u64 {
    domain().ended() / Domain::STEP
}

/// Begins or ends grace periods as far as that is possible without waiting. Call it now and then
/// where objects are stamped, because stamps alone drive no grace period.
#[cold]
pub fn drive() {
    domain().poll(domain().now() + Domain::STEP);
}
