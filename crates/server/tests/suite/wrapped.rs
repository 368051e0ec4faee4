//! An engine around the relativistic one, with which tests run code between its steps.

use relativistd::engine::{
    Arrival, Change, Engine, Hit, Lookup, New, OutOfMemory, Outline, Present, Relativistic, Sequence, TableStats, Usage,
};
use std::sync::Arc;

/// What a test runs in between.
pub trait Between: Send + Sync + 'static {
    /// Runs after a lookup of one key.
    fn after_get(&self, _engine: &Relativistic, _key: &[u8]) {}

    /// Replaces the survey of some buckets.
    fn survey(&self, engine: &Relativistic, stats: &mut TableStats, cursor: u64) -> Option<u64> {
        engine.survey(stats, cursor)
    }
}

pub struct Wrapped<B> {
    pub engine: Relativistic,
    pub between: Arc<B>,
}

impl<B: Between> Engine for Wrapped<B> {
    fn now(&self) -> u32 {
        self.engine.now()
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup {
        let lookup = self.engine.get(key, visit);
        self.between.after_get(&self.engine, key);
        lookup
    }

    fn get_many(&self, keys: &[&[u8]], visit: impl FnMut(usize, Result<Hit<'_>, Lookup>) -> bool) -> usize {
        self.engine.get_many(keys, visit)
    }

    fn prefetch(&self, keys: &[&[u8]]) {
        self.engine.prefetch(keys);
    }

    fn peek(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup {
        self.engine.peek(key, visit)
    }

    fn put<R>(
        &self,
        key: &[u8],
        new: &New<'_>,
        permit: impl FnOnce(Present<'_>) -> (bool, R),
        show: impl FnOnce(Hit<'_>),
    ) -> Result<R, OutOfMemory> {
        self.engine.put(key, new, permit, show)
    }

    fn expect(&self, outline: &Outline) -> Option<Arrival> {
        self.engine.expect(outline)
    }

    fn update<'a, R>(
        &self,
        key: &[u8],
        decide: impl FnMut(Present<'_>) -> (Change<'a>, R),
        show: impl FnOnce(Hit<'_>),
    ) -> Result<R, OutOfMemory> {
        self.engine.update(key, decide, show)
    }

    fn scan(&self, cursor: u64, visit: impl FnMut(Hit<'_>)) -> Option<u64> {
        self.engine.scan(cursor, visit)
    }

    fn flush(&self, exptime: i32) {
        self.engine.flush(exptime);
    }

    fn sequence(&self) -> Sequence {
        self.engine.sequence()
    }

    fn set_limit(&self, bytes: usize) -> bool {
        self.engine.set_limit(bytes)
    }

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
        self.between.survey(&self.engine, stats, cursor)
    }
}
