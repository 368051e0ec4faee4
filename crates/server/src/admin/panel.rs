//! The data from which requests are answered.

use super::history::{History, Moment};
use crate::execute::{SharedState, Tenant};
use crate::observability::hot_keys;
use crate::process::stopper::Stopper;
use relativist_store::{MemoryUse, TableStats, Usage};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A new survey begins when the result of the last one is this old.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The [work](relativist_store::work) of a survey that one call does: about two milliseconds.
const MAX_WORK: u64 = 2_000_000;

/// The data from which requests are answered.
pub(super) struct Panel {
    pub(super) shared: Arc<SharedState>,
    pub(super) stopper: Stopper,
    started: Instant,
    history: Mutex<History>,
}

impl Panel {
    pub(super) fn new(shared: Arc<SharedState>, stopper: Stopper) -> Panel {
        Panel { shared, stopper, started: Instant::now(), history: Mutex::default() }
    }

    /// Records the size of the table, and continues surveys that have begun. Called ten times a
    /// second, or more often.
    pub(super) fn tick(&self) {
        self.note_size();
        let surveys = &self.shared.common.surveys;
        if surveys.table.is_in_progress() {
            self.look();
        }
        if surveys.memory.is_in_progress() {
            self.memory();
        }
    }

    fn note_size(&self) {
        let Usage { items, buckets, is_resizing, .. } = self.shared.usage();
        let moment = Moment { at: self.milliseconds(), items, buckets, is_resizing };
        self.history().note(moment);
    }

    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    pub(super) fn milliseconds(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// The most used keys of the last minute.
    pub(super) fn hot_keys(&self, kind: hot_keys::Kind) -> Option<hot_keys::Report> {
        self.shared.hot_keys(kind)
    }

    /// Statistics of the table's buckets, and their age. Examines a limited number of buckets.
    pub(super) fn look(&self) -> (TableStats, Duration) {
        let Tenant { cache, surveys, .. } = &self.shared.common;
        let (stats, age) =
            surveys.table.refresh(MAX_AGE, MAX_WORK, |stats, cursor| cache.sample_buckets(stats, cursor));
        (stats, age.unwrap_or_default())
    }

    /// Where the memory goes; none before all items were examined. Examines a limited number.
    pub(super) fn memory(&self) -> Option<MemoryUse> {
        let Tenant { cache, surveys, .. } = &self.shared.common;
        let (memory, age) =
            surveys.memory.refresh(MAX_AGE, MAX_WORK, |memory, cursor| cache.sample_memory(memory, cursor));
        age.map(|_| memory)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
