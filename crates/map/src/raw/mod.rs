//! The table underneath: intrusive, and unsafe to update.
//!
//! For structures that embed a [`Link`] and manage their own memory. Everybody else wants [`HashMap`](crate::HashMap). The
//! algorithm is explained in [`crate::design`].

mod array;
mod group;
mod hash;
mod head;
mod held;
mod iter;
mod link;
mod lookup;
mod memory;
mod table;
mod transition;
mod update;

pub use array::AllocError;
pub use hash::Hash;
pub use iter::Iter;
pub use link::Link;
pub(crate) use table::Core;
pub use table::Table;
pub use update::{Entry, OccupiedEntry, VacantEntry};
