//! The map that is tested, and what only this map has. The tests of flat maps have a module of the
//! same name.

use crate::operations::{Map, Set};
use crate::parts::Ticking;

pub use relativist::{Builder, HashMap, HashSet};

/// Operations run during resizes to these numbers of buckets.
pub const RESIZED_TO: &[usize] = &[16, 2];

/// The initial capacity of maps.
pub const CAPACITY: usize = 2;

pub fn build(builder: Builder<Ticking>) -> Map {
    builder.build().unwrap()
}

pub fn build_set(builder: Builder<Ticking>) -> Set {
    builder.build_set().unwrap()
}

/// Whether the flat map is tested.
pub const IS_FLAT: bool = false;

/// What else the lists have to cover, or need not cover; see `coverage.rs`.
pub fn other_names() -> impl Iterator<Item = &'static str> {
    std::iter::empty()
}
