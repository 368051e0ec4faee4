//! Hash functions, sources of keys, and histograms of buckets, which `hash`, `hash paper` and `hash
//! caches` share.

pub mod functions;
pub mod histogram;
pub mod keys;
pub mod study;

use serde::Serialize;

/// A value from a paper, and the same value measured here.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// The section or table of the paper.
    pub place: String,
    /// What is measured or counted.
    pub what: String,
    /// The paper's value.
    pub paper: String,
    /// The value measured here.
    pub here: String,
}
