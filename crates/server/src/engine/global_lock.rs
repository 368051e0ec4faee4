//! One mutex around one table: what the ATC 2011 paper measures the relativistic memcached against (section 6.3), for the same
//! comparison.
//!
//! Everything else is the same, items and eviction included, so that what differs is the lock. A value is copied to the client's
//! output while the lock is held.

use super::{
    Arrival, Change, Engine, Hit, Lookup, New, OutOfMemory, Outline, Present, Relativistic, Sequence, TableStats, Usage,
};
use relativist_rcu::contention::Site;
use std::sync::{Mutex, MutexGuard};

static GLOBAL: Site = Site::new("global_lock");

/// The engine over a table that one thread at a time uses.
pub struct GlobalLock {
    engine: Relativistic,
    lock: Mutex<()>,
}

impl GlobalLock {
    /// The same engine under a lock.
    pub fn new(engine: Relativistic) -> GlobalLock {
        GlobalLock { engine, lock: Mutex::new(()) }
    }

    fn locked(&self) -> (&Relativistic, MutexGuard<'_, ()>) {
        (&self.engine, GLOBAL.lock(&self.lock))
    }
}

impl Engine for GlobalLock {
    fn now(&self) -> u32 {
        self.engine.now()
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup {
        let (engine, _locked) = self.locked();
        engine.get(key, visit)
    }

    fn get_many(&self, keys: &[&[u8]], visit: impl FnMut(usize, Result<Hit<'_>, Lookup>) -> bool) -> usize {
        let (engine, _locked) = self.locked();
        engine.get_many(keys, visit)
    }

    /// Not under the lock: nothing is looked at.
    fn prefetch(&self, keys: &[&[u8]]) {
        self.engine.prefetch(keys);
    }

    fn peek(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup {
        let (engine, _locked) = self.locked();
        engine.peek(key, visit)
    }

    fn put<R>(
        &self,
        key: &[u8],
        new: &New<'_>,
        permit: impl FnOnce(Present<'_>) -> (bool, R),
        show: impl FnOnce(Hit<'_>),
    ) -> Result<R, OutOfMemory> {
        let (engine, _locked) = self.locked();
        engine.put(key, new, permit, show)
    }

    /// Not under the lock: no key is concerned yet.
    fn expect(&self, outline: &Outline) -> Option<Arrival> {
        self.engine.expect(outline)
    }

    fn update<'a, R>(
        &self,
        key: &[u8],
        decide: impl FnMut(Present<'_>) -> (Change<'a>, R),
        show: impl FnOnce(Hit<'_>),
    ) -> Result<R, OutOfMemory> {
        let (engine, _locked) = self.locked();
        engine.update(key, decide, show)
    }

    fn scan(&self, cursor: u64, visit: impl FnMut(Hit<'_>)) -> Option<u64> {
        let (engine, _locked) = self.locked();
        engine.scan(cursor, visit)
    }

    fn flush(&self, exptime: i32) {
        let (engine, _locked) = self.locked();
        engine.flush(exptime);
    }

    fn sequence(&self) -> Sequence {
        self.engine.sequence()
    }

    fn set_limit(&self, bytes: usize) -> bool {
        self.engine.set_limit(bytes)
    }

    /// Not under the lock: nobody has to wait for it.
    fn maintain(&self) {
        self.engine.maintain();
    }

    fn max_item(&self) -> usize {
        self.engine.max_item()
    }

    fn usage(&self) -> Usage {
        self.engine.usage()
    }

    fn survey(&self, stats: &mut TableStats, cursor: u64) -> Option<u64> {
        self.engine.survey(stats, cursor)
    }
}
