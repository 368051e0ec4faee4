//! A record of the snapshots that this process has written, for metrics.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A snapshot that was written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Written {
    /// When, in Unix seconds.
    pub at: u32,
    /// How long the writing took.
    pub took: Duration,
    /// The items in it.
    pub items: u64,
}

/// The snapshots that this process has written.
#[derive(Debug, Default)]
pub struct SnapshotRecord(Mutex<Attempts>);

/// The attempts to write a snapshot.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Attempts {
    /// The last snapshot that was written.
    pub last: Option<Written>,
    /// Snapshots written.
    pub written: u64,
    /// Attempts that failed.
    pub failed: u64,
}

impl SnapshotRecord {
    /// Notes an attempt: what was written, or that it failed.
    pub fn note(&self, written: Option<Written>) {
        let mut attempts = self.attempts();
        match written {
            Some(_) => *attempts = Attempts { last: written, written: attempts.written + 1, ..*attempts },
            None => attempts.failed += 1,
        }
    }

    /// The attempts so far.
    pub fn so_far(&self) -> Attempts {
        *self.attempts()
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_the_last_snapshot() {
        let record = SnapshotRecord::default();
        let written = Written { at: 5, took: Duration::from_millis(3), items: 7 };
        record.note(Some(written));
        record.note(None);
        assert_eq!(record.so_far(), Attempts { last: Some(written), written: 1, failed: 1 });
    }
}
