//! Which tables this thread has locked a bucket of, so that it doesn't wait for itself.
//!
//! A key's `Eq` runs under a bucket's lock, as does what a caller does while an [`Entry`](super::Entry) lives. If that updated the
//! same table, it would hang, but only where the buckets happen to be the same. It panics instead, wherever they are.

use std::cell::Cell;
use std::ptr;

use super::table::Core;
use crate::mutation;
use crate::sync::local;

/// How many tables may be nested: a key's `Eq` may update another table, whose keys' `Eq` updates a third.
const DEEPEST: usize = 8;

struct Held {
    count: Cell<usize>,
    tables: [Cell<*const Core>; DEEPEST],
}

local! {
    static HELD: Held = Held { count: Cell::new(0), tables: [const { Cell::new(ptr::null()) }; DEEPEST] };
}

/// To be called before a bucket is locked.
///
/// # Panics
///
/// If this thread holds a lock of the table.
#[inline(always)]
pub(super) fn enter(table: &Core) {
    HELD.with(|held| if held.count.get() == 0 { held.push_first(table) } else { held.push_other(table) });
}

/// Call before locking a second bucket of the same table. Only renames do this: they cannot wait for
/// themselves.
pub(super) fn enter_again(table: &Core) {
    HELD.with(|held| held.push(table));
}

/// To be called when a bucket has been unlocked, or is about to be, in any order.
#[inline(always)]
pub(super) fn leave(table: &Core) {
    HELD.with(|held| if held.count.get() == 1 { held.count.set(0) } else { held.take_out(table) });
}

impl Held {
    #[inline(always)]
    fn push_first(&self, table: &Core) {
        self.tables[0].set(table);
        self.count.set(1);
    }

    #[cold]
    fn push_other(&self, table: &Core) {
        assert!(
            self.position(table).is_none() || mutation::is("re-enter"),
            "this thread holds a bucket of this table locked already, and would wait for itself: what runs under the lock (a \
             key's Eq, or all that is done while a raw::Entry lives) may look keys up, but must not update the same table; do \
             that before or after"
        );
        self.push(table);
    }

    fn push(&self, table: &Core) {
        let count = self.count.get();
        assert!(count < DEEPEST, "this thread holds buckets of {DEEPEST} tables locked, one inside the other");
        self.tables[count].set(table);
        self.count.set(count + 1);
    }

    #[cold]
    fn take_out(&self, table: &Core) {
        let Some(at) = self.position(table) else { return };
        let last = self.count.get() - 1;
        self.tables[at].set(self.tables[last].get());
        self.count.set(last);
    }

    fn position(&self, table: &Core) -> Option<usize> {
        self.tables[..self.count.get()].iter().rposition(|held| ptr::eq(held.get(), table))
    }
}
