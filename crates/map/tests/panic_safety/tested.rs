//! The map that is tested, and what only this map has. The tests of flat maps have a module of the
//! same name.

use crate::explore::Effect::Step;
use crate::operations::{Map, Operation, Set, key};
use crate::parts::{Name, Ticking};
use crate::raw::{TABLE, TABLE_WAITING};

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

/// These wait for readers.
pub const MAP_WAITING: &[Operation<Map>] = &[
    ("HashMap::rename", Step, |map| _ = map.rename(&Name(2), key(5))),
    ("HashMap::rename, within a chain", Step, |map| _ = map.rename(&Name(1), key(4))),
    ("HashMap::rename, not found", Step, |map| _ = map.rename(&Name(4), key(5))),
    ("HashMap::rename, taken", Step, |map| _ = map.rename(&Name(2), key(1))),
];

/// Whether the flat map is tested.
pub const IS_FLAT: bool = false;

/// What else the lists have to cover, or need not cover; see `coverage.rs`.
pub fn other_names() -> impl Iterator<Item = &'static str> {
    let table = [TABLE, TABLE_WAITING].into_iter().flatten().map(|(name, ..)| *name);
    table.chain([
        "Debug for Table",
        "OccupiedEntry::get",
        "OccupiedEntry::remove",
        "OccupiedEntry::replace",
        "Table::grow_uncut",
        "VacantEntry::insert",
    ])
}
