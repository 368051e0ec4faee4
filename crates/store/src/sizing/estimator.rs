//! The estimates: five miniatures, the working set, and what they have counted in the last hour.

use super::events::Events;
use super::miniature::{MAX_OBJECTS, Miniature, last_sampled};
use super::report::{Estimate, FACTORS, Report, State};
use super::working_set::WorkingSet;
use crate::policy::EvictFor;
use std::array;
use std::collections::VecDeque;

/// The minutes that estimates look back.
const WINDOW: u32 = 60;

/// The maximum number of events per second, on average. So their simulation takes less than a
/// hundredth of one processor's time.
pub(super) const BUDGET: u64 = 1 << 14;

/// Small samples grow after this many minutes in a row with less than a quarter of the [`BUDGET`].
pub(super) const MIN_CALM: u32 = 10;

/// Samples are not halved more often than this.
const MAX_HALVINGS: u32 = 32;

/// The minimum number of lookups for an estimate.
const MIN_LOOKUPS: u64 = 1000;

/// The minimum number of objects in a miniature that does not sample all keys.
const MIN_OBJECTS: usize = 256;

/// The maximum difference between the estimate for the real size and the real hit ratio.
const MAX_DIFFERENCE: f64 = 0.03;

/// The index of the miniature of the real size.
const REAL: usize = 2;

const _: () = assert!(FACTORS[REAL] == 1.0);

/// What the caller knows about the cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Observed {
    /// Lookups since the start, and those of them that found nothing.
    pub(crate) lookups: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
    pub(crate) item_bytes: u64,
    /// The memory limit in bytes.
    pub(crate) limit: u64,
    /// What the cache's eviction makes few of.
    pub(crate) evict_for: EvictFor,
    /// Items with numbers up to this are flushed.
    pub(crate) flushed: u64,
}

/// Sums since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    second: u32,
    lookups: u64,
    misses: u64,
    /// The misses of each miniature.
    estimated: [f64; FACTORS.len()],
}

/// The beginning of what counts of a miniature: when it was begun or, if it was full since, then.
#[derive(Clone, Copy, Debug)]
struct Since {
    totals: Totals,
    was_full: bool,
}

/// The load of events.
#[derive(Debug, Default)]
struct Load {
    /// The second in which counting began, and the events since.
    second: u32,
    events: u64,
    /// The events of the minute.
    in_minute: u64,
    /// Consecutive minutes with few events.
    calm: u32,
}

/// How the cache would do with other sizes.
#[derive(Debug)]
pub(super) struct Estimator {
    miniatures: [Miniature; FACTORS.len()],
    since: [Since; FACTORS.len()],
    working_set: WorkingSet,
    working_set_since: u32,
    /// The bytes that items can have in the cache.
    capacity: u64,
    /// What was observed at the beginning, and last.
    first: Observed,
    last: Observed,
    /// The totals at the beginning, and now.
    first_totals: Totals,
    totals: Totals,
    /// The totals at the beginning of each minute of the window, at least one.
    history: VecDeque<Totals>,
    load: Load,
}

impl Estimator {
    /// For an empty cache.
    pub(super) fn new(now: u32, observed: Observed) -> Estimator {
        // The rest is for the table and reserves, until it is known.
        let capacity = observed.limit / 8 * 7;
        let totals = Totals { second: now, lookups: observed.lookups, misses: observed.misses, ..Totals::default() };
        Estimator {
            miniatures: FACTORS.map(|factor| Miniature::new(scaled(capacity, factor), observed.evict_for)),
            since: [Since { totals, was_full: false }; _],
            working_set: WorkingSet::default(),
            working_set_since: now,
            capacity,
            first: observed,
            last: observed,
            first_totals: totals,
            totals,
            history: VecDeque::from([totals]),
            load: Load { second: now, ..Load::default() },
        }
    }

