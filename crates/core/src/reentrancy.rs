//! The tables in which this thread has locked a bucket. An update that would make the thread wait
//! for itself panics instead.
//!
//! Three kinds of the caller's code run under a bucket's lock: a key's `Eq`, a key's `Hash` while a
//! flat map grows, and all code while an `relativist_table::Entry` lives. An update of the same
//! bucket there would hang. An update of any bucket of that table panics, so that such errors are
//! found early.

use std::cell::Cell;
use std::ptr;

use crate::sync::local;

/// The maximum number of tables. A key's `Eq` may update another table, whose keys' `Eq` updates a
/// third one, and so on.
const MAX_LOCKED_TABLES: usize = 8;

struct LockedTables {
    count: Cell<usize>,
    tables: [Cell<*const ()>; MAX_LOCKED_TABLES],
}

local! {
    static LOCKED_TABLES: LockedTables = LockedTables { count: Cell::new(0), tables: [const { Cell::new(ptr::null()) }; MAX_LOCKED_TABLES] };
}

/// Adds the table. Call before locking a bucket.
///
/// # Panics
///
/// Panics if this thread holds a lock of the table, or locks of too many others.
#[inline(always)]
pub fn enter<T>(table: &T) {
    let table = address(table);
    LOCKED_TABLES
        .with(|locked| if locked.count.get() == 0 { locked.push_first(table) } else { locked.push_other(table) });
}

/// Removes the table. Call just before or after unlocking a bucket. Tables may be removed in any
/// order.
#[inline(always)]
pub fn leave<T>(table: &T) {
    let table = address(table);
    LOCKED_TABLES.with(|locked| if locked.count.get() == 1 { locked.count.set(0) } else { locked.take_out(table) });
}

fn address<T>(table: &T) -> *const () {
    ptr::from_ref(table).cast()
}

impl LockedTables {
    #[inline(always)]
    fn push_first(&self, table: *const ()) {
        self.tables[0].set(table);
        self.count.set(1);
    }

    #[cold]
    fn assert_is_not_in(&self, table: *const ()) {
        assert!(
            self.position(table).is_none(),
            "this thread already holds the lock of a bucket of this table, and would wait for itself: code that runs under \
             the lock (a key's Eq, or any code while a relativist_table::Entry lives) may look keys up, but must not update the same \
             table; update it before or after"
        );
    }

    #[cold]
    fn push_other(&self, table: *const ()) {
        self.assert_is_not_in(table);
        self.push(table);
    }

    fn assert_has_room(&self) {
        assert!(
            self.count.get() < MAX_LOCKED_TABLES,
            "this thread holds buckets of {MAX_LOCKED_TABLES} tables locked, one inside the other"
        );
    }

    fn push(&self, table: *const ()) {
        self.assert_has_room();
        let count = self.count.get();
        self.tables[count].set(table);
        self.count.set(count + 1);
    }

    #[cold]
    fn take_out(&self, table: *const ()) {
        let Some(at) = self.position(table) else { return };
        let last = self.count.get() - 1;
        self.tables[at].set(self.tables[last].get());
        self.count.set(last);
    }

    fn position(&self, table: *const ()) -> Option<usize> {
        self.tables[..self.count.get()].iter().rposition(|locked| locked.get() == table)
    }
}
