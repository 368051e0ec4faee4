//! The tables that are measured, behind two small traits.
//!
//! The loops over these traits ([`candidate`]) are generic and compiled once for each table. The
//! adapters are always inlined into the loops, so the only remaining calls are the table's own.
//! (The tables of papers are in `relativist-papers`.)
//!
//! Each operation takes its own guard (or lock), unless the name of the adapter contains "handle".
//! If a library has several methods for an operation, the adapter uses the one that its
//! documentation recommends.

pub mod candidate;
pub mod dashmap;
pub mod entries;
#[cfg(feature = "cc")]
pub mod foreign;
pub mod hash_index;
pub mod hashbrown;
pub mod locked;
pub mod papaya;
pub mod relativist;
pub mod scc;

use std::sync::Arc;

use crate::tables::candidate::Lookups;
use crate::tables::entries::Key;

/// A table that many threads read.
pub trait Lookup: Send + Sync + 'static {
    const NAME: &'static str;

    type Key: Key;

    /// What a thread keeps between operations: a guard, or a reference to the table if each
    /// operation has a guard of its own.
    type Session<'t>;

    /// Begins a session: a batch of operations by one thread.
    fn session(&self) -> Self::Session<'_>;

    /// Looks up `key`, including everything that a single lookup outside of a loop needs.
    fn get(session: &mut Self::Session<'_>, key: &View<Self>) -> Option<u64>;
}

/// The borrowed form of the keys of `T`.
pub type View<T> = <<T as Lookup>::Key as Key>::View;

/// A table that many threads update. (Exception: threads take turns to run a batch on
/// [`hashbrown`].)
pub trait Table: Lookup + Sized {
    /// Makes an empty table, with room for `capacity` entries if its constructor supports that.
    fn with_capacity(capacity: usize) -> Self;

    /// Inserts a key, or replaces its value. Returns false if it was present.
    fn insert(session: &mut Self::Session<'_>, key: Self::Key, value: u64) -> bool;

    /// Inserts a key if it is absent. Returns false, and changes nothing, if it was present.
    fn try_insert(session: &mut Self::Session<'_>, key: Self::Key, value: u64) -> bool;

    /// Removes a key. Returns false if it was absent.
    fn remove(session: &mut Self::Session<'_>, key: &View<Self>) -> bool;

    /// Removes all entries, by the table's own method.
    fn clear(session: &mut Self::Session<'_>);

    /// Calls `visit` with all values.
    fn for_each(session: &mut Self::Session<'_>, visit: impl FnMut(u64));

    /// Waits until what was removed from all tables of this kind is freed, if the library can.
    fn settle(&self) {}

    /// Resizes the table to room for twice its entries, and back. Returns false if it has no
    /// methods for that.
    fn resize(&self) -> bool {
        false
    }

    /// Returns the ways to look up keys. Each is a separate candidate in workloads of lookups only.
    fn lookups(self: Arc<Self>) -> Vec<Arc<dyn Lookups>> {
        vec![self]
    }
}

/// A table whose sessions keep one guard for all their operations.
#[derive(Debug)]
pub struct Handle<T>(pub Arc<T>);

/// Implements [`Lookup`] and [`Table`] for an adapter of a map whose operations need a handle from
/// `pin()`, and [`Lookup`] for a [`Handle`] that keeps one. The items at the end go into the
/// implementation of [`Table`].
macro_rules! pinned_map {
    ([$($generics:tt)*] $adapter:ty = $map:ty, $name:expr, $handle:expr, $session:ty; $($more:item)*) => {
        impl<$($generics)*> Lookup for $adapter {
            const NAME: &'static str = $name;
            type Key = K;
            type Session<'t> = &'t $map;

            fn session(&self) -> Self::Session<'_> {
                &self.0
            }

            #[inline(always)]
            fn get(map: &mut Self::Session<'_>, key: &K::View) -> Option<u64> {
                map.pin().get(key).copied()
            }
        }

        impl<$($generics)*> Table for $adapter {
            fn with_capacity(capacity: usize) -> Self {
                Self(<$map>::with_capacity_and_hasher(capacity, Foldhash::default()))
            }

            #[inline(always)]
            fn insert(map: &mut Self::Session<'_>, key: K, value: u64) -> bool {
                map.pin().insert(key, value).is_none()
            }

            #[inline(always)]
            fn try_insert(map: &mut Self::Session<'_>, key: K, value: u64) -> bool {
                map.pin().try_insert(key, value).is_ok()
            }

            #[inline(always)]
            fn remove(map: &mut Self::Session<'_>, key: &View<Self>) -> bool {
                map.pin().remove(key).is_some()
            }

            fn clear(map: &mut Self::Session<'_>) {
                map.pin().clear();
            }

            #[inline(always)]
            fn for_each(map: &mut Self::Session<'_>, mut visit: impl FnMut(u64)) {
                map.pin().iter().for_each(|(_, value)| visit(*value));
            }

            $($more)*
        }

        impl<$($generics)*> Lookup for Handle<$adapter> {
            const NAME: &'static str = $handle;
            type Key = K;
            type Session<'t> = $session;

            fn session(&self) -> Self::Session<'_> {
                self.0.0.pin()
            }

            #[inline(always)]
            fn get(pinned: &mut Self::Session<'_>, key: &K::View) -> Option<u64> {
                pinned.get(key).copied()
            }
        }
    };
}
use pinned_map;