    /// Takes over the `events` since the last call, and what was `observed` meanwhile.
    pub(super) fn advance(&mut self, now: u32, observed: Observed, events: &Events) {
        if observed.flushed != self.last.flushed {
            // Some of these came before the flush.
            let _ = events.drain(|_| ());
            let capacity = self.capacity;
            *self = Estimator::new(now, observed);
            self.resize(capacity, now);
        } else {
            self.adapt_capacity(observed, now);
            self.miniatures.iter_mut().for_each(|miniature| miniature.set_evict_for(observed.evict_for));
            let Estimator { miniatures, working_set, .. } = self;
            let (count, lost) = events.drain(|event| {
                miniatures.iter_mut().for_each(|miniature| miniature.apply(event, now));
                working_set.apply(event, now / 60);
            });
            self.last = observed;
            self.note_totals(now);
            if lost > 0 {
                self.forget_misses();
            }
            self.limit_load(now, count, lost);
        }
        events.sample_up_to(last_sampled(self.halvings()));
    }

    /// How often the largest sample was halved.
    pub(super) fn halvings(&self) -> u32 {
        self.miniatures.iter().map(Miniature::halvings).fold(self.working_set.halvings(), u32::min)
    }

    /// Notices how many bytes items can have: a cache that evicts is full.
    fn adapt_capacity(&mut self, observed: Observed, now: u32) {
        let Observed { limit, evictions, .. } = self.last;
        let capacity = if observed.limit != limit {
            scaled(self.capacity, observed.limit as f64 / limit.max(1) as f64)
        } else if observed.evictions > evictions {
            observed.item_bytes
        } else {
            self.capacity
        };
        if capacity.abs_diff(self.capacity) > self.capacity / 64 {
            self.resize(capacity, now);
        }
    }

    fn resize(&mut self, capacity: u64, now: u32) {
        self.capacity = capacity;
        for (miniature, factor) in self.miniatures.iter_mut().zip(FACTORS) {
            miniature.resize(scaled(capacity, factor), now);
        }
    }

    fn note_totals(&mut self, now: u32) {
        let Observed { lookups, misses, .. } = self.last;
        let totals =
            Totals { second: now, lookups, misses, estimated: self.miniatures.each_ref().map(Miniature::misses) };
        self.totals = totals;
        for (miniature, since) in self.miniatures.iter().zip(&mut self.since) {
            if miniature.was_full() && !since.was_full {
                *since = Since { totals, was_full: true };
            }
        }
        if self.history.back().is_none_or(|last| last.second / 60 != now / 60) {
            self.history.push_back(totals);
            self.begin_minute(now);
        }
    }

    /// Begins to count misses anew, because some are not known.
    fn forget_misses(&mut self) {
        self.history = VecDeque::from([self.totals]);
        self.since.iter_mut().for_each(|since| since.totals = self.totals);
    }

    fn begin_minute(&mut self, now: u32) {
        // A clock that goes back must not keep more.
        let is_old = |totals: &Totals| now.saturating_sub(totals.second) > 60 * WINDOW;
        while self.history.len() > 1 && (self.history.len() > WINDOW as usize + 1 || is_old(&self.history[0])) {
            self.history.pop_front();
        }
        self.miniatures.iter_mut().for_each(|miniature| miniature.drop_expired(now));
        self.working_set.forget_before((now / 60).saturating_sub(WINDOW - 1));
        let is_calm = self.load.in_minute < BUDGET * 60 / 4;
        self.load.calm = if is_calm { self.load.calm + 1 } else { 0 };
        self.load.in_minute = 0;
        if self.load.calm >= MIN_CALM {
            self.load.calm = 0;
            self.grow_samples(now);
        }
    }

    /// Begins small samples anew, with twice as many keys. The load had made them small.
    fn grow_samples(&mut self, now: u32) {
        for (miniature, since) in self.miniatures.iter_mut().zip(&mut self.since) {
            if miniature.halvings() > 0 && miniature.objects() < MAX_OBJECTS / 4 {
                miniature.begin_with_more(now);
                *since = Since { totals: self.totals, was_full: false };
            }
        }
        if self.working_set.halvings() > 0 && self.working_set.keys() < MAX_OBJECTS / 4 {
            self.working_set = WorkingSet::new(self.working_set.halvings() - 1);
            self.working_set_since = now;
        }
    }

