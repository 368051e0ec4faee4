//! Several links with the same hash, as a multimap needs them.

use std::ptr::NonNull;

use relativist_rcu::Guard;

use super::link::AnyLink;
use super::{Entry, Hash, Link, Table};

/// An iterator over the links with one hash; see [`Table::find_all`].
pub struct FindAll<'t, L: AnyLink = Link> {
    hash: Hash,
    next: *mut L,
    _guard: &'t Guard,
}

impl<L: AnyLink> Table<L> {
    /// Inserts `new` after all links with the same hash, whatever keys they have.
    ///
    /// Costs and progress are those of [`Table::entry`].
    ///
    /// # Safety
    ///
    /// The same as for [`VacantEntry::insert`](super::VacantEntry::insert).
    ///
    /// # Panics
    ///
    /// See [`Table::entry`].
    pub unsafe fn insert(&self, new: NonNull<L>, guard: &Guard) {
        // SAFETY: the caller guarantees that it is valid.
        let hash = unsafe { new.as_ref() }.hash();
        match self.entry(hash, |_| false, guard) {
            // SAFETY: guaranteed by the caller, and the hash is that of the link.
            Entry::Vacant(entry) => unsafe { entry.insert(new) },
            Entry::Occupied(_) => unreachable!("nothing matches"),
        }
    }

    /// Iterates over all links with this hash, in the order in which they were inserted. The caller
    /// has to check which of them have the wanted key.
    ///
    /// A link that is in the table throughout is seen exactly once, during updates and resizes,
    /// too. One that is inserted or removed during the iteration may be seen or not. Wait-free, and
    /// as fast as [`Table::find`]. The links stay valid as long as the guard.
    pub fn find_all<'t>(&'t self, hash: Hash, guard: &'t Guard) -> FindAll<'t, L> {
        let hash = L::part_of(hash);
        let (head, scale) = self.inner().array(guard).head_and_scale(hash);
        let head = head.load();
        let next = if head.may_contain(hash, scale) { head.first() } else { std::ptr::null_mut() };
        FindAll { hash, next, _guard: guard }
    }
}

impl<L: AnyLink> Iterator for FindAll<'_, L> {
    type Item = NonNull<L>;

    fn next(&mut self) -> Option<NonNull<L>> {
        loop {
            let link = NonNull::new(self.next)?;
            // SAFETY: reached within the section, as in `find`.
            let current = unsafe { link.as_ref() };
            let hash = current.hash();
            self.next = if hash > self.hash { std::ptr::null_mut() } else { current.next() };
            if hash == self.hash {
                return Some(link);
            }
        }
    }
}

impl<L: AnyLink> std::iter::FusedIterator for FindAll<'_, L> {}
