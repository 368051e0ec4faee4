//! The measured quantities, and the paper's values.

use clap::ValueEnum;
use serde::Serialize;

/// The number of keys in a map for lookups. The paper looks up as many in turn.
pub const KEYS: usize = 8;

pub const QUANTITIES: [Quantity; 5] =
    [Quantity::Hit, Quantity::Miss, Quantity::Update, Quantity::Collision, Quantity::Iterate];

/// A quantity of section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// A lookup of the key that was found last
    Hit,
    /// A lookup of a key that was not found last
    Miss,
    /// Insertion into an empty bucket, or removal from it
    Update,
    /// Insertion and removal of two keys in one bucket
    Collision,
    /// Iteration over all entries
    Iterate,
}

/// Intercept in nanoseconds, and slope in nanoseconds per byte or entry.
pub type Line = (f64, f64);

impl Quantity {
    /// Returns the name of the quantity in the paper's table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Hit => "lookup (cache hit)",
            Self::Miss => "lookup (cache miss)",
            Self::Update => "insert/remove",
            Self::Collision => "insert/remove w/collision",
            Self::Iterate => "iteration",
        }
    }

    /// Returns the paper's lines for a SPARC 4/40 and an Alpha AXP 3000/600. They are "rough
    /// estimates" for the build called new.
    pub fn printed(self) -> [Line; 2] {
        match self {
            Self::Hit => [(2500.0, 140.0), (360.0, 4.0)],
            Self::Miss => [(9000.0, 360.0), (700.0, 42.0)],
            Self::Update => [(6000.0, 320.0), (500.0, 39.0)],
            Self::Collision => [(6000.0, 320.0), (600.0, 39.0)],
            Self::Iterate => [(3000.0, 1290.0), (500.0, 210.0)],
        }
    }

    /// Returns the number of operations in one repetition.
    pub fn operations(self) -> u64 {
        match self {
            Self::Hit | Self::Iterate => 1,
            Self::Miss => KEYS as u64,
            Self::Update => 2,
            Self::Collision => 4,
        }
    }
}
