//! The hash table of Triplett, McKenney and Walpole, *Resizable, Scalable, Concurrent Hash Tables
//! via Relativistic Programming* (USENIX ATC 2011): lookups are wait-free, also while the table
//! grows or shrinks. It is intrusive, and its updates are unsafe.
//!
//! Use it for structures that embed a [`Link`] and manage their own memory: objects with their own
//! header, objects that are in several tables at once, multimaps. For everything else use the maps
//! of `relativist`, or `relativist-cache`, which have other tables. [`design`] explains the
//! algorithm and lists the guarantees. Before version 1 any minor version may change the interface.
//!
//! | | |
//! |---|---|
//! | [`Table::find`], [`Table::find_all`], [`Table::iter`], [`Table::scan`] | lookups: wait-free |
//! | [`Table::entry`], [`Table::insert`], [`Table::remove`] | updates: lock one bucket |
//! | [`Table::resize_to`], [`Table::reserve`], [`Table::shrink_to_fit`] | resize by hand |
//!
//! The examples `intrusive.rs` and `multimap.rs` show how to use it.

#[cfg(test)]
use relativist_testing as _;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod array;
mod automatic;
mod batch;
mod clear;
mod contents;
pub mod design;
mod group;
mod hash;
mod head;
mod inner;
mod iter;
mod link;
mod lookup;
mod multimap;
pub mod node;
mod policy;
mod resize;
mod resizer;
mod stats;
mod table;
mod update;
pub mod worker;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("relativist-table keeps a pointer and 16 bits more in a word: it needs a 64-bit target");

pub use array::AllocError;
pub use hash::Hash;
pub use iter::Iter;
pub use link::{AnyLink, CompactLink, Link};
pub use multimap::FindAll;
pub use policy::{Policy, PolicyError, Resizing};
pub use relativist_rcu::{Guard, read};
pub use stats::Stats;
pub use table::{Table, assert_outside_sections};
pub use update::{Entry, OccupiedEntry, VacantEntry};
