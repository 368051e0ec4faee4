//! The limit on open connections.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Limits how many connections are open at a time.
#[derive(Debug)]
pub struct ConnectionLimit {
    open: AtomicUsize,
    limit: AtomicUsize,
    pauses: Mutex<Pauses>,
}

/// How often and for how long no connection was admitted because the limit was reached.
#[derive(Debug, Default)]
struct Pauses {
    count: u64,
    ended: Duration,
    since: Option<Instant>,
}

/// A connection's permission to be open. Dropping it makes room for another one.
#[derive(Debug)]
pub struct ConnectionPermit(Arc<ConnectionLimit>);

impl ConnectionLimit {
    /// A limit of `limit` connections.
    pub fn new(limit: usize) -> Arc<ConnectionLimit> {
        Arc::new(ConnectionLimit {
            open: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            pauses: Mutex::default(),
        })
    }

    /// A permit, or none when the limit is reached. Only one thread may call this: two could both
    /// take the last place.
    pub fn admit(self: &Arc<ConnectionLimit>) -> Option<ConnectionPermit> {
        if self.open() >= self.limit() {
            return None;
        }
        // Relaxed: a count that guards no memory. Only this thread raises it, so it cannot exceed
        // the limit.
        self.open.fetch_add(1, Ordering::Relaxed);
        Some(ConnectionPermit(Arc::clone(self)))
    }

    /// Whether the limit is reached. If so, a pause of admission begins; otherwise it ends.
    pub fn pause_if_full(&self) -> bool {
        let is_full = self.open() >= self.limit();
        let mut pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        match (is_full, pauses.since) {
            (true, None) => {
                pauses.count += 1;
                pauses.since = Some(Instant::now());
            }
            (false, Some(since)) => {
                pauses.ended += since.elapsed();
                pauses.since = None;
            }
            _ => (),
        }
        is_full
    }

    /// Whether admission is paused.
    pub fn is_paused(&self) -> bool {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner).since.is_some()
    }

    /// The number of pauses.
    pub fn pauses(&self) -> u64 {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// The duration of all pauses together.
    pub fn paused_for(&self) -> Duration {
        let pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.ended + pauses.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        // Relaxed: a count that guards no memory. A permit dropped just now may still be counted.
        self.open.load(Ordering::Relaxed)
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        // Relaxed: a number that guards no memory.
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. If more connections are open, they stay open.
    pub fn set_limit(&self, limit: usize) {
        // Relaxed: as above.
        self.limit.store(limit, Ordering::Relaxed);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        // Relaxed: a count that guards no memory.
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_limit_admits_when_a_connection_closes() {
        let limit = ConnectionLimit::new(2);
        let (first, _second) = (limit.admit().unwrap(), limit.admit().unwrap());
        assert!(limit.admit().is_none());
        drop(first);
        assert!(limit.admit().is_some());
        assert_eq!(limit.open(), 1);
    }

    #[test]
    fn a_lower_limit_closes_nothing_and_admits_nothing() {
        let limit = ConnectionLimit::new(2);
        let (first, second) = (limit.admit().unwrap(), limit.admit().unwrap());
        limit.set_limit(1);
        assert_eq!((limit.open(), limit.limit()), (2, 1));
        drop(first);
        assert!(limit.admit().is_none());
        drop(second);
        assert!(limit.admit().is_some());
    }
}
