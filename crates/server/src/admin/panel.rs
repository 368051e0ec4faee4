//! The data from which requests are answered.

use super::history::{History, Moment};
use super::survey::Survey;
use crate::execute::SharedState;
use crate::observability::hot_keys;
use crate::process::stopper::Stopper;
use relativist_store::{MemoryUse, TableStats, Usage};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The data from which requests are answered.
pub(super) struct Panel {
    pub(super) shared: Arc<SharedState>,
    pub(super) stopper: Stopper,
    started: Instant,
    history: Mutex<History>,
    survey: Mutex<Survey<TableStats>>,
    memory: Mutex<Survey<MemoryUse>>,
}

impl Panel {
    pub(super) fn new(shared: Arc<SharedState>, stopper: Stopper) -> Panel {
        Panel {
            shared,
            stopper,
            started: Instant::now(),
            history: Mutex::default(),
            survey: Mutex::default(),
            memory: Mutex::default(),
        }
    }

    /// Records the size of the table, and continues surveys that have begun. Called ten times a
    /// second, or more often.
    pub(super) fn tick(&self) {
        self.note_size();
        let (mut buckets, cache) = (lock(&self.survey), &self.shared.common.cache);
        if buckets.is_in_progress() {
            buckets.go_on(|stats, cursor| cache.sample_buckets(stats, cursor));
        }
        drop(buckets);
        let mut memory = lock(&self.memory);
        if memory.is_in_progress() {
            memory.go_on(|memory, cursor| cache.sample_memory(memory, cursor));
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
        let mut survey = lock(&self.survey);
        survey.refresh(|stats, cursor| self.shared.common.cache.sample_buckets(stats, cursor));
        survey.result()
    }

    /// Where the memory goes; none before all items were examined. Examines a limited number.
    pub(super) fn memory(&self) -> Option<MemoryUse> {
        let mut survey = lock(&self.memory);
        survey.refresh(|memory, cursor| self.shared.common.cache.sample_memory(memory, cursor));
        survey.last().map(|(memory, _)| memory)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
