//! Waiting for readers.

use crate::domain::domain;
use crate::guard::is_reading;
use relativist_core::sync::Backoff;

/// Waits until every read section that was running when the call was made has ended: one grace
/// period.
///
/// If there is no reader, it returns after one barrier. Concurrent callers share grace periods: a
/// caller that calls this during a grace period waits for the next one, and so at most for sections
/// that begin before that one. Later sections do not delay it. Blocks: spins briefly, then sleeps
/// up to a millisecond at a time.
///
/// # Panics
///
/// Panics inside a read section, because it would wait for itself.
///
/// ```
/// relativist_rcu::wait_for_readers();
/// ```
///
/// ```should_panic
/// let _guard = relativist_rcu::read();
/// relativist_rcu::wait_for_readers();
/// ```
pub fn wait_for_readers() {
    GracePeriod::start().wait();
}

/// Returns the number of grace periods that have begun in this process, as a statistic.
pub fn grace_periods() -> u64 {
    domain().begun()
}

/// A grace period that can be polled: it splits "wait for readers" into a start and an end.
///
/// ```
/// use relativist_rcu::{GracePeriod, read};
///
/// let guard = read();
/// let grace = GracePeriod::start();
/// assert!(!grace.has_passed()); // our own section began before it
/// drop(guard);
/// grace.wait();
/// assert!(grace.has_passed());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GracePeriod {
    ticket: u64,
}

impl GracePeriod {
    /// Starts a grace period. When it has passed, all sections that are running now have ended.
    /// Wait-free.
    pub fn start() -> Self {
        domain().initialize_by_default();
        Self { ticket: domain().ticket() }
    }

    /// Returns whether the grace period has passed. Once true, this stays true. Never blocks, but
    /// drives grace periods: this sometimes takes a barrier and a pass over all registered threads.
    /// May be called inside a read section. A caller that polls should pause in between, because no
    /// other thread can drive grace periods during a call.
    pub fn has_passed(&self) -> bool {
        domain().poll(self.ticket)
    }

    /// Blocks until the grace period has passed, as [`wait_for_readers`] does.
    ///
    /// # Panics
    ///
    /// Panics inside a read section, unless the grace period has already passed.
    pub fn wait(&self) {
        if domain().has_completed(self.ticket) {
            return;
        }
        assert!(
            !is_reading(),
            "waiting for readers inside a read section would wait for itself: drop the Guard (or the pinned handle that \
             holds one) of this thread first"
        );
        let mut backoff = Backoff::new();
        while !self.has_passed() {
            backoff.wait();
        }
    }
}
