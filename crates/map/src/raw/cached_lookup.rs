//! Answering a lookup again without walking.

use std::ptr::NonNull;

use relativist_rcu::Guard;

use super::array::Array;
use super::head::{Head, Word};
use super::{Hash, Link, Table};

/// What a lookup saw that found the first link of its bucket's chain: the array, and what the head
/// held.
///
/// While both are the same, the same lookup finds the same link: it would load the array and then
/// the head, as [`CachedLookup::is_still_valid`] does, and all else is settled by what it has
/// loaded. For that it doesn't matter what the table is going through meanwhile, resizes included,
/// so the answer is as linearizable as that of the lookup that is left out. Neither array nor link
/// can have been freed and made again, at the same address, as long as the guard lives under which
/// they were found.
#[derive(Clone, Copy)]
pub(crate) struct CachedLookup<'g> {
    array: Array<'g>,
    head: &'g Head,
    word: Word,
}

impl Table {
    /// What to remember of a lookup that has found `link` under this guard, if it is the first of
    /// its chain. (Most are: four of five at half a link per bucket.)
    #[inline]
    pub(crate) fn cached_lookup<'g>(
        &'g self,
        hash: Hash,
        link: NonNull<Link>,
        guard: &'g Guard,
    ) -> Option<CachedLookup<'g>> {
        let array = self.inner().array(guard);
        let head = array.head(hash);
        let word = head.load();
        (word.first() == link.as_ptr()).then_some(CachedLookup { array, head, word })
    }
}

impl<'g> CachedLookup<'g> {
    /// Whether a lookup would find the link now. Wait-free: two loads.
    ///
    /// `table` and `guard` are those that the hit is from.
    #[inline]
    pub(crate) fn is_still_valid(&self, table: &'g Table, guard: &'g Guard) -> bool {
        table.inner().array(guard) == self.array && self.head.load() == self.word
    }
}
