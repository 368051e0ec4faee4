//! The estimates as they are reported.

use super::working_set::SizeClass;

/// The sizes of the cache for which there are estimates, as factors of its real size.
pub const FACTORS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];

/// How the cache would do with other sizes, and what it is used for.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The time that was observed: an hour, or less since the start or the last flush.
    pub seconds: u32,
    /// Lookups in that time.
    pub lookups: u64,
    /// The part of them that found an item; none if there were no lookups.
    pub hit_ratio: Option<f64>,
    /// An estimate for each of the [`FACTORS`].
    pub memory: [Estimate; FACTORS.len()],
    /// The time in which the working set was observed: an hour, or less.
    pub working_set_seconds: u32,
    /// The items that were used in that time.
    pub working_set: Vec<SizeClass>,
}

/// The estimate for one size of the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The memory limit of such a cache in bytes.
    pub bytes: u64,
    /// Whether the estimate can be trusted.
    pub state: State,
    /// The part of the lookups that would have found an item in the last hour, or since such a
    /// cache would have been full.
    pub hit_ratio: f64,
    /// Estimated misses since the start or the last flush, however reliable they are.
    pub misses: f64,
}

impl Estimate {
    /// The hit ratio, unless it cannot be trusted.
    pub fn trusted(&self) -> Option<f64> {
        (self.state == State::Ready).then_some(self.hit_ratio)
    }
}

/// Whether an estimate can be trusted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// It can.
    Ready,
    /// There were too few lookups or sampled keys.
    Few,
    /// Such a cache would not be full yet, unlike the real one. It would hit more often once it is.
    Filling,
    /// The estimate for the real size is not the real hit ratio, so the others are wrong, too.
    Inaccurate,
}

impl State {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Few => "few",
            State::Filling => "filling",
            State::Inaccurate => "inaccurate",
        }
    }
}
