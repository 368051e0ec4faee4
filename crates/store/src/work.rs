//! The work that commands do, in nominal nanoseconds, so that an event loop can end a client's turn
//! before others have waited for long.
//!
//! The number of requests is no measure: one command may copy a value of a MiB, or visit thousands
//! of items. So whatever takes longer for more bytes or items is charged here, to the thread that
//! does it, at fixed prices, which are estimates of what the steps take. Times are not measured, so
//! tests are deterministic and a busy machine gives no client a shorter turn.

use std::cell::Cell;

/// A step of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Work {
    /// Requests: each is decoded and looked up.
    Requests(u32),
    /// Bytes that are copied, received or sent.
    Bytes(usize),
    /// Items that are visited, most of which are not in the processor's cache.
    Items(usize),
    /// Buckets of a table that are visited.
    Buckets(usize),
    /// Lines of statistics, most of which are sums over all threads, and of dumps with numbers.
    Lines(usize),
    /// Certificates and other files that are read again.
    Reload,
    /// A wait for readers.
    GracePeriod,
    /// A wait for threads that have taken blocks, a millisecond at most.
    ShortWait,
    /// Swept items: each is removed or moved under the lock of its bucket.
    Swept(usize),
}

impl Work {
    /// The price in nanoseconds.
    pub const fn price(self) -> u64 {
        match self {
            Work::Requests(requests) => 150 * requests as u64,
            Work::Bytes(bytes) => bytes as u64 / 8,
            Work::Items(items) => 100 * items as u64,
            Work::Buckets(buckets) => 100 * buckets as u64,
            Work::Lines(lines) => 300 * lines as u64,
            Work::Reload => 500_000,
            Work::GracePeriod => 50_000,
            Work::ShortWait => 1_000_000,
            Work::Swept(items) => 250 * items as u64,
        }
    }
}

thread_local! {
    static DONE: Cell<u64> = const { Cell::new(0) };
}

/// Charges the calling thread for a step.
#[inline]
pub fn charge(work: Work) {
    DONE.with(|done| done.set(done.get().wrapping_add(work.price())));
}

/// What the calling thread was charged so far. Only differences mean something.
#[inline]
pub fn done() -> u64 {
    DONE.with(Cell::get)
}
