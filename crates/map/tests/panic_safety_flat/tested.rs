//! The map that is tested, and what only this map has. The tests of other maps have a module of the
//! same name.

use crate::operations::{Map, Set};
use crate::parts::Ticking;

pub use relativist::flat::Builder;
pub use relativist::{FlatMap as HashMap, FlatSet as HashSet};

/// Operations run after resizes to these numbers of buckets, with a reader because of whom no slot
/// is used again. (Growing does not wait for readers, and shrinking does not begin.)
pub const RESIZED_TO: &[usize] = &[16];

/// Sufficient for all operations: see `moves.rs` for panics during resizes.
pub const CAPACITY: usize = 12;

pub fn build(builder: Builder<Ticking>) -> Map {
    builder.build().unwrap()
}

pub fn build_set(builder: Builder<Ticking>) -> Set {
    builder.build_set().unwrap()
}

/// Whether the flat map is tested.
pub const IS_FLAT: bool = true;

/// What else the lists have to cover, or need not cover; see `coverage.rs`.
pub fn other_names() -> impl Iterator<Item = &'static str> {
    // These call `Hash` while entries move: see `moves.rs`.
    let resizing = ["HashMap::reserve", "HashMap::resize_to", "HashMap::shrink_to_fit", "HashMap::try_reserve"];
    // The first is part of each test.
    resizing.into_iter().chain(["Drop for Table", "Resize for Table"])
}
