//! The measured quantities, and the paper's figures.

use clap::ValueEnum;
use serde::Serialize;

/// Keys of a map whose lookups are measured: as many as the paper looks up in turn.
pub const KEYS: usize = 8;

pub const QUANTITIES: [Quantity; 5] =
    [Quantity::Hit, Quantity::Miss, Quantity::Update, Quantity::Collision, Quantity::Iterate];

/// A quantity of section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// A lookup of the key that was found last
    Hit,
    /// A lookup of another key than was found last
    Miss,
    /// Insertion into an empty bucket, or removal from it
    Update,
    /// Insertion or removal where another key is in the bucket, or was
    Collision,
    /// Iteration over all entries
    Iterate,
}

/// Intercept in nanoseconds, and slope in nanoseconds per byte or entry.
pub type Line = (f64, f64);

impl Quantity {
    /// As the paper's table calls it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Hit => "lookup (cache hit)",
            Self::Miss => "lookup (cache miss)",
            Self::Update => "insert/remove",
            Self::Collision => "insert/remove w/collision",
            Self::Iterate => "iteration",
        }
    }

    /// The paper's figures for a SPARC 4/40 and an Alpha AXP 3000/600. "Rough estimates", of the
    /// build called new.
    pub fn printed(self) -> [Line; 2] {
        match self {
            Self::Hit => [(2500.0, 140.0), (360.0, 4.0)],
            Self::Miss => [(9000.0, 360.0), (700.0, 42.0)],
            Self::Update => [(6000.0, 320.0), (500.0, 39.0)],
            Self::Collision => [(6000.0, 320.0), (600.0, 39.0)],
            Self::Iterate => [(3000.0, 1290.0), (500.0, 210.0)],
        }
    }

    /// The number of operations in one repetition.
    pub fn operations(self) -> u64 {
        match self {
            Self::Hit | Self::Iterate => 1,
            Self::Miss => KEYS as u64,
            Self::Update => 2,
            Self::Collision => 4,
        }
    }
}