    /// Samples fewer keys if there are too many events. (Lost events mean that a buffer was full.)
    fn limit_load(&mut self, now: u32, count: u64, lost: u64) {
        self.load.events += count;
        self.load.in_minute += count;
        let seconds = u64::from(now.saturating_sub(self.load.second));
        let mut halvings = u32::from(lost > 0);
        if let Some(times) = self.load.events.checked_div(seconds * BUDGET) {
            halvings = halvings.max(u64::BITS - times.leading_zeros());
            (self.load.second, self.load.events) = (now, 0);
        }
        let least = (self.halvings() + halvings).min(MAX_HALVINGS);
        for miniature in &mut self.miniatures {
            while miniature.halvings() < least {
                miniature.halve(now);
            }
        }
        while self.working_set.halvings() < least {
            self.working_set.halve();
        }
    }

    /// The estimates at the last call of [`advance`](Self::advance).
    pub(super) fn report(&self) -> Report {
        let (oldest, Totals { second, lookups, misses, .. }) = (self.history[0], self.totals);
        let lookups = lookups - oldest.lookups;
        let found = lookups.saturating_sub(misses - oldest.misses);
        let seconds_since = |start: u32| second.saturating_sub(start).min(60 * WINDOW);
        Report {
            seconds: seconds_since(oldest.second),
            lookups,
            hit_ratio: (lookups > 0).then(|| found as f64 / lookups as f64),
            memory: array::from_fn(|index| self.estimate(index)),
            working_set_seconds: seconds_since(self.working_set_since),
            working_set: self.working_set.classes(),
        }
    }

    fn estimate(&self, index: usize) -> Estimate {
        let (miniature, Since { totals, was_full }) = (&self.miniatures[index], self.since[index]);
        let oldest = self.history[0];
        let start = if totals.lookups > oldest.lookups { totals } else { oldest };
        let lookups = self.totals.lookups - start.lookups;
        let part = |misses: f64| misses / lookups.max(1) as f64;
        let difference = part(self.surplus(&start)).abs();
        let has_evicted = self.last.evictions > self.first.evictions;
        let has_few = miniature.halvings() > 0 && miniature.objects() < MIN_OBJECTS;
        let state = if lookups < MIN_LOOKUPS || has_few {
            State::Few
        } else if has_evicted && !was_full {
            State::Filling
        } else if difference > MAX_DIFFERENCE {
            State::Inaccurate
        } else {
            State::Ready
        };
        Estimate {
            bytes: scaled(self.last.limit, FACTORS[index]),
            state,
            hit_ratio: (1.0 - part(self.misses_since(&start, index))).clamp(0.0, 1.0),
            misses: self.misses_since(&self.first_totals, index),
        }
    }

    /// Misses of a miniature since a moment. If its sample is a part of the sample of the
    /// miniature of the real size, it has much of the same error, which is known.
    fn misses_since(&self, start: &Totals, index: usize) -> f64 {
        let misses = self.totals.estimated[index] - start.estimated[index];
        let is_part = self.miniatures[index].halvings() >= self.miniatures[REAL].halvings();
        if is_part { (misses - self.surplus(start)).max(0.0) } else { misses }
    }

    /// By how much the miniature of the real size has overestimated the misses since a moment.
    fn surplus(&self, start: &Totals) -> f64 {
        let misses = self.totals.estimated[REAL] - start.estimated[REAL];
        misses - (self.totals.misses - start.misses) as f64
    }
}

#[cfg(test)]
impl Estimator {
    /// How often the smallest sample was halved.
    pub(super) fn most_halvings(&self) -> u32 {
        self.miniatures.iter().map(Miniature::halvings).fold(0, u32::max)
    }

    /// The estimated misses of each simulation, uncorrected.
    pub(super) fn simulated_misses(&self) -> [f64; FACTORS.len()] {
        self.totals.estimated
    }

    /// The number of objects in each simulation.
    pub(super) fn objects(&self) -> [usize; FACTORS.len()] {
        self.miniatures.each_ref().map(Miniature::objects)
    }
}

fn scaled(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor) as u64
}
