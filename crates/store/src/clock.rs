//! Time in whole seconds: a [`Clock`] that is read, and a [`Ticker`] that drives it.
//!
//! Every command needs the current second, and nothing finer. So the time is one atomic word that
//! is written once a second. Reading it costs a cached load instead of a system call. The server's
//! ticker writes it, and tests set it by hand.
//!
//! The unit is Unix seconds in 32 bits (until the year 2106, where the clock stops). They are
//! counted from the start by the monotonic clock, so changing the system's time neither expires nor
//! revives anything; absolute expiry times then follow the time that the system had when the server
//! started.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The current second, shared by all threads.
#[derive(Debug)]
pub struct Clock {
    now: AtomicU32,
}

impl Clock {
    /// The last second that a clock shows. The one after it is reserved: other parts of the store
    /// use it for "never".
    pub const MAX_SECOND: u32 = u32::MAX - 1;

    /// A clock that shows `unix` seconds until it is set, at most [`MAX_SECOND`](Self::MAX_SECOND).
    pub fn new(unix: u32) -> Clock {
        Clock { now: AtomicU32::new(unix.min(Clock::MAX_SECOND)) }
    }

    /// The current second since the Unix epoch.
    pub fn now(&self) -> u32 {
        // Relaxed: a plain number that orders nothing else, and pairs with no other access.
        self.now.load(Ordering::Relaxed)
    }

    /// Makes the clock show `unix` seconds, at most [`MAX_SECOND`](Self::MAX_SECOND).
    pub fn set(&self, unix: u32) {
        // Relaxed: as in `now`.
        self.now.store(unix.min(Clock::MAX_SECOND), Ordering::Relaxed);
    }
}

/// Sets a [`Clock`] by the system's monotonic clock.
#[derive(Debug)]
pub struct Ticker {
    clock: Arc<Clock>,
    started: Instant,
    /// System time at `started`.
    unix_at_start: Duration,
    tampering: Mutex<Tampering>,
}

/// The changes of the time by the test command `debugtime`.
#[derive(Debug, Default)]
struct Tampering {
    frozen: bool,
    /// Seconds added to the real time.
    offset: i64,
}

impl Ticker {
    /// Creates a ticker with a clock that shows the current time.
    pub fn new() -> Ticker {
        let unix_at_start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = Clock::new(saturate(unix_at_start.as_secs() as i64));
        Ticker { clock: Arc::new(clock), started: Instant::now(), unix_at_start, tampering: Mutex::default() }
    }

    /// The clock.
    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// Sets the clock to the current time.
    pub fn tick(&self) {
        self.tamper(|_| ());
    }

    /// The time until the next tick is due, if a tick happens now.
    pub fn until_next_tick(&self) -> Duration {
        let into_second = u64::from(self.real().subsec_nanos());
        Duration::from_nanos(1_000_000_000 - into_second)
    }

    /// Stops the clock.
    pub fn freeze(&self) {
        self.tamper(|tampering| tampering.frozen = true);
    }

    /// Lets the clock run again, with all `jump`s.
    pub fn resume(&self) {
        self.tamper(|tampering| tampering.frozen = false);
    }

    /// Moves the time by `seconds`, also of a frozen clock.
    pub fn jump(&self, seconds: i64) {
        self.tamper(|tampering| {
            tampering.offset = tampering.offset.saturating_add(seconds);
            self.clock.set(saturate(i64::from(self.clock.now()).saturating_add(seconds)));
        });
    }

    fn tamper(&self, change: impl FnOnce(&mut Tampering)) {
        let mut tampering = self.tampering.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut tampering);
        if !tampering.frozen {
            let real = self.real().as_secs() as i64;
            self.clock.set(saturate(real.saturating_add(tampering.offset)));
        }
    }

    fn real(&self) -> Duration {
        self.unix_at_start + self.started.elapsed()
    }
}

impl Default for Ticker {
    fn default() -> Ticker {
        Ticker::new()
    }
}

fn saturate(seconds: i64) -> u32 {
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_clock_moves_by_jumps_only() {
        let ticker = Ticker::new();
        ticker.freeze();
        let start = ticker.clock().now();
        ticker.jump(12);
        assert_eq!(ticker.clock().now(), start + 12);
        ticker.jump(-2);
        ticker.tick();
        assert_eq!(ticker.clock().now(), start + 10);
    }

    #[test]
    fn a_resumed_clock_keeps_its_jumps() {
        let ticker = Ticker::new();
        let start = ticker.clock().now();
        ticker.freeze();
        ticker.jump(1000);
        ticker.resume();
        assert!(ticker.clock().now() >= start + 1000);
    }

    #[test]
    fn a_tick_is_due_within_a_second() {
        let wait = Ticker::new().until_next_tick();
        assert!(wait > Duration::ZERO && wait <= Duration::from_secs(1));
    }

    #[test]
    fn time_does_not_wrap() {
        let ticker = Ticker::new();
        ticker.freeze();
        ticker.jump(i64::MIN);
        assert_eq!(ticker.clock().now(), 0);
        ticker.jump(i64::MAX);
        assert_eq!(ticker.clock().now(), Clock::MAX_SECOND);
    }
}
