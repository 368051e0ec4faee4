//! Waiting for readers.

use crate::domain::domain;
use crate::guard::is_reading;
use crate::sync::Backoff;

/// Waits until every read section that was running when the call was made has ended: one grace
/// period.
///
/// With no reader inside it returns after one barrier. Concurrent callers share grace periods: who
/// comes while one is running is answered by the next, and so waits, at the longest, for the
/// sections that begin before that one does. Later ones don't delay it. Blocking: spins briefly,
/// then sleeps up to a millisecond at a time.
///
/// # Panics
///
/// Inside a read section, which would wait for itself for ever.
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

/// How many grace periods have begun in this process. A statistic.
pub fn grace_periods() -> u64 {
    domain().begun()
}

/// A grace period to be polled instead of waited for: the "wait for readers" of the papers, in two
/// halves.
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
    /// Marks this moment. When the grace period has passed, all sections that run now have ended.
    /// Wait-free.
    pub fn start() -> Self {
        domain().initialize_by_default();
        Self { ticket: domain().ticket() }
    }

    /// Whether it has passed. Once true, it stays true. Never blocks, but drives the grace period
    /// on: costs a barrier at times and a look at each registered thread. May be called inside a
    /// read section. Who asks again and again should pause in between: nobody else can look
    /// meanwhile.
    pub fn has_passed(&self) -> bool {
        domain().poll(self.ticket)
    }

    /// Blocks until it has passed, as [`wait_for_readers`] does.
    ///
    /// # Panics
    ///
    /// Inside a read section, unless it has passed already.
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
