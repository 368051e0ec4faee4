//! Automatic resizing: updates ask the background worker, and the worker resizes without waiting
//! for readers. If it lags behind, insertions grow the table.

use std::sync::{Arc, Weak};

use relativist_core::sync::{AcqRel, Relaxed};

use super::inner::{TableInner, bits_for};
use super::link::AnyLink;
use super::policy::Resizing;
use super::worker::{self, Progress};

impl<L: AnyLink> TableInner<L> {
    #[cold]
    pub(super) fn ask_worker(self: &Arc<Self>, helps: fn(usize, usize) -> bool) {
        let is_wanted = || self.wanted().is_some_and(|wanted| helps(wanted, 1 << self.bits()));
        let automatic = self.policy.resizing == Resizing::Automatic;
        // AcqRel: pairs with the one in `advance_resize`.
        // litmus: resize-requested
        let ours = automatic && is_wanted() && !self.requested.swap(true, AcqRel);
        if ours && !worker::request(Arc::downgrade(self) as Weak<dyn worker::Resize>) {
            // Relaxed: no request was made. A later update makes one.
            self.requested.store(false, Relaxed);
        }
        // Covers four times the insertions since the last check, so that the growth is finished
        // long before the table has to grow again.
        if automatic && self.worker_lags() {
            self.grow_a_bit(4 * self.count.interval());
        }
    }

    /// Returns whether the table is four times too small, because the worker is busy or blocked.
    pub(super) fn worker_lags(&self) -> bool {
        let buckets = 1 << self.bits();
        self.policy.wanted(self.count.sum() / 4, buckets).is_some_and(|wanted| wanted > buckets)
    }
}

impl<L: AnyLink> worker::Resize for TableInner<L> {
    fn advance_resize(&self) -> Progress {
        // A resize by hand may hold the mutex as long as readers stay.
        let Some(mut resizer) = self.try_lock_resizer() else { return Progress::WaitsBriefly };
        // Cleared before this thread reads the count, so that a later update makes a new request.
        // AcqRel: pairs with the one in `ask_worker`. This thread sees the updates that found it
        // set.
        // litmus: resize-requested
        self.requested.swap(false, AcqRel);
        // Relaxed, both: a statistic.
        self.resizing.store(true, Relaxed);
        self.finish_growth(&mut resizer);
        let progress = loop {
            self.cut_if_unused(&mut resizer);
            // Relaxed: a statistic.
            self.counts.bucket_bytes.fetch_sub(resizer.free_retired(), Relaxed);
            let Some(wanted) = self.wanted().map(bits_for) else { break Progress::Done };
            let resized = if wanted > self.bits() {
                if resizer.is_recently_uncut() {
                    break Progress::WaitsBriefly;
                }
                self.grow(wanted, &mut resizer)
            } else {
                // Shrinking waits until earlier resizes are complete. This bounds the arrays that
                // readers keep from being freed.
                if resizer.is_waiting() {
                    // Updates need not make requests, because the worker will check again. Relaxed:
                    // a hint.
                    self.requested.store(true, Relaxed);
                    break Progress::WaitsForReaders;
                }
                self.shrink(wanted, &mut resizer)
            };
            // Without memory the table stays as it is, and a later update makes a new request.
            if resized.is_err() {
                break Progress::Done;
            }
        };
        self.resizing.store(resizer.is_waiting(), Relaxed);
        if progress == Progress::Done && resizer.is_waiting() { Progress::WaitsForReaders } else { progress }
    }
}
