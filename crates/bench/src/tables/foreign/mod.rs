//! Tables in C and C++, behind a structure of function pointers; see `operations.h`.
//!
//! They map only `u64` to `u64`. They allocate from mimalloc like all other tables, because the
//! features that include them make mimalloc replace `malloc` in the whole program.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{NonNull, from_mut};

use super::{Lookup, Table};

/// The functions of a table. `operations.h` has the same structure, and describes the functions.
#[repr(C)]
pub struct Operations {
    create: unsafe extern "C" fn(capacity: usize) -> *mut c_void,
    destroy: unsafe extern "C" fn(table: *mut c_void),
    get: unsafe extern "C" fn(table: *mut c_void, key: u64, value: *mut u64) -> bool,
    insert: unsafe extern "C" fn(table: *mut c_void, key: u64, value: u64) -> bool,
    try_insert: unsafe extern "C" fn(table: *mut c_void, key: u64, value: u64) -> bool,
    remove: unsafe extern "C" fn(table: *mut c_void, key: u64) -> bool,
    clear: unsafe extern "C" fn(table: *mut c_void),
    for_each: unsafe extern "C" fn(table: *mut c_void, visit: Visit, context: *mut c_void),
    hash: unsafe extern "C" fn(key: u64) -> u64,
}

type Visit = unsafe extern "C" fn(context: *mut c_void, value: u64);

/// A library that has a table.
///
/// # Safety
/// The operations do what `operations.h` describes, and any number of threads may call them at the
/// same time.
pub unsafe trait Library: Send + Sync + 'static {
    const NAME: &'static str;

    fn operations() -> &'static Operations;
}

/// Defines a type that implements [`Library`] with the `Operations` that a C or C++ file in this
/// folder defines.
macro_rules! library {
    ($(#[doc = $doc:literal])* $library:ident, $name:literal, $operations:ident) => {
        $(#[doc = $doc])*
        #[derive(Debug)]
        pub struct $library;

        unsafe extern "C" {
            safe static $operations: Operations;
        }

        // SAFETY: the C or C++ file follows the documentation of its library, whose table may be
        // used by any number of threads.
        unsafe impl Library for $library {
            const NAME: &'static str = $name;

            #[inline(always)]
            fn operations() -> &'static Operations {
                &$operations
            }
        }
    };
}

#[cfg(feature = "liburcu")]
library! {
    /// liburcu's `cds_lfht`, with the "memb" flavour: lock-free, with one split-ordered list.
    Liburcu, "cds_lfht", relativist_lfht
}

#[cfg(feature = "boost")]
library! {
    /// Boost's `concurrent_flat_map`: open addressing, with a spin lock per group of 15 slots and a
    /// reader-writer lock for resizes.
    Boost, "boost::concurrent_flat_map", relativist_boost
}

pub struct Foreign<L: Library> {
    table: NonNull<c_void>,
    _of: PhantomData<L>,
}

// SAFETY: `Library` promises that any thread may call its functions on the table.
unsafe impl<L: Library> Send for Foreign<L> {}
// SAFETY: `Library` promises that any thread may call its functions on the table.
unsafe impl<L: Library> Sync for Foreign<L> {}

impl<L: Library> fmt::Debug for Foreign<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Foreign").field(&self.table).finish()
    }
}

impl<L: Library> Lookup for Foreign<L> {
    const NAME: &'static str = L::NAME;
    type Key = u64;
    type Session<'t> = &'t Self;

    fn session(&self) -> Self::Session<'_> {
        self
    }

    #[inline(always)]
    fn get(this: &mut Self::Session<'_>, key: &u64) -> Option<u64> {
        let mut value = 0;
        // SAFETY: the table is alive, and `value` is valid for writes during the call.
        let found = unsafe { (L::operations().get)(this.table.as_ptr(), *key, &raw mut value) };
        found.then_some(value)
    }
}

impl<L: Library> Table for Foreign<L> {
    fn with_capacity(capacity: usize) -> Self {
        // SAFETY: the function may be called with any capacity.
        let table = unsafe { (L::operations().create)(capacity) };
        Self { table: NonNull::new(table).expect("out of memory"), _of: PhantomData }
    }

    #[inline(always)]
    fn insert(this: &mut Self::Session<'_>, key: u64, value: u64) -> bool {
        // SAFETY: the table is alive.
        unsafe { (L::operations().insert)(this.table.as_ptr(), key, value) }
    }

    #[inline(always)]
    fn try_insert(this: &mut Self::Session<'_>, key: u64, value: u64) -> bool {
        // SAFETY: the table is alive.
        unsafe { (L::operations().try_insert)(this.table.as_ptr(), key, value) }
    }

    #[inline(always)]
    fn remove(this: &mut Self::Session<'_>, key: &u64) -> bool {
        // SAFETY: the table is alive.
        unsafe { (L::operations().remove)(this.table.as_ptr(), *key) }
    }

    fn clear(this: &mut Self::Session<'_>) {
        // SAFETY: the table is alive.
        unsafe { (L::operations().clear)(this.table.as_ptr()) }
    }

    fn for_each(this: &mut Self::Session<'_>, mut visit: impl FnMut(u64)) {
        /// Calls the closure of type `F` that is at `context`.
        unsafe extern "C" fn call<F: FnMut(u64)>(context: *mut c_void, value: u64) {
            // SAFETY: `context` is the pointer to `visit` below, which has no other user during the
            // call.
            unsafe { (*context.cast::<F>())(value) }
        }
        fn caller<F: FnMut(u64)>(_: &F) -> Visit {
            call::<F>
        }
        let call = caller(&visit);
        // SAFETY: the table is alive, and `call` gets a pointer to a closure of its type. A panic
        // in the closure aborts the program.
        unsafe { (L::operations().for_each)(this.table.as_ptr(), call, from_mut(&mut visit).cast()) }
    }
}

impl<L: Library> Drop for Foreign<L> {
    fn drop(&mut self) {
        // SAFETY: this is the only owner of the table, which is not used again.
        unsafe { (L::operations().destroy)(self.table.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::hashers::Foldhash;
    use std::hash::BuildHasher;

    fn hashes_alike<L: Library>() {
        for key in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            // SAFETY: a pure function.
            let hash = unsafe { (L::operations().hash)(key) };
            assert_eq!(hash, Foldhash::default().hash_one(key), "{}", L::NAME);
        }
    }

    #[test]
    fn all_hash_as_the_tables_in_rust_do() {
        #[cfg(feature = "liburcu")]
        hashes_alike::<Liburcu>();
        #[cfg(feature = "boost")]
        hashes_alike::<Boost>();
    }
}
