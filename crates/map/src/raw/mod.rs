//! The intrusive table on which the map is built. Its updates are unsafe.
//!
//! Use it for structures that embed a [`Link`] and manage their own memory: objects with their own
//! header, objects that are in several tables at once, multimaps. For everything else use
//! [`HashMap`](crate::HashMap). [`crate::design`] explains the algorithm.
//!
//! | | |
//! |---|---|
//! | [`Table::find`], [`Table::find_many`], [`Table::find_all`], [`Table::iter`], [`Table::scan`] | lookups: wait-free |
//! | [`Table::entry`], [`Table::insert`], [`Table::remove`], [`Table::unlink`] | updates: lock one bucket |
//! | [`Table::insert_if_absent`] | an update that in most cases takes no lock |
//! | [`Table::rename`], [`Table::rename_to`] | give an object another key |
//! | [`Table::resize_to`], [`Table::reserve`], [`Table::shrink_to_fit`] | resize by hand |
//!
//! The examples `raw_intrusive.rs`, `raw_multimap.rs` and `rename.rs` show how to use it.

mod array;
mod batch;
mod cached_lookup;
mod clear;
mod contents;
mod exclusive;
mod group;
mod hash;
mod head;
mod in_flight;
mod iter;
mod link;
mod lookup;
mod multimap;
mod occupancy;
mod rename;
mod resize;
mod settled;
mod table;
mod update;

pub use array::AllocError;
pub(crate) use cached_lookup::CachedLookup;
pub use hash::Hash;
pub use iter::Iter;
pub(crate) use iter::Prefetched;
pub use link::{AnyLink, CompactLink, Link};
pub use multimap::FindAll;
pub use rename::RenameError;
pub(crate) use settled::Unsettled;
pub use table::Table;
pub(crate) use table::assert_outside_sections;
pub use update::{Entry, OccupiedEntry, VacantEntry};
