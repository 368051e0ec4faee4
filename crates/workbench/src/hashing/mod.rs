//! Hash functions, keys, and keys counted into buckets: what `hash`, `hash paper` and `hash caches`
//! share.

pub mod functions;
pub mod histogram;
pub mod keys;
pub mod study;

use serde::Serialize;

/// A figure of the paper, and the same figure measured here.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// Where the paper has it.
    pub place: String,
    /// What it counts.
    pub what: String,
    /// The paper's figure.
    pub paper: String,
    /// Ours.
    pub here: String,
}
