//! Repeats a lookup without walking its chain.

use std::ptr::NonNull;

use relativist_rcu::Guard;

use super::array::Array;
use super::head::{Head, Word};
use super::{Hash, Link, Table};

/// A lookup that found the first link of its bucket's chain: the array, and the word that the head
/// held.
///
/// As long as both are unchanged, the same lookup finds the same link: it would load the array and
/// then the head, as [`CachedLookup::is_still_valid`] does, and what it loads determines the
/// result. This holds during resizes, too, so the result is linearizable, like that of the skipped
/// lookup. Neither the array nor the link can have been freed and allocated again at the same
/// address, because the guard under which they were found is still alive.
#[derive(Clone, Copy)]
pub struct CachedLookup<'g> {
    array: Array<'g>,
    head: &'g Head,
    word: Word,
}

impl Table {
    /// Remembers a lookup that has found `link` under this guard. Returns `None` unless `link` is
    /// the first of its chain. (Four of five are, at half a link per bucket.)
    #[inline]
    pub fn cached_lookup<'g>(&'g self, hash: Hash, link: NonNull<Link>, guard: &'g Guard) -> Option<CachedLookup<'g>> {
        let array = self.inner().array(guard);
        let head = array.head(hash);
        let word = head.load();
        (word.first() == link.as_ptr()).then_some(CachedLookup { array, head, word })
    }
}

impl<'g> CachedLookup<'g> {
    /// Returns whether a lookup would find the link now. Wait-free: two loads.
    ///
    /// `table` and `guard` must be those of the lookup.
    #[inline]
    pub fn is_still_valid(&self, table: &'g Table, guard: &'g Guard) -> bool {
        table.inner().array(guard) == self.array && self.head.load() == self.word
    }
}
