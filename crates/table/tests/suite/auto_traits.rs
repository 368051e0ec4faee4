//! Which types can be sent to other threads, shared with them, and used after a panic. Checked at
//! compile time.
//!
//! `+` and `-` stand for `Send`, `Sync`, `UnwindSafe` and `RefUnwindSafe`.

use relativist_table::{
    AllocError, CompactLink, Entry, FindAll, Hash, Iter, Link, OccupiedEntry, Policy, PolicyError, Resizing, Stats,
    Table, VacantEntry,
};
use relativist_testing::auto_traits;

auto_traits! {
    // The caller of `insert` answers for the objects. The thread that has locked a bucket unlocks
    // it.
    Table => + + + +,
    Table<CompactLink> => + + + +,
    Link => + + + +,
    CompactLink => + + + +,
    Hash => + + + +,
    Iter<'static> => - - + +,
    FindAll<'static> => - - + +,
    Entry<'static> => - - + +,
    OccupiedEntry<'static> => - - + +,
    VacantEntry<'static> => - - + +,

    Policy => + + + +,
    Resizing => + + + +,
    Stats => + + + +,
    AllocError => + + + +,
    PolicyError => + + + +,
}
