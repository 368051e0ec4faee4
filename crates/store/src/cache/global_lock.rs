//! One mutex around all commands. The ATC 2011 paper compares the relativistic memcached with one
//! that has such a lock (section 6.3), and this lock serves the same comparison. Only the lock
//! differs: items, table and eviction are the same. A value is copied to the client's output while
//! the lock is held.

use relativist_rcu::contention::Site;
use std::sync::Mutex;

static GLOBAL: Site = Site::new("global_lock");

/// The mutex of a cache [with a global lock](crate::Cache::with_global_lock).
#[derive(Default)]
pub(crate) struct GlobalLock(Mutex<()>);

impl GlobalLock {
    /// Runs `operation` while the calling thread holds the lock. Out of line, because most caches
    /// have no such lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn run<R>(&self, operation: impl FnOnce() -> R) -> R {
        let _locked = GLOBAL.lock(&self.0);
        operation()
    }
}
