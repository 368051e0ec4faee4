//! Signals for sizing: the hit ratios that other amounts of memory would give, and the working set.
//!
//! Five [simulations of the eviction policy](Simulation) run in the background, each with a sample
//! of the keys, for a quarter, half, once, twice and four times the memory. The threads that
//! execute commands pass the events of sampled keys on, in buffers of their own. The caller
//! advances the simulations about ten times a second. Deletions, expiry, replaced items and flushes
//! are simulated, too.
//!
//! **The cost.** A thread compares each hash, which it has computed anyway, with one number that
//! hardly ever changes. Only sampled keys cost more. The sample becomes smaller when there are too
//! many keys, so memory is bounded: about 4 MiB for the simulations, and 100 KiB per buffer. It
//! also becomes smaller when there are more than 16,384 events a second, so time is bounded.
//!
//! **What is simulated.** An object occupies what its item occupies in the cache. The size of the
//! simulated cache is what items really occupy in the full cache, times the factor; so fragments,
//! table and reserves are assumed to be in proportion. A client that misses an item and then stores
//! it would not have stored it after a hit. So a store after a miss is ignored in those simulations
//! that have the object, and a hit brings the object into those that don't.
//!
//! **When there are no numbers.** The estimate for the real size can be compared with the real hit
//! ratio. A small difference comes from the sample, and is taken out of the other estimates, too,
//! as far as they have the same sample. If the difference is large, no estimate is to be trusted.
//! See [`State`].

mod estimator;
mod events;
mod miniature;
mod report;
mod simulation;
#[cfg(test)]
mod tests;
mod working_set;

pub(crate) use estimator::Observed;
pub(crate) use events::{Event, Kind};
pub use report::{Estimate, FACTORS, Report, State};
pub use simulation::{Simulation, Stored};
pub use working_set::SizeClass;

use estimator::Estimator;
use events::Events;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The sample of a cache, and what is made of it.
#[derive(Debug)]
pub(crate) struct Sizing {
    pub(crate) events: Events,
    estimates: Option<Box<Estimates>>,
}

#[derive(Debug)]
struct Estimates {
    estimator: Mutex<Estimator>,
    /// The last report, so that its readers do not wait for the simulations.
    report: Mutex<Report>,
}

impl Sizing {
    /// Nothing is sampled.
    pub(crate) fn off() -> Sizing {
        Sizing { events: Events::off(), estimates: None }
    }

    /// Samples an empty cache that about `threads` threads use.
    pub(crate) fn new(threads: usize, now: u32, observed: Observed) -> Sizing {
        let estimator = Estimator::new(now, observed);
        let report = Mutex::new(estimator.report());
        let estimates = Estimates { estimator: Mutex::new(estimator), report };
        Sizing { events: Events::new(threads), estimates: Some(Box::new(estimates)) }
    }

    /// Advances the simulations by the events since the last call.
    pub(crate) fn advance(&self, now: u32, observed: Observed) {
        if let Some(estimates) = &self.estimates {
            let mut estimator = lock(&estimates.estimator);
            estimator.advance(now, observed, &self.events);
            *lock(&estimates.report) = estimator.report();
        }
    }

    /// The estimates as of the last call of [`advance`](Self::advance).
    pub(crate) fn report(&self) -> Option<Report> {
        self.estimates.as_ref().map(|estimates| lock(&estimates.report).clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
