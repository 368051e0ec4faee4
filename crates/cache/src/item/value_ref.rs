//! References to large values that outlive the command that was shown them.

use crate::item::item_ref::ItemRef;
use crate::memory::block_ref::{Loan, Loans};
use std::fmt::{self, Debug, Formatter};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A value that is kept beyond the moment in which it was shown. It stays as it is, and where it is, whatever becomes of the item; its memory is
/// the engine's, and counts as such, until this is dropped, on any thread.
pub struct Lease {
    value: NonNull<[u8]>,
    _loan: Loan,
}

// SAFETY: the bytes are not written while there is a loan, so all threads may read them; a loan may end on any thread.
unsafe impl Send for Lease {}
// SAFETY: as above.
unsafe impl Sync for Lease {}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the value of an item that was linked, so it is initialised and does not change; the loan keeps its memory.
        unsafe { self.value.as_ref() }
    }
}

impl Debug for Lease {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes)", self.len())
    }
}

/// Where an item that is shown lies.
#[derive(Clone, Copy)]
pub struct Origin<'a> {
    item: ItemRef<'a>,
    loans: &'a Arc<Loans>,
}

impl<'a> Origin<'a> {
    pub(crate) fn new(item: ItemRef<'a>, loans: &'a Arc<Loans>) -> Origin<'a> {
        Origin { item, loans }
    }

    /// See [`Hit::lease`](crate::Hit::lease).
    #[cold]
    pub fn lease(self) -> Option<Lease> {
        let value = NonNull::from(self.item.value());
        // SAFETY: the item stays allocated for `'a`.
        unsafe { Loan::of_shown(self.item.block(), self.loans) }.map(|_loan| Lease { value, _loan })
    }
}

impl Debug for Origin<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Origin")
    }
}
