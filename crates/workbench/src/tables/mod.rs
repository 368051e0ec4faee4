//! The tables that are measured, behind two small traits.
//!
//! The loops over these traits ([`crate::tables::candidate`], [`crate::papers::lookups`]) are generic and compiled once for each
//! table. (The papers' tables are in a crate of their own, `relativist-baselines`.) The adapters are always inlined into them: what remains of calls is the table's own.
//!
//! An operation has a guard (or lock) of its own unless the adapter's name says "handle". Where a library offers several
//! ways, the adapter takes the one that its documentation recommends for the purpose.

pub mod candidate;
pub mod dashmap;
pub mod entries;
pub mod evmap;
pub mod flurry;
#[cfg(any(feature = "liburcu", feature = "tbb", feature = "cuckoo"))]
pub mod foreign;
pub mod hash_index;
pub mod hashbrown;
pub mod hashers;
pub mod mixes;
pub mod papaya;
pub mod relativist;
pub mod rwlock;
pub mod scc;

use std::sync::Arc;

use crate::tables::candidate::Lookups;
use crate::tables::entries::{Key, Value};

/// A table that many threads read.
pub trait Lookup: Send + Sync + 'static {
    const NAME: &'static str;

    type Key: Key;

    type Value: Value;

    /// What a thread holds from one operation to the next: a reference to the table where each operation has a guard of its
    /// own, a guard where it is kept.
    type Session<'t>;

    /// Begins a session: a batch of operations by one thread.
    fn session(&self) -> Self::Session<'_>;

    /// Looks `key` up, with all that a caller outside of any loop would have to do for it.
    fn get(session: &mut Self::Session<'_>, key: &View<Self>) -> Option<Self::Value>;
}

/// What keys of `T` are looked up by.
pub type View<T> = <<T as Lookup>::Key as Key>::View;

/// A table that many threads update. (Exception: [`hashbrown`] takes turns, batch by batch.)
pub trait Table: Lookup + Sized {
    /// An empty table with room for `capacity` entries, if that is a thing that it can be told.
    fn with_capacity(capacity: usize) -> Self;

    /// Inserts a key that is thought to be absent, by the cheapest call for that; false when it was present.
    fn insert(session: &mut Self::Session<'_>, key: Self::Key, value: Self::Value) -> bool {
        Self::try_insert(session, key, value)
    }

    /// Inserts a key if it is absent; false, and nothing is changed, when it was present.
    fn try_insert(session: &mut Self::Session<'_>, key: Self::Key, value: Self::Value) -> bool;

    /// Gives a key that is thought to be present another value, by the cheapest call for that; false when it was absent,
    /// and then it may be present now or not.
    fn replace(session: &mut Self::Session<'_>, key: Self::Key, value: Self::Value) -> bool;

    /// Removes a key; false when it was absent.
    fn remove(session: &mut Self::Session<'_>, key: &View<Self>) -> bool;

    /// Removes all entries, by the table's own means for that.
    fn clear(session: &mut Self::Session<'_>);

    /// Shows all values to `visit`.
    fn for_each(session: &mut Self::Session<'_>, visit: impl FnMut(Self::Value));

    /// Waits until what the table does in the background is done, where there is a way to tell.
    fn settle(&self) {}

    /// The ways to look up in it, each a candidate of its own where nothing but lookups is measured.
    fn lookups(self: Arc<Self>) -> Vec<Arc<dyn Lookups>> {
        vec![self]
    }
}

/// A table whose sessions hold a guard that all their operations share.
#[derive(Debug)]
pub struct Handle<T>(pub Arc<T>);
