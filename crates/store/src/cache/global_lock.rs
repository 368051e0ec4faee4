//! One mutex around all commands. Only with the feature `global-lock`. The ATC 2011 paper compares
//! the relativistic memcached with one that has such a lock (section 6.3), and this lock serves the
//! same comparison. Only the lock differs: items, table and eviction are the same. A value is
//! copied to the client's output while the lock is held.

use crate::cache::Cache;
use relativist_rcu::contention::Site;
use std::sync::{Mutex, MutexGuard};

static GLOBAL: Site = Site::new("global_lock");

/// The mutex of a cache [with a global lock](Cache::with_global_lock).
#[derive(Default)]
pub(crate) struct GlobalLock(Mutex<()>);

impl Cache {
    /// The same cache, in which only one thread at a time runs a command, for comparisons.
    #[must_use]
    pub fn with_global_lock(self) -> Cache {
        Cache { global_lock: Some(GlobalLock::default()), ..self }
    }

    /// Takes the global lock, if the cache has one. Each command that reads or changes items holds
    /// it to its end. [`maintain`](Self::maintain) does not, so commands continue meanwhile, nor
    /// does [`reserve`](Self::reserve), which concerns no key.
    pub(crate) fn take_global_lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.global_lock.as_ref().map(|lock| GLOBAL.lock(&lock.0))
    }
}
